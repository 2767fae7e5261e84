"""The sliced sketch's settings, by rule: a user gives records and a budget, and tunes nothing.

The one number that decides is the *signal*: records per class times μ, the number of noise deviations (at sensitivity
1) that a class's count is worth; μ = 1/noise multiplier. The constants were found on MNIST at ε = 10 and ε = 1, by
accuracy and FID on its training images, and are applied unchanged to everything else. docs/sketch.md says what
Fashion-MNIST and CIFAR-10 had a say in, and results/notes/sketch_trials.md what was tried. Choosing the constants spent
nothing of the budget of other data, and is not covered by MNIST's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from dpot.methods.sketch.features import Layout

MOST_LINES, LEAST_LINES = 4000, 48
MOST_KNOTS, LEAST_KNOTS = 24, 4
LOW_NOISE_KNOTS = 16  # from here on the noise is low: planes, fine directions
COUNT_PER_BIN = 3  # an average bin's count, in noise deviations: decides the number of knots
BATCH, BATCH_ON_CPU = 1280, 64  # generated records per step, all classes together
STEPS, MOST_STEPS, LEAST_STEPS = (44, 38), (5000, 3000), 500  # of the two fits: by √signal, within bounds
STEPS_ON_CPU = (4000, 2000)  # many small steps: minutes for 28×28
COLOUR_STEPS_ON_CPU = (2000, 1000)  # of a larger generator; at most, for the time has a limit too (fit.py)
NORM_SHARE = 0.01
# Photographs, by trials on CIFAR-10's training images: directions, weights and shares that suit textures
PHOTOGRAPHS = {"directions": "gabor", "cumulated": 0.0, "texture_scales": 3, "squeeze": 0.05}
PHOTOGRAPHS |= {"texture_share": 0.15, "texture_weight": 1.0}
MOST_TEXTURES, LEAST_TEXTURES = 256, 16
COUNT_SHARE = 0.002  # the number of records, to 7 of a thousand at ε = 10 and 83 of them at ε = 1, by one deviation


@dataclass(frozen=True)
class Plan:
    """Shares of the budget (of μ²), what is released, and how long it is fitted."""

    norm_share: float
    moment_share: float
    second_share: float
    layout: Layout
    second_layout: Layout
    steps: int
    second_steps: int
    per_class: int
    low_noise: bool
    signal: float
    texture_share: float = 0.0
    learned_rounds: int = 1  # after the first; second_share is theirs together
    count_share: float = 0.0  # of the number of records, which is not public where neighbours differ in it
    moved: int = 2  # records that come or go between neighbours: 2 where one is replaced, 1 where one is more or less

    @property
    def first_share(self) -> float:
        """What the first round of bins gets: the rest."""
        return 1 - self.count_share - self.norm_share - self.moment_share - self.second_share - self.texture_share

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON-able data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """The inverse of to_dict."""
        layouts = {name: Layout(**data[name]) for name in ("layout", "second_layout")}
        return cls(**{**data, **layouts})

    def adapted(self, classes: int, cuda: bool, colour: bool = False) -> Plan:
        """The same plan with the fits as long as this device allows."""
        steps, second_steps, per_class = _fit_sizes(classes, self.signal, cuda, colour)
        return replace(self, steps=steps, second_steps=second_steps, per_class=per_class)

    def count_deviation(self, mu: float) -> float:
        """Noise of a class's count as the first round's bins give it, in records: known before anything is released.

        k lines and planes measure the same number, with noise √(2k)/(μ·√share) in every bin; √k for one record more.
        """
        noise = math.sqrt(self.moved * self.layout.pieces / self.first_share) / mu
        return noise * math.sqrt(self.layout.bins) / self.layout.pieces


def plan(
    records: int,
    classes: int,
    mu: float,
    images: bool,
    rounds: int = 2,
    cuda: bool = True,
    moved: int = 2,
    colour: bool = False,
) -> Plan:
    """The settings for so many records in so many classes at a total μ.

    Lines: 0.6 per unit of signal, at most 4000. Knots: so many that an average bin holds 3 noise deviations. Where
    that makes 16 or more, the noise is low and some planes are added. Steps: by the root of the signal, for a longer
    fit learns more of the noise. The second round, on features learned from the first round's synthetic records, needs
    labels to learn from.

    moved=1, neighbours differ in one record more or less: √2 times the signal, and a share for the number of records.
    """
    signal = signal_of(records, classes, mu, moved)
    count_share = COUNT_SHARE if moved == 1 else 0.0
    lines = round(min(MOST_LINES, max(LEAST_LINES, 0.6 * signal)))
    second_share = 0.4 if rounds > 1 and classes > 1 else 0.0
    rough = _knots(lines, signal * math.sqrt(0.85 - second_share))
    low_noise = rough >= LOW_NOISE_KNOTS
    moment_share = 0.09 if low_noise else 0.15
    share = 1 - count_share - NORM_SHARE - moment_share - second_share
    planes = round(0.4 * lines) if low_noise and images else 0
    layout = Layout(lines, _knots(lines + planes, signal * math.sqrt(share)), planes)
    second = max(LEAST_LINES, round(0.3 * lines))
    learned_rounds = rounds - 1 if second_share else 0
    second_layout = Layout(
        second, _knots(second, signal * math.sqrt(second_share / learned_rounds if learned_rounds else 1))
    )
    steps, second_steps, per_class = _fit_sizes(classes, signal, cuda, colour)
    return Plan(
        norm_share=NORM_SHARE,
        moment_share=moment_share,
        second_share=second_share,
        layout=layout,
        second_layout=second_layout,
        steps=steps,
        second_steps=second_steps,
        per_class=per_class,
        low_noise=low_noise,
        signal=signal,
        learned_rounds=learned_rounds,
        count_share=count_share,
        moved=moved,
    )


def signal_of(records: int, classes: int, mu: float, moved: int) -> float:
    """Records per class, in noise deviations of a count."""
    return mu * math.sqrt(2 / moved) * records / classes


def textures(signal: float) -> int:
    """How many filters look at photographs, at every scale."""
    return max(LEAST_TEXTURES, min(MOST_TEXTURES, round(signal / 16)))


def _fit_sizes(classes: int, signal: float, cuda: bool, colour: bool = False) -> tuple[int, int, int]:
    """(steps of the first fit, of the second, generated records per class and step)."""
    if cuda:
        per_class = max(16, min(512, BATCH // classes))
        wanted = (round(factor * math.sqrt(signal)) for factor in STEPS)
        first, second = (max(LEAST_STEPS, min(most, n)) for most, n in zip(MOST_STEPS, wanted, strict=True))
    else:
        per_class, (first, second) = max(4, BATCH_ON_CPU // classes), COLOUR_STEPS_ON_CPU if colour else STEPS_ON_CPU
    return first, second, per_class // 2 * 2


def _knots(pieces: int, signal: float) -> int:
    """1/m of a class in a bin, over its noise √(2k)/signal, is COUNT_PER_BIN at m = signal/(3·√(2k))."""
    return max(LEAST_KNOTS, min(MOST_KNOTS, round(signal / (COUNT_PER_BIN * math.sqrt(2 * pieces)))))
