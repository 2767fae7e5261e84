"""How an audit watches each method: where its releases pass by, and how a canary is recognised in them.

The method's own code runs, unchanged; a `Tape` stands where its releases leave it. To put a method under audit, derive
a class from `Audited`, say in `watch` which releases to keep and in `score` how strongly they speak for each canary,
and enter it in AUDITED. The score may use everything that was released or is public; it must not see the coins.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from scipy.linalg import hadamard
from torch import Tensor, nn

from dpot.errors import UsageError
from dpot.methods.generate import dp_merf, dp_sinkhorn, dp_swd
from dpot.methods.generate.base import Method, Problem
from dpot.methods.sketch import file as sketch_file
from dpot.methods.sketch import fit as sketch_fit
from dpot.methods.sketch import method as sketch
from dpot.methods.sketch import release as sketch_release
from dpot.models.generator import Generator
from dpot.privacy.noise import NoiseSource
from dpot.transport.mmd import fourier_features

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


@dataclass
class Tape:
    """What a run let out, in order, noise included; `rows` are hidden quantities, for replays only."""

    strength: float = 1.0  # of the noise: 1 as the method asks for it, 0 off
    releases: list[Tensor] = field(default_factory=list)
    stated: list[float] = field(default_factory=list)  # the noise there is: who guesses knows if it is off
    public: list[dict[str, Any]] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)
    answers: list[Tensor] = field(default_factory=list)  # of a method whose later questions depend on earlier answers
    history: list[Tensor] | None = None  # answers of another run, to be given here: then both are asked the same


class TapedNoise(NoiseSource):
    """The method's noise, seeded and of the tape's strength; what it is added to is kept on the tape."""

    def __init__(self, seed: int, tape: Tape) -> None:
        super().__init__(seed)
        self.tape = tape

    def normal(self, shape: Sequence[int], std: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        return super().normal(shape, std, dtype) * self.tape.strength

    def normal_like(self, tensor: Tensor, std: float = 1.0) -> Tensor:
        noise = super().normal_like(tensor, std)
        self.tape.releases.append((tensor + noise).detach())
        self.tape.stated.append(std * (self.tape.strength or 0.01))
        return noise

    def discrete_gaussian(self, shape: Sequence[int], sigma: float) -> Tensor:
        return super().discrete_gaussian(shape, sigma) if self.tape.strength else torch.zeros(tuple(shape)).long()


class TapedProblem(Problem):
    """A problem whose one-shot releases are kept on a tape."""

    tape: Tape

    def keep_release(self, name: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        kept = super().keep_release(name, make)
        self.tape.public.append(dict(kept))
        return kept


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


class Audited(ABC):
    """One method under audit."""

    pixel_range: tuple[float, float] = (0.0, 1.0)
    shows_noise = False  # whether released - hidden is the noise itself; else a second run without noise is made

    def population(self, method: Any) -> int:
        """How many records a replay takes: one more of each class than a batch, so that nearly all are drawn."""
        return int(method.batch) + CLASSES

    def watch(self, tape: Tape) -> contextlib.AbstractContextManager[Any]:
        """Stand where the releases pass by; by default the tape hears of them through the noise."""
        return contextlib.nullcontext()

    def released(self, tape: Tape) -> list[Tensor]:
        """What was let out, noise included, in the order of the ledger's entries (of a step method: step by step)."""
        return tape.releases

    def hidden(self, tape: Tape) -> list[Tensor]:
        """What a record moves, in the unit the ledger's noise is stated for; with frozen noise, the releases do."""
        return self.released(tape)

    @abstractmethod
    def score(self, method: Any, tape: Tape, canaries: Canaries) -> Tensor:
        """For each canary, how strongly the releases speak for it being in the data."""


@contextlib.contextmanager
def replaced(module: ModuleType, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """A module's function, wrapped while the context lasts."""
    original = getattr(module, name)
    setattr(module, name, wrap(original))
    try:
        yield
    finally:
        setattr(module, name, original)


class Projections(Audited):
    """DP-SWD: each step lets out its directions and the noisy projections of its rows."""

    def watch(self, tape: Tape) -> contextlib.AbstractContextManager[Any]:
        def wrap(project: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
            def watched(x: Tensor, directions: Tensor) -> Tensor:
                if not x.requires_grad:  # private rows; those of the generator need a gradient
                    tape.rows.append(x.clone())
                    tape.public.append({"directions": directions})
                return project(x, directions)

            return watched

        return replaced(dp_swd, "project", wrap)

    def hidden(self, tape: Tape) -> list[Tensor]:
        """The rows before they are projected: it is there that the accounting takes a record to move by at most 1."""
        return tape.rows

    def score(self, method: Any, tape: Tape, canaries: Canaries) -> Tensor:
        """Σ over steps and rows of P(this row is the present image) - P(it is the absent one), given the release."""
        m = len(canaries.labels)
        both = torch.cat([canaries.present, canaries.absent])
        twice = canaries.labels.repeat(2)
        rows = method.vectors(both, twice, CLASSES)
        scores = torch.zeros(2 * m)
        for step, release, sigma in zip(tape.public, tape.releases, tape.stated, strict=True):
            seen = rows @ step["directions"].T  # (2m, k)
            for group in range(release.shape[1]):
                mine = (twice == group).nonzero().squeeze(1) if release.shape[1] > 1 else torch.arange(2 * m)
                logits = (release[:, group].T @ seen[mine].T - seen[mine].square().sum(1) / 2) / sigma**2
                scores[mine] += logits.softmax(1).sum(0)
        return scores[:m] - scores[m:]


class Embedding(Audited):
    """DP-MERF: one noisy mean embedding."""

    def released(self, tape: Tape) -> list[Tensor]:
        return [tape.public[0]["embedding"]]

    def score(self, method: Any, tape: Tape, canaries: Canaries) -> Tensor:
        """⟨release, φ(present) - φ(absent)⟩ in the column of the canary's class."""
        (kept,) = tape.public
        features = [fourier_features(x.flatten(1), kept["frequencies"]) for x in (canaries.present, canaries.absent)]
        return ((features[0] - features[1]) * kept["embedding"].T[canaries.labels]).sum(1)


class Gradients(Audited):
    """DP-Sinkhorn: each step lets out the clipped, noisy gradient at the generated images."""

    pixel_range = (-1.0, 1.0)

    def watch(self, tape: Tape) -> contextlib.AbstractContextManager[Any]:
        def wrap(sanitise: Callable[..., Tensor]) -> Callable[..., Tensor]:
            def watched(images: Tensor, clip: float, std: float, generator: Any, per: str, noised: int) -> Tensor:
                images = images.view_as(images)
                images.register_hook(lambda gradient: tape.releases.append(gradient[:noised].clone()))
                return sanitise(images, clip, std * tape.strength, generator, per, noised)

            return watched

        return replaced(dp_sinkhorn, "sanitise_images", wrap)

    def score(self, method: Any, tape: Tape, canaries: Canaries) -> Tensor:
        """The gradient points away from the data: -⟨its sum over images and steps, present - absent⟩."""
        if not tape.releases:
            raise UsageError("loss.perturb=parameters: the audit watches image gradients; use loss.perturb=images")
        total = torch.stack([release.sum(0) for release in tape.releases]).sum(0)
        return -((canaries.present - canaries.absent) * total).flatten(1).sum(1)


class Counts(Audited):
    """The sliced sketch: several releases of whole numbers, each asked after seeing the ones before.

    Everything is put in units of the noise, so that releases which are charged as one can be joined.
    """

    shows_noise = True

    def population(self, method: Any) -> int:
        return 20 * CLASSES

    @contextlib.contextmanager
    def watch(self, tape: Tape) -> Iterator[None]:
        charged: list[float] = []

        def wrap(release: Callable[..., Tensor]) -> Callable[..., Tensor]:
            def watched(counts: Tensor, sensitivity: float, multiplier: float, noise: NoiseSource) -> Tensor:
                known = tape.history
                answer = release(counts, sensitivity, multiplier, noise) if known is None else known[len(tape.answers)]
                tape.answers.append(answer)
                sigma = sensitivity * multiplier
                parts = counts.double().flatten() / sigma, answer.double().flatten() / sigma
                if charged and charged[-1] == multiplier:  # a second part of the same release
                    tape.rows[-1] = torch.cat([tape.rows[-1], parts[0]])
                    tape.releases[-1] = torch.cat([tape.releases[-1], parts[1]])
                else:
                    charged.append(multiplier)
                    tape.rows.append(parts[0])
                    tape.releases.append(parts[1])
                    tape.stated.append(sigma)
                return answer

            return watched

        def fewer(synthesize: Callable[..., Any]) -> Callable[..., Any]:
            return lambda model, count, *others: synthesize(model, min(count, 300), *others)

        # Which networks the second round looks through is public: barely trained ones are audited faster.
        with (
            replaced(sketch_release, "noisy_counts", wrap),
            replaced(sketch_fit, "NETWORK_STEPS_ON_CPU", lambda steps: 2),
            replaced(sketch, "synthesize", fewer),
        ):
            yield

    def hidden(self, tape: Tape) -> list[Tensor]:
        return tape.rows

    def score(self, method: Any, tape: Tape, canaries: Canaries) -> Tensor:
        """Ridge regression of each class's bins on what its canaries would add: the most probable coins, roughly."""
        rounds = method.release.rounds
        sigmas = tape.stated[-len(rounds) :]
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
