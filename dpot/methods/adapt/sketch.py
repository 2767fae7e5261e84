"""Alignment on one release: the project's own answer to what DP-SWD loses when it is made sound.

DP-SWD pays for every step, and a sound step cannot use the gradient through the target's features. Here the target is
asked once: the noisy mean and second moment of its records in a public subspace. The *source* is then moved onto
them, in the space of the records, by a map that keeps labels, and the network is trained on the moved source. The
target is never differentiated through, so that nothing is lost by not doing it; moving and training are
post-processing, free of budget however long they take.

- Images: an affine warp, a blur and a contrast curve (models/image_transport.py), fitted to the moments in the
  low-frequency coefficients of a two-dimensional cosine transform.
- Feature vectors: the optimal transport map between Gaussians (transport/gaussian_map.py) in the leading principal
  directions of the source; shift and change of covariance are shrunk to what rises above the noise.

Sensitivity: with rows clipped to the unit ball, replacing a record moves the mean by at most 2/N and the second
moment, in Frobenius norm, by √(‖z‖⁴ + ‖w‖⁴ - 2⟨z,w⟩²)/N ≤ √2/N.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from dpot.methods.adapt.base import AdaptationProblem, SourceThenAlign, Stage, public_batches, supervised
from dpot.models.image_transport import ImageTransport
from dpot.privacy import calibration
from dpot.privacy.events import Gaussian
from dpot.ranges import Count, NonNegativeInt, Positive, Probability
from dpot.training.backward import weighted_backward
from dpot.training.engine import Engine
from dpot.training.samplers import FixedSize, ShuffledEpochs
from dpot.training.sanitise import clip_rows
from dpot.transport.directions import cosine_directions
from dpot.transport.gaussian_map import gaussian_map, symmetric_power

ROUNDING = 1 + 1e-5  # clipped norms are off by float32 rounding
PART = 5000  # rows at a time
SOURCE = "dpot/methods/adapt/sketch.py"


class SketchAlignment(SourceThenAlign):
    """mean_share: of the budget (in μ², as Gaussian mechanisms add up) for the mean; the rest for the second moment."""

    def __init__(
        self,
        batch: Count = 128,
        epochs: Count = 100,
        source_epochs: NonNegativeInt = 11,
        learning_rate: Positive = 5e-4,
        dimension: Count = 50,
        frequencies: Count = 12,
        radius: Positive = 1.5,
        mean_share: Probability = 0.5,
        transport_steps: Count = 500,
        transport_batch: Count = 512,
        transport_rate: Positive = 0.01,
    ) -> None:
        super().__init__(batch, epochs, source_epochs, learning_rate, weight=0.0)
        self.dimension, self.frequencies, self.radius, self.mean_share = dimension, frequencies, radius, mean_share
        self.transport_steps, self.transport_batch = transport_steps, transport_batch
        self.transport_rate = transport_rate

    def stages(self, problem: AdaptationProblem) -> list[tuple[str, Stage]]:
        """Source training; for images the fit of the map; training on the moved source."""
        stages = super().stages(problem)
        if problem.source.dim() > 2 and len(stages) > 1:
            self._map = ImageTransport().to(problem.device)
            steps = problem.steps(self.transport_steps)
            stages.insert(1, ("transport", lambda: self._fit(problem, steps)))
        return stages

    def alignment(
        self,
        problem: AdaptationProblem,
        extra: Mapping[str, nn.Module],
        optimizer: torch.optim.Optimizer,
        sampler: ShuffledEpochs,
        steps: int,
    ) -> Engine:
        """Training goes on, on the moved source."""
        if problem.source.dim() > 2:
            with torch.no_grad():
                moved = torch.cat([self._map(part) for part in problem.source.split(PART)])
        else:
            moved = self._moved_features(problem)
        fresh = public_batches(problem, sampler.batch)
        return supervised(problem, moved, problem.labels, extra, optimizer, fresh, steps, stage="alignment")

    # the one release

    def _release(self, problem: AdaptationProblem, public: Sketch) -> dict[str, Tensor]:
        """Noisy mean and second moment of the target; kept, so that a resumed run does not ask again."""
        total = calibration.find_sigma(Gaussian, 1, problem.budget) * (1 + 1e-9)
        shares = {"mean": self.mean_share, "second": 1 - self.mean_share}
        first, other = (
            problem.release(Gaussian(total / math.sqrt(share)), source=f"{SOURCE}: {name} moment of the target")
            for name, share in shares.items()
        )

        def make() -> dict[str, Tensor]:
            mean, second = public.moments(problem.target)
            moved = 2 * ROUNDING / len(problem.target), math.sqrt(2) * ROUNDING / len(problem.target)
            mean, second = first(mean, moved[0]), other(second, moved[1])
            levels = torch.tensor([first.deviation(moved[0]), other.deviation(moved[1])], dtype=mean.dtype)
            return {"mean": mean, "second": (second + second.T) / 2, "std": levels}

        return problem.keep_release("moments", [first, other], make)

    # images

    def _fit(self, problem: AdaptationProblem, steps: int) -> Engine:
        channels, height, width = problem.source.shape[1:]
        shape = (channels, height, width)
        public = Sketch.of(cosine_directions(shape, self.frequencies), problem.source, self.radius)
        public = public.to(problem.device)
        wanted = self._release(problem, public)
        mean, second = wanted["mean"].float(), wanted["second"].float()
        batches = FixedSize(len(problem.source), min(self.transport_batch, len(problem.source)), problem.random)
        optimizer = torch.optim.Adam(self._map.parameters(), lr=self.transport_rate)

        backward = weighted_backward(problem.device, 1.0)

        def step() -> dict[str, Tensor]:
            rows = public.rows(self._map(batches.draw().rows(problem.source)))
            # E‖noisy - moments‖² is the noiseless distance plus a constant: the noise does not bias the fit
            loss = mse_loss(rows.mean(0), mean, reduction="sum")
            loss = loss + mse_loss(rows.T @ rows / len(rows), second, reduction="sum")
            backward(loss)
            optimizer.step()
            return {"loss": loss}

        return problem.stage(
            "transport", step, steps=steps, optimizer=optimizer, extra={"transport": self._map}, samplers=[batches]
        )

    # feature vectors

    def _moved_features(self, problem: AdaptationProblem) -> Tensor:
        source = problem.source.double()
        size = min(self.dimension, *source.shape)
        public = Sketch.of(_principal(source - source.mean(0), size).float(), problem.source, self.radius)
        wanted = self._release(problem, public)
        noise_mean, noise_second = wanted["std"].tolist()
        mean, second = public.moments(problem.source)
        shift = wanted["mean"] - mean
        shift = shift * max(0.0, 1 - size * noise_mean**2 / float(shift.square().sum()))  # James & Stein
        before = second - torch.outer(mean, mean)
        change = wanted["second"] - torch.outer(wanted["mean"], wanted["mean"]) - before
        values, vectors = torch.linalg.eigh((change + change.T) / 2)
        edge = noise_second * math.sqrt(2 * size)  # the spectral norm of noise with variance std²/2 off the diagonal
        change = (vectors * (values.sign() * (values.abs() - edge).clamp(min=0))) @ vectors.T
        after = symmetric_power(before + change, 1.0, floor=1e-4)
        mover = gaussian_map(symmetric_power(before, 1.0, floor=1e-4), after)
        placed = public.places(problem.source).double()
        moved = (placed - mean) @ mover.T + mean + shift
        return (source + (moved - placed) * public.radius @ public.basis.double()).float()


class Sketch:
    """Rows z = clip(B(x) - c, R)/R in a public subspace: B, c and R come from the source or from nobody's data."""

    def __init__(self, basis: Tensor, centre: Tensor, radius: float) -> None:
        self.basis, self.centre, self.radius = basis, centre, radius

    @classmethod
    def of(cls, basis: Tensor, source: Tensor, factor: float) -> Sketch:
        """c: the source's mean; R: `factor` times the radius that holds 95% of the source."""
        basis = basis.to(source.device)
        placed = torch.cat([part.flatten(1) @ basis.T for part in source.split(PART)])
        centre = placed.mean(0)
        return cls(basis, centre, factor * float((placed - centre).norm(dim=1).double().quantile(0.95)))

    def to(self, device: torch.device) -> Sketch:
        """The same on a device."""
        return Sketch(self.basis.to(device), self.centre.to(device), self.radius)

    def places(self, records: Tensor) -> Tensor:
        """(B(x) - c)/R, not clipped."""
        return (records.flatten(1) @ self.basis.T - self.centre) / self.radius

    def rows(self, records: Tensor) -> Tensor:
        """Clipped to the unit ball."""
        return clip_rows(self.places(records), 1.0)

    def moments(self, records: Tensor) -> tuple[Tensor, Tensor]:
        """(mean of z, mean of zzᵀ), in double precision."""
        size = len(self.basis)
        mean = torch.zeros(size, dtype=torch.float64, device=records.device)
        second = torch.zeros(size, size, dtype=torch.float64, device=records.device)
        for part in records.split(PART):
            rows = self.rows(part).double()
            mean += rows.sum(0)
            second += rows.T @ rows
        return mean / len(records), second / len(records)


def _principal(centred: Tensor, count: int) -> Tensor:
    """The leading principal directions, by the smaller of the two Gram matrices."""
    rows, columns = centred.shape
    if columns <= rows:
        return torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -count:].T
    vectors = torch.linalg.eigh(centred @ centred.T).eigenvectors[:, -count:]
    return torch.nn.functional.normalize(vectors.T @ centred, dim=1)
