"""A floor for every generator of images: a private mean per class and one covariance, sampled as a Gaussian.

The records are seen through the lowest frequencies of the 2-D cosine transform. In photographs the amplitude of a
frequency f falls like 1/f, so each coefficient is divided by what a photograph would have there; then no frequency is
better known than another. What comes out has no edges and no shapes, only colours and gradients. It takes seconds, and
a generator that does worse by a classifier has learned nothing but noise.

v = coefficients/R, clipped to length 1; R = √k, the length that a photograph has. Three releases, replace-one:
the size of each class (√2), Σ v of each class (2), Σ vvᵀ of all (√2, as in dpot/methods/sketch/release.py).
"""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from dpot.methods.generate.base import Method, Problem
from dpot.models.generator import one_hot
from dpot.privacy import calibration
from dpot.privacy.events import Gaussian
from dpot.ranges import Count, Fraction, Positive
from dpot.training.engine import Outcome
from dpot.transport.directions import ImageShape, cosine_directions

ROUNDING = 1 + 1e-5  # float32 may round a length up; shares are split in double precision
CHUNK = 5000


class GaussianFloor(Method):
    """frequencies: of the cosine transform in each direction. contrast: the deviation of a pixel, publicly guessed.

    count_share, mean_share: of the budget (of μ²) for the sizes and the means; the rest is for the covariance.
    """

    def __init__(
        self,
        frequencies: Count = 8,
        contrast: Positive = 0.25,
        count_share: Fraction = 0.05,
        mean_share: Fraction = 0.35,
    ) -> None:
        self.frequencies, self.contrast = frequencies, contrast
        self.shares = {"counts": count_share, "means": mean_share, "second": 1 - count_share - mean_share}
        self.centres, self.root, self.back = (torch.zeros(0) for _ in range(3))

    def fit(self, problem: Problem) -> Outcome:
        """Release, and make of it what samples are drawn from."""
        began = time.perf_counter()
        multiplier = calibration.find_sigma(Gaussian, 1, problem.budget) * ROUNDING
        releases = {name: problem.release(Gaussian(multiplier / math.sqrt(s))) for name, s in self.shares.items()}
        basis, amplitudes = self._basis(problem.generator.shape)
        size, classes = len(basis), problem.classes

        def make() -> dict[str, Tensor]:
            seen = (basis / amplitudes[:, None] / math.sqrt(size)).to(problem.device)
            sums = torch.zeros(classes, size, device=problem.device)
            second = torch.zeros(size, size, device=problem.device)
            images = problem.images.flatten(1)
            for records, labels in zip(images.split(CHUNK), problem.labels.split(CHUNK), strict=True):
                rows = (records - 0.5) @ seen.T
                rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1)
                sums += one_hot(labels, classes).T @ rows
                second += rows.T @ rows
            counts = one_hot(problem.labels, classes).sum(0)
            above = torch.triu(torch.ones_like(second, dtype=torch.bool), 1)
            squares = releases["second"](
                {"diagonal": second.diagonal().clone(), "above": second[above]},
                {"diagonal": math.sqrt(2) * ROUNDING, "above": ROUNDING},
            )
            noisy = torch.zeros_like(second)
            noisy[above] = squares["above"]
            return {
                "counts": releases["counts"](counts, math.sqrt(2)),
                "means": releases["means"](sums, 2 * ROUNDING),
                "second": noisy + noisy.T + torch.diag(squares["diagonal"]),
            }

        kept = problem.keep_release("gaussian-floor", list(releases.values()), make)
        self._understand(kept, len(problem.images), releases["second"].noise_multiplier)
        self.back = (basis * amplitudes[:, None]).to(problem.device)
        return Outcome(0, time.perf_counter() - began, "none", "mean and covariance are computed, not trained")

    def draw(self, problem: Problem, count: int) -> tuple[Tensor, Tensor]:
        """Gaussian coefficients of the classes in turn, cut to [0, 1] as pixels."""
        labels = torch.arange(count, device=problem.device) % problem.classes
        noise = torch.randn(count, len(self.root), generator=problem.random, device=problem.device)
        images = 0.5 + (self.centres[labels] + noise @ self.root.T) @ self.back
        return images.clamp(0, 1).view(count, *problem.generator.shape), labels

    def _understand(self, kept: dict[str, Tensor], records: int, noise_multiplier: float) -> None:
        """Centres of the classes and a root of the covariance within them, in whitened coefficients.

        Eigenvalues below the spectrum of the noise, 2·τ·√k (Wigner), are known together only: they get their mean.
        """
        size = len(kept["second"])
        counts = kept["counts"].clamp(min=1)
        self.centres = math.sqrt(size) * kept["means"] / counts[:, None]
        shares = counts / counts.sum()
        between = (self.centres.T * shares) @ self.centres
        covariance = size * kept["second"] / records - between
        values, vectors = torch.linalg.eigh(covariance.double())
        edge = 2 * size * noise_multiplier / records * math.sqrt(size)
        known = values > edge
        rest = values[~known].sum().clamp(min=0) / max(1, int((~known).sum()))
        self.root = (vectors * torch.where(known, values, rest).sqrt()).float()

    def _basis(self, shape: ImageShape) -> tuple[Tensor, Tensor]:
        """(k, d) orthonormal cosines, and the amplitude that each has in a photograph of this contrast."""
        channels, height, width = shape
        basis = cosine_directions(shape, self.frequencies)
        down, sideways = (torch.arange(min(self.frequencies, side)).float() for side in (height, width))
        radius = (down[:, None].square() + sideways.square()).sqrt().flatten().repeat(channels)
        falling = 1 / (1 + radius)
        whole = self.contrast * math.sqrt(math.prod(shape))  # the length of a whole photograph around grey
        return basis, whole * falling / falling.norm()
