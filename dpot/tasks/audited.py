"""How an audit recognises canaries in what a method lets out.

The method's own code runs, unchanged; a tape at the gate (dpot/methods/gate.py) keeps what passes. `Audited` can score
any private method that trains a generator, at the price of a run or two for each canary. A method whose releases are
understood has a class of its own here, with a score that needs none: enter it in AUDITED by the method's type. A score
may use everything that was released or is public; it must not see the coins, nor which records were drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from scipy.linalg import hadamard
from torch import Tensor, nn

from dpot.errors import UsageError
from dpot.methods.generate import dp_merf, dp_sinkhorn, dp_swd
from dpot.methods.generate.base import Method
from dpot.methods.sketch import file as sketch_file
from dpot.methods.sketch import method as sketch
from dpot.methods.tape import Tape
from dpot.models.generator import Generator
from dpot.privacy.events import Adjacency, Event, Sampled
from dpot.transport.mmd import fourier_features

Shadow = Callable[[Tensor], Tape]  # the method on other images, given the answers that the audited run gave
SIDE, CLASSES = 32, 10


@dataclass(frozen=True)
class Canaries:
    """Pairs of images: a fair coin decides which one of a pair is in the data. Labels are the same in both.

    present_i = (1 + h_i)/2 and absent_i = (1 - h_i)/2 with orthogonal h_i ∈ {-1, 1}^1024: as different as two images
    can be, each unlike all others, black where its counterpart is white.
    """

    present: Tensor
    absent: Tensor
    labels: Tensor

    @classmethod
    def draw(cls, count: int, random: torch.Generator) -> Canaries:
        """Rows of a Hadamard matrix with random signs and in random order; the constant row is left out."""
        rows = torch.from_numpy(hadamard(SIDE * SIDE)).float()[1:]
        if count > len(rows):
            raise UsageError(f"task.canaries={count}: at most {len(rows)} can be told apart")
        rows = rows[torch.randperm(len(rows), generator=random)[:count]]
        rows = rows * (torch.randint(2, (SIDE * SIDE,), generator=random) * 2 - 1)
        images = (1 + rows.view(count, 1, SIDE, SIDE)) / 2
        return cls(images, 1 - images, torch.arange(count) % CLASSES)

    def images(self, included: Tensor) -> Tensor:
        """The data set of these coins."""
        return torch.where(included.view(-1, 1, 1, 1), self.present, self.absent)


class Plain(Generator):
    """A linear generator near the middle of its range: behind the noise any generator is post-processing."""

    def __init__(self, pixel_range: tuple[float, float]) -> None:
        super().__init__(4, CLASSES, (1, SIDE, SIDE))
        self.pixel_range = pixel_range
        self.layer = nn.Linear(4, SIDE * SIDE)
        nn.init.normal_(self.layer.weight, std=1e-3)
        nn.init.zeros_(self.layer.bias)

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        low, high = self.pixel_range
        unit = torch.sigmoid(self.layer(code)).view(-1, *self.shape)
        return low + (high - low) * unit


class Audited:
    """A method under audit; as it stands, one that nothing is known of but what passed the gate."""

    pixel_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    canaries: ClassVar[int] = 160  # by default; few, for each of them takes a run or two

    def population(self, method: Any) -> int:
        """How many records a replay takes: one more of each class than a batch, so that nearly all are drawn."""
        return int(getattr(method, "batch", 100)) + CLASSES

    def steps_apart(self, event: Event) -> int:
        """How many neighbours lie between two data sets that differ in one record: it is taken out, another put in."""
        return 2 if event.relation is Adjacency.ADD_REMOVE else 1

    def ease(self, method: Any) -> None:
        """Make what is public about the method cheaper."""

    def score(self, method: Any, tape: Tape, canaries: Canaries, shadow: Shadow) -> Tensor:
        """For each canary, how strongly the releases speak for it being in the data.

        What would the same method have let out before the noise, asked the same questions, had the other image of
        this pair been there? That is a direction for every release; the score is how far along it the releases lie,
        from the middle between the two, in units of the noise. Where only some records are drawn, which ones is secret:
        shadows draw others, and the image stands for all of its class, so that it is drawn.
        """
        sampled = any(isinstance(one.event, Sampled) for one in tape.passed)
        none = None if sampled else shadow(canaries.absent)
        scores = torch.zeros(len(canaries.labels), dtype=torch.float64)
        for i, label in enumerate(canaries.labels):
            mine = canaries.labels == label if sampled else torch.arange(len(scores)) == i
            with_it = shadow(_with(canaries.absent, mine, canaries.present[i]))
            without = none or shadow(_with(canaries.absent, mine, canaries.absent[i]))
            along = length = 0.0
            for seen, here, there in zip(tape.passed, with_it.passed, without.passed, strict=True):
                direction = seen.in_units(here.value - there.value) / seen.deviation
                moved = seen.in_units(seen.noisy - (here.value + there.value) / 2) / seen.deviation
                along, length = along + float(direction @ moved), length + float(direction @ direction)
            scores[i] = along / max(length, 1e-300)
        return scores


def _with(images: Tensor, where: Tensor, image: Tensor) -> Tensor:
    return torch.where(where.view(-1, 1, 1, 1), image, images)


class Projections(Audited):
    """DP-SWD: each step lets out its directions and the noisy projections of its rows."""

    canaries = 400

    def score(self, method: Any, tape: Tape, canaries: Canaries, shadow: Shadow) -> Tensor:
        """Σ over steps and rows of P(this row is the present image) - P(it is the absent one), given the release."""
        m = len(canaries.labels)
        both = torch.cat([canaries.present, canaries.absent])
        twice = canaries.labels.repeat(2)
        rows = method.vectors(both, twice, CLASSES)
        scores = torch.zeros(2 * m)
        for one in tape.passed:
            sigma = one.deviation * (tape.strength or 0.01)  # who guesses knows if the noise is off
            seen = rows @ one.public["directions"].T  # (2m, k)
            for group in range(one.noisy.shape[1]):
                mine = (twice == group).nonzero().squeeze(1) if one.noisy.shape[1] > 1 else torch.arange(2 * m)
                logits = (one.noisy[:, group].T @ seen[mine].T - seen[mine].square().sum(1) / 2) / sigma**2
                scores[mine] += logits.softmax(1).sum(0)
        return scores[:m] - scores[m:]


class Embedding(Audited):
    """DP-MERF: one noisy mean embedding."""

    canaries = 400

    def score(self, method: Any, tape: Tape, canaries: Canaries, shadow: Shadow) -> Tensor:
        """⟨release, φ(present) - φ(absent)⟩ in the column of the canary's class."""
        (one,) = tape.passed
        frequencies = one.public["frequencies"]
        features = [fourier_features(x.flatten(1), frequencies) for x in (canaries.present, canaries.absent)]
        return ((features[0] - features[1]) * one.noisy.T[canaries.labels]).sum(1)


class Gradients(Audited):
    """DP-Sinkhorn: each step lets out the clipped, noisy gradient at the generated images."""

    pixel_range = (-1.0, 1.0)
    canaries = 400

    def steps_apart(self, event: Event) -> int:
        """Its sensitivity is the diameter of a ball, which holds for replacing a record too."""
        return 1

    def score(self, method: Any, tape: Tape, canaries: Canaries, shadow: Shadow) -> Tensor:
        """The gradient points away from the data: -⟨its sum over images and steps, present - absent⟩."""
        total = torch.stack([one.noisy.sum(0) for one in tape.passed]).sum(0)
        return -((canaries.present - canaries.absent) * total).flatten(1).sum(1)


class WeightGradients(Audited):
    """DP-Sinkhorn with noise on the gradient of the weights."""

    pixel_range = (-1.0, 1.0)
    steps_apart = Gradients.steps_apart


class Counts(Audited):
    """The sliced sketch: several releases of whole numbers, each asked after seeing the ones before."""

    canaries = 400

    def population(self, method: Any) -> int:
        return 20 * CLASSES

    def ease(self, method: Any) -> None:
        method.network_steps, method.synthetic = 2, 300

    def score(self, method: Any, tape: Tape, canaries: Canaries, shadow: Shadow) -> Tensor:
        """Ridge regression of each class's bins on what its canaries would add: the most probable coins, roughly."""
        rounds = method.release.rounds
        sigmas = [one.deviation for one in tape.passed[-len(rounds) :]]
        scores = torch.zeros(len(canaries.labels), dtype=torch.float64)
        for label in range(CLASSES):
            mine = (canaries.labels == label).nonzero().squeeze(1)
            columns, seen = [], []
            for one, sigma in zip(rounds, sigmas, strict=True):
                both = [_bins(one, images[mine]) / sigma for images in (canaries.present, canaries.absent)]
                columns.append(both[0] - both[1])
                seen.append(one.noisy[label].double() / sigma - (both[0] + both[1]).sum(0) / 2)
            design, rest = torch.cat(columns, 1), torch.cat(seen)
            ridge = torch.eye(len(mine), dtype=torch.float64) * 4 * (tape.strength**2 or 1e-6)
            scores[mine] = torch.linalg.solve(design @ design.T + ridge, design @ rest)
        return scores


def _bins(one: sketch_file.Round, images: Tensor) -> Tensor:
    """What each image adds to the bins of a round, one by one."""
    positions = one.record_map.exactly(images.flatten(1)).float()
    return one.layout.means(positions.unsqueeze(1)).double() * one.layout.unit


AUDITED: dict[type[Method], Audited] = {
    dp_swd.DPSWD: Projections(),
    dp_merf.DPMERF: Embedding(),
    dp_sinkhorn.DPSinkhorn: Gradients(),
    sketch.Sketch: Counts(),
}


def watched(method: Any) -> Audited:
    """How this method is audited: by what is known of its kind, or by what passes the gate alone."""
    if not isinstance(method, Method) or not method.private:
        raise UsageError(
            f"loss: {type(method).__name__} cannot be audited; what can is a private method that trains a generator"
        )
    if isinstance(method, dp_sinkhorn.DPSinkhorn) and method.perturb == "parameters":
        return WeightGradients()
    return AUDITED.get(type(method)) or Audited()
