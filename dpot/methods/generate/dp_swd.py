"""DP-SWD: a generator trained against noisy random projections (Rakotomamonjy & Ralaivola, ICML 2021).

Each step projects a batch of private rows on k fresh directions, adds Gaussian noise, and compares the sorted
noisy projections with those of generated rows (Algorithm 1). What is released at a step is (U, XU + V): the
random-projection Gaussian mechanism, priced exactly in dpot/privacy/projection.py.

Labels decide whether it learns at all. The paper does not say how they enter; with d = 784 they cannot be part
of the vector. Of what was tried, only batches with every class in them and one distance per class work. `labels` is
- public: as many records of each class as of the others. Adjacency: replace the image, keep its label;
- private: a uniform batch whose rows are sorted into slots by class (see `_Slots`): one distance per class all the
  same, for √2 times the noise. Adjacency: replace the record, label and all;
- joint: the label as a part of the row. Private too, and stays at chance under noise;
- none: images without labels.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from dpot.errors import UsageError
from dpot.methods.gate import Release
from dpot.methods.generate.base import Method, Problem, require_labels
from dpot.models.comparison import RandomEncoder
from dpot.models.generator import one_hot
from dpot.privacy import calibration
from dpot.privacy.accountants import own_epsilon
from dpot.privacy.events import Adjacency, Event, FixedSizeSampled, NonPrivate, ProjectionGaussian, StratifiedSampled
from dpot.privacy.failures import failure_of
from dpot.ranges import Count, Fraction, Positive
from dpot.training.backward import weighted_backward
from dpot.training.ema import EMA
from dpot.training.engine import Engine
from dpot.training.samplers import FixedSize, Sampler, Stratified
from dpot.training.schedules import Cosine
from dpot.training.streams import SideStream
from dpot.transport.directions import uniform_directions
from dpot.transport.sliced import noisy_projections, project, wasserstein_1d

ROUNDING = 1 + 1e-5  # clipped norms are off by float32 rounding: stay inside the diameter all the same


class _Slots:
    """A batch as (classes, slots, d): each row in a slot of its class, rows of zeros in the slots left over.

    The release XU + V is then one noisy matrix per class, whose shape says nothing of the labels. Rows that find their
    class full are dropped. What one record (x, a) replaced by (x', b) changes: the slot that x had in class a holds
    zeros, or the row that x had crowded out; the same in class b. Slots are taken in a random order (the batch comes
    in one, and a noisy matrix is only ever looked at through its sorted columns, so that which slots stay free is not
    seen), hence the two batches can be coupled such that all other rows keep their slots. So two rows move, each by at
    most √2·R (between images of norm ≤ R without negative pixels). With Z those two moves, the mechanism's moments are
    E exp(c·uᵀZᵀZu), convex in the eigenvalues of ZᵀZ and symmetric in them: at most what one row moved by 2R gives.
    """

    def __init__(self, classes: int, slots: int, device: torch.device) -> None:
        self.classes, self.slots = classes, slots
        self._all = torch.arange(classes, device=device)

    def fill(self, rows: Tensor, labels: Tensor) -> Tensor:
        """rows (n, d) by their labels."""
        mine = labels[:, None] == self._all
        rank = (mine.cumsum(0) * mine).sum(1) - 1  # how many of its class stand before it
        place = torch.where(rank < self.slots, labels * self.slots + rank, self.classes * self.slots)
        filled = rows.new_zeros(self.classes * self.slots + 1, rows.shape[1]).index_copy(0, place, rows)
        return filled[:-1].view(self.classes, self.slots, -1)


class SWD(Method):
    """The same training without noise: the non-private row of the tables."""

    private = False

    def __init__(
        self,
        projections: Count = 1000,
        batch: Count = 100,
        epochs: Count = 100,
        learning_rate: Positive = 1e-3,
        q: Positive = 2.0,
        labels: Literal["public", "private", "joint", "none"] = "public",
        label_weight: Positive = 10.0,
        rows: Literal["clipped", "raw"] = "clipped",
        norm_bound: Positive = 10.0,
        ema: Fraction = 0.0,
        decay: bool = False,
        space: Literal["pixels", "encoder"] = "pixels",
    ) -> None:
        """`space`: what images are compared in; "encoder" is a random network that knows no data."""
        self.projections, self.batch, self.epochs, self.q = projections, batch, epochs, q
        self.learning_rate, self.ema, self.decay = learning_rate, ema, decay
        self.labels, self.label_weight, self.rows, self.norm_bound = labels, label_weight, rows, norm_bound
        self.space = space
        self._encoder: RandomEncoder | None = None

    # rows: what is projected

    def vectors(self, images: Tensor, labels: Tensor, classes: int) -> Tensor:
        """The rows that are projected, of diameter at most `diameter` whatever the data.

        Clipped: ‖x‖ ≤ R first. Pixels (and the encoder's values) are not negative, so two rows are at most
        √(‖x‖² + ‖x'‖²) ≤ √2·R apart (not 2R: their inner product is not negative), and x/(√2 R) has diameter 1. A
        joint label, w·one-hot, adds 2w² under the root, in the unit of pixels; private labels move two rows.
        """
        flat = images.flatten(1) if self._encoder is None else self._encoder(images)
        if self.rows == "clipped":
            norms = torch.linalg.vector_norm(flat, dim=1, keepdim=True, dtype=torch.float64)
            flat = flat * (self.norm_bound / self.scale / norms.clamp(min=self.norm_bound)).to(flat.dtype)
        if self.labels == "joint":
            flat = torch.cat([flat, self.label_weight / self.scale * one_hot(labels, classes)], dim=1)
        return flat

    @property
    def scale(self) -> float:
        """The divisor that brings clipped rows to diameter 1; raw rows stay as they are."""
        if self.rows == "raw":
            return 1.0
        label = self.label_weight if self.labels == "joint" else 0.0
        moved = 2 if self.labels == "private" else 1
        return ROUNDING * math.sqrt(moved * 2 * self.norm_bound**2 + 2 * label**2)

    def diameter(self, pixels: int) -> float:
        """The largest distance of two rows, over all images with pixels in [0, 1]."""
        if self.rows == "clipped":
            return 1.0
        if self._encoder is not None:
            return self._encoder.diameter()
        moved = 2 if self.labels == "private" else 1
        return math.sqrt(moved * pixels + (2 * self.label_weight**2 if self.labels == "joint" else 0.0))

    # training

    def prepare(self, problem: Problem) -> Engine:
        """The engine whose steps train the generator; every batch of private rows is one release."""
        low, high = problem.generator.pixel_range
        if (low, high) != (0.0, 1.0):
            raise UsageError("loss=dp_swd compares pixels in [0, 1]: choose a generator that ends in a sigmoid")
        steps = problem.steps(self.epochs * (len(problem.images) // self.batch + 1))
        sampler = self._sampler(problem)
        if self.space == "encoder":
            self._encoder = RandomEncoder(problem.generator.shape).to(problem.device)
        private = self._all_vectors(problem)
        release = self._mechanism(problem, sampler, private.shape[1], steps)
        sigma = release.deviation()
        groups = problem.classes if self.labels in ("public", "private") else 1
        slots = _Slots(groups, self.batch // groups, problem.device)
        wanted = torch.arange(self.batch, device=problem.device) * problem.classes // self.batch
        model, random = problem.generator, problem.random
        # the exact bound is an average over directions that nobody knows beforehand: not those of a published seed
        hidden = problem.noise.generator if sigma else random

        backward = weighted_backward(problem.device, self.scale**2)
        side = SideStream(problem.device)

        def arrange(rows: Tensor, labels: Tensor) -> Tensor:
            if self.labels == "private":
                return slots.fill(rows, labels)
            return rows.view(groups, self.batch // groups, -1)  # public: the batch comes class by class

        def step() -> dict[str, Tensor]:
            directions = uniform_directions(self.projections, private.shape[1], hidden, problem.device)
            with side.fork():
                drawn = sampler.draw()
                theirs = drawn.rows(problem.labels) if self.labels == "private" else wanted
                rows = arrange(drawn.rows(private), theirs)
                # the noisy projections are the release; what follows is post-processing of them
                real = release(project(rows, directions), bounded=rows, public={"directions": directions})
            labels = wanted
            if self.labels in ("private", "joint"):
                shape = (self.batch,)
                labels = torch.randint(problem.classes, shape, generator=random, device=problem.device)
            images = model(model.code(len(labels), random, problem.device), labels)
            vectors = self.vectors(images, labels, problem.classes)
            generated = arrange(vectors, labels)
            if sigma:
                fake = noisy_projections(generated, directions, sigma, random)
            else:
                fake = project(generated, directions)
            side.join()
            apart = wasserstein_1d(fake, real, self.q).mean()
            backward(apart)
            optimizer.step()
            return {"loss": apart.detach() * self.scale**2}

        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate)
        return problem.engine(
            step,
            steps=steps,
            optimizer=optimizer,
            ema=EMA(model, self.ema) if self.ema else None,
            schedule=Cosine(steps) if self.decay else None,
            before=release.charge,
        )

    @torch.no_grad()
    def _all_vectors(self, problem: Problem) -> Tensor:
        pairs = zip(problem.images.split(5000), problem.labels.split(5000), strict=True)
        return torch.cat([self.vectors(images, labels, problem.classes) for images, labels in pairs])

    def _sampler(self, problem: Problem) -> Sampler:
        secret = problem.noise.generator
        if self.labels != "none" and self.batch % problem.classes:
            raise UsageError(f"loss.batch={self.batch}: must be a multiple of the {problem.classes} classes")
        if self.labels != "public":
            return FixedSize(len(problem.images), self.batch, secret)
        per_class = self.batch // problem.classes
        require_labels(problem, "dp_swd", per_class)
        return Stratified(problem.labels, per_class, secret)

    def _mechanism(self, problem: Problem, sampler: Sampler, dimension: int, steps: int) -> Release:
        event = NonPrivate("the projections are compared without noise")
        return problem.release(event, sampler=sampler, steps=steps)


class DPSWD(SWD):
    """With noise: σ is calibrated to the budget by the bound it names, the ledger is charged what really happens."""

    private = True

    def _mechanism(self, problem: Problem, sampler: Sampler, dimension: int, steps: int) -> Release:
        """The release that each step makes, with σ for the budget.

        In paper mode the rows are taken to have diameter 1, as the paper does, whatever they have; what that is
        really worth is computed and stands in the statement.
        """

        def event(sigma: float, diameter: float) -> Event:
            if isinstance(sampler, Stratified):
                adjacency = Adjacency.REPLACE_KEEPING_LABEL
                mechanism = ProjectionGaussian(dimension, self.projections, sigma, diameter, adjacency)
                return StratifiedSampled(mechanism, tuple(sampler.per_class), tuple(sampler.class_sizes))
            mechanism = ProjectionGaussian(dimension, self.projections, sigma, diameter)
            return FixedSizeSampled(mechanism, sampler.batch, sampler.population)

        budget = problem.budget
        real = self.diameter(problem.images[0].numel())
        assumed = 1.0 if budget.mode == "paper" else real
        left = budget.less(steps * failure_of(sampler.facts()))
        sigma = calibration.find_sigma(lambda s: event(s, assumed), steps, left)
        if real > assumed:
            true = own_epsilon({event(sigma, real): steps}, budget.pricing.delta, "exact", "tight")
            worth = f"ε = {true:.4g}" if math.isfinite(true) else "no finite ε"
            problem.ledger.note_unsound(
                f"rows have a diameter of up to {real:.3g} and are accounted as 1; what ran is worth {worth}"
            )
        return problem.release(event(sigma, assumed), sampler=sampler, steps=steps)
