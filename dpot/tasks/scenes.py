"""Small stages for an audit: a method of any task on a handful of records, with everything public about it made tiny.

Which task a method is for decides what it is given (`SCENES`), so that a new method of a known task needs nothing here.
The records are the adversary's choice. All else is public and behind the noise: a linear generator, a small network, a
source of four records, a second party.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dpot.errors import PrivacyError, UsageError
from dpot.methods.adapt.base import AdaptationProblem
from dpot.methods.classify.base import Classification
from dpot.methods.distance.parties import Party
from dpot.methods.gate import Gate
from dpot.methods.generate.base import Problem
from dpot.methods.tape import Ended, Tape
from dpot.models.adaptation import Network
from dpot.models.generator import Generator
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource

SIDE, CLASSES, BATCH = 4, 2, 2
PIXELS = SIDE * SIDE
LONG = 10.0  # entries of a vector: beyond every clipping bound


@dataclass(frozen=True)
class Records:
    """The private records of a scene, (N, ...), with their labels."""

    x: Tensor
    y: Tensor

    def but(self, position: int, record: Tensor, label: int | None = None) -> Records:
        """With another record in this place; the label stays unless one is given."""
        x, y = self.x.clone(), self.y.clone()
        x[position] = record
        if label is not None:
            y[position] = label
        return Records(x, y)

    def without(self, position: int) -> Records:
        """One record less."""
        kept = torch.arange(len(self.y)) != position
        return Records(self.x[kept], self.y[kept])


class Scene:
    """What a method of one task is given, and how it is run."""

    shape: ClassVar[tuple[int, ...]] = (1, SIDE, SIDE)  # of a record

    def record(self, pixels: Tensor) -> Tensor:
        """A record out of pixels in [0, 1], which is what images are made of."""
        return pixels.view(self.shape)

    def run(self, method: Any, records: Records, given: dict[str, Any]) -> Ledger:
        """Run the method on the records; `given` has budget, noise, tape, random and the number of steps."""
        raise NotImplementedError

    def ease(self, method: Any) -> None:
        """A batch of few records: the fewer there are, the less hides one of them."""
        if getattr(method, "batch", None):
            method.batch = min(method.batch, BATCH)

    def perform(
        self, make: Callable[[], Any], records: Records, budget: Budget, seed: int, noise: int, tape: Tape, steps: int
    ) -> Ledger:
        """A new method on these records, with the public seed and the seed of its noise; what passes is on the tape."""
        method = make()
        self.ease(method)
        torch.manual_seed(seed)
        random = torch.Generator().manual_seed(seed)
        given = {
            "budget": budget,
            "noise": NoiseSource(noise),
            "tape": tape,
            "random": random,
            "steps": steps,
            # what paper mode claims is priced, and nobody is held to it
            "ledger": Ledger.of(replace(budget, epsilon=None) if budget.mode == "paper" else budget),
        }
        ledger = self.run(method, records, given)
        if not tape.passed:
            raise PrivacyError(
                f"loss: {type(method).__name__} let nothing out through the gate: what did it learn from?"
            )
        return ledger


class Plain(Generator):
    """A linear generator near the middle of its range: behind the noise any generator is post-processing."""

    def __init__(self, pixel_range: tuple[float, float]) -> None:
        super().__init__(4, CLASSES, (1, SIDE, SIDE))
        self.pixel_range = pixel_range
        self.layer = nn.Linear(4, PIXELS)
        nn.init.normal_(self.layer.weight, std=1e-3)
        nn.init.zeros_(self.layer.bias)

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        low, high = self.pixel_range
        unit = torch.sigmoid(self.layer(code)).view(-1, *self.shape)
        return low + (high - low) * unit


class Generating(Scene):
    """task=generate: the pixels of the generator are those that the method takes."""

    def run(self, method: Any, records: Records, given: dict[str, Any]) -> Ledger:
        ranges = ((0.0, 1.0), (-1.0, 1.0))
        for pixel_range in ranges:
            # a method that trains one kind of generator alone says which is its smallest
            generator = method.smallest(CLASSES, self.shape) if hasattr(method, "smallest") else Plain(pixel_range)
            problem = _problem(given, images=records.x, labels=records.y, generator=generator)
            try:
                with contextlib.suppress(Ended):
                    method.fit(problem)
                break
            except UsageError:
                if given["tape"].passed or pixel_range == ranges[-1]:
                    raise
        return problem.ledger


def _problem(given: dict[str, Any], **own: Any) -> Problem:
    means = {name: given[name] for name in ("budget", "ledger", "noise", "tape", "random")}
    return Problem(classes=CLASSES, max_steps=given["steps"], **means, **own)


class Vectors(Scene):
    """Records are vectors of any length and sign."""

    shape = (PIXELS,)

    def record(self, pixels: Tensor) -> Tensor:
        return LONG * (2 * pixels.view(self.shape) - 1)


class Adapting(Vectors):
    """task=adapt: feature vectors; no step is spent on the source alone."""

    def ease(self, method: Any) -> None:
        super().ease(method)
        method.source_epochs = 0

    def run(self, method: Any, records: Records, given: dict[str, Any]) -> Ledger:
        features = nn.Sequential(nn.Linear(PIXELS, 4), nn.ReLU())
        network = Network(features, nn.Linear(4, CLASSES), 4)
        source = torch.rand(2 * BATCH, PIXELS, generator=torch.Generator().manual_seed(1))
        means = {name: given[name] for name in ("budget", "ledger", "noise", "tape", "random")}
        problem = AdaptationProblem(
            source=source,
            labels=torch.arange(2 * BATCH) % CLASSES,
            target=records.x,
            classes=CLASSES,
            network=network,
            max_steps=given["steps"],
            **means,
        )
        with contextlib.suppress(Ended):
            for _, make in method.stages(problem):
                make().run()
        return problem.ledger


class Classifying(Scene):
    """task=classify: one linear layer."""

    def run(self, method: Any, records: Records, given: dict[str, Any]) -> Ledger:
        means = {name: given[name] for name in ("budget", "ledger", "noise", "tape", "random")}
        problem = Classification(
            images=records.x,
            labels=records.y,
            network=nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, CLASSES, bias=False)),
            accuracy=lambda: 0.0,
            batch=BATCH,
            epochs=given["steps"],
            learning_rate=0.01,
            noise_multiplier=1.0,
            max_steps=given["steps"],
            **means,
        )
        with contextlib.suppress(Ended):
            method.prepare(problem).run()
        return problem.ledger


class Overheard(Party):
    """A party whose gate has a tape."""

    def open_gate(self, *terms: Any, **more: Any) -> Gate:
        gate = super().open_gate(*terms, **more)
        gate.tape = self.tape
        return gate

    tape: Tape | None = None


class Measuring(Vectors):
    """task=distance: the records are those of the first party."""

    def run(self, method: Any, records: Records, given: dict[str, Any]) -> Ledger:
        first = Overheard("mu", records.x, labels=records.y, classes=CLASSES)
        first.tape = given["tape"]
        method.noise_seed = given["noise"].seed
        others = torch.rand(BATCH, PIXELS, generator=torch.Generator().manual_seed(1))
        second = Party("nu", others, labels=torch.arange(BATCH) % CLASSES, classes=CLASSES)
        with contextlib.suppress(Ended):
            method.estimate(first, second, given["random"], given["budget"])
        return first.ledger


SCENES: dict[str, Scene] = {
    "generate": Generating(),
    "adapt": Adapting(),
    "classify": Classifying(),
    "distance": Measuring(),
}


def scene_of(method: Any) -> Scene:
    """Where this method can be watched, by the task it says it is for."""
    name = getattr(method, "__name__", type(method).__name__)
    tasks = [task for task in getattr(method, "tasks", ()) if task in SCENES]
    if not tasks or not method.private:
        raise UsageError(f"loss: {name} cannot be audited; what can is a private method of {', '.join(SCENES)}")
    if not method.keeps_epsilon:
        raise UsageError(f"loss: {name} cannot be audited; it has no (ε, δ) guarantee, so there is no claim to test")
    return SCENES[tasks[0]]


def patterns() -> dict[str, Tensor]:
    """Pixels that are as different as [0, 1] allows, and some a little darker than what is generated."""
    black = torch.zeros(PIXELS)
    left = (torch.arange(PIXELS) % SIDE < SIDE // 2).float()
    return {"black": black, "white": 1 - black, "left": left, "right": 1 - left, "dim": black + 0.4}


def arbitrary(random: torch.Generator) -> Iterator[Tensor]:
    """Pixels without end: sparse and dense, faint and full, black and white or grey, constant."""
    while True:
        share, scale = torch.rand(2, generator=random).tolist()
        grey = torch.rand(PIXELS, generator=random)
        mask = torch.rand(PIXELS, generator=random) < share
        kind = int(torch.randint(4, (1,), generator=random))
        yield (mask.float(), grey * mask, grey * scale**4, torch.full((PIXELS,), scale))[kind]
