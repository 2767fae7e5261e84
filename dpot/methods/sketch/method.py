"""The sliced sketch: one private look at the records' one-dimensional distributions, then any amount of training.

DP-SWD perturbs every projected record at every step, DP-Sinkhorn pays for every gradient. A sliced loss only needs the
distributions of the projections, and these can be released once:

1. Length, mean and covariance of the records in a public low-frequency subspace: principal directions, and for every
   direction a centre and a scale.
2. First round of bins: soft histograms per class along public and principal directions, and over planes of two.
3. A generator is fitted to the noisy bins. Small classifiers are trained on what it generates.
4. Second round of bins: soft histograms along directions of the classifiers' hidden units.
5. The generator is fitted to both rounds.

Only 1, 2 and 4 touch the records, and they are Gaussian mechanisms on whole numbers whose noise multipliers compose
exactly to the one that the budget allows. Neighbouring data sets differ in one record, its label included: it is
another one, or (neighbours=add-remove) it is there or not. In the second case the number of records is released first,
with noise, and takes the place of the exact one from there on; the others need 1/√2 of the noise, or half of it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from dpot.disk import write_atomically
from dpot.errors import UsageError
from dpot.methods.generate.base import Method, Problem
from dpot.methods.sketch import rules
from dpot.methods.sketch.counters import records_of, total_of
from dpot.methods.sketch.directions import KINDS, draw_directions, is_table
from dpot.methods.sketch.features import Layout, LearnedMap, LinearMap
from dpot.methods.sketch.file import CERTAIN, Release, Round, load_map
from dpot.methods.sketch.fit import (
    CUMULATED,
    LEAST_TIMED,
    SECONDS_ON_CPU,
    Target,
    class_weights,
    expectations,
    fit_step,
    learn_map,
    steps_in,
    styles_for,
)
from dpot.methods.sketch.release import MEAN_SHARE, Sketcher, class_counts, read_moments, release_number
from dpot.methods.sketch.rules import Plan
from dpot.methods.sketch.textures import SQUEEZE, STRIDE, Look, TextureMap
from dpot.models.generator import synthesize
from dpot.privacy import calibration
from dpot.privacy.events import Adjacency, Gaussian
from dpot.ranges import Count, Fraction, NonNegative, NonNegativeInt, Positive, Range
from dpot.training.ema import EMA
from dpot.training.engine import Outcome
from dpot.training.schedules import Cosine

ROUNDING = 1 + 1e-9  # shares are split in double precision: a hair more noise keeps their sum within the budget
TEXTURE_KNOTS, TEXTURE_SHARE, TEXTURE_WEIGHT = 12, 0.05, 0.1  # weighed by their share against the first round's
SYNTHETIC, SYNTHETIC_ON_CPU = 60_000, 10_000  # records that the second round's networks learn from


class Sketch(Method):
    """Release and fit. Everything is set by rule (rules.py) from the records' number, classes and shape and ε.

    What is given here replaces a rule, for ablations: lines, knots, planes, shares, steps, batch, rounds, textures
    (textures.py), which directions (directions.py), hard bins in the place of soft ones; cumulated
    weighs cumulated bins against plain ones. photographs: their settings (rules.py), null: in colour and on a GPU.
    """

    tasks = ("generate", "synthesize")
    records = 0  # how many there are: exactly where that is public, else as released
    doubt = 0.0  # the deviation of the noise in that
    afterwards = (
        *("steps", "second_steps", "step_factor", "batch", "cumulated", "learning_rate", "second_learning_rate", "ema"),
        "texture_weight",
    )
    # Which networks the second round looks through is public. An audit, which only tests the noise, trains them barely.
    network_steps: int | None = None
    synthetic: int | None = None  # records that the networks learn from

    def __init__(
        self,
        rounds: Count = 2,
        lines: Count | None = None,
        knots: Annotated[int, Range(at_least=2)] | None = None,
        planes: NonNegativeInt | None = None,
        textures: NonNegativeInt = 0,
        texture_share: Fraction = TEXTURE_SHARE,
        texture_weight: NonNegative = TEXTURE_WEIGHT,
        texture_scales: Count = 1,
        texture_cells: Count = 1,
        texture_pairs: NonNegativeInt = 0,
        squeeze: Positive = SQUEEZE,
        directions: str = "mixed",
        hard: bool = False,
        second_share: Fraction | None = None,
        steps: Count | None = None,
        second_steps: Count | None = None,
        step_factor: Positive = 1.0,
        batch: Count | None = None,
        cumulated: NonNegative = CUMULATED,
        learning_rate: Positive = 2e-3,
        second_learning_rate: Positive = 1e-3,
        ema: Fraction = 0.999,
        neighbours: Literal["replace-one", "add-remove"] = "replace-one",
        photographs: bool | None = None,
    ) -> None:
        self.neighbours = Adjacency(neighbours)
        self.rounds, self.lines, self.knots, self.planes = rounds, lines, knots, planes
        self.second_share, self.steps, self.second_steps = second_share, steps, second_steps
        self.textures, self.batch = textures, batch
        self.texture_share, self.texture_weight, self.texture_cells = texture_share, texture_weight, texture_cells
        self.texture_scales, self.texture_pairs, self.squeeze = texture_scales, texture_pairs, squeeze
        self.directions, self.hard, self.step_factor, self.cumulated = directions, hard, step_factor, cumulated
        self.learning_rate, self.second_learning_rate, self.ema = learning_rate, second_learning_rate, ema
        self.photographs = photographs
        self.release: Release | None = None

    def fit(self, problem: Problem) -> Outcome:
        """Release, fit, release again where the classifiers look, fit again."""
        multiplier = calibration.find_sigma(Gaussian, 1, problem.budget) * ROUNDING
        self._count_records(problem, multiplier)
        if self._sees_photographs(problem):
            signal = rules.signal_of(self.records, problem.classes, 1 / multiplier, self._moved)
            self._set(rules.PHOTOGRAPHS | {"textures": rules.textures(signal)})
        plan = self.plan(problem, 1 / multiplier)
        deviation = plan.count_deviation(1 / multiplier)
        _refuse_few(problem, self.records, deviation)
        sketcher = Sketcher(total_of(problem), problem.generator.shape, problem.classes, plan, multiplier, problem)
        sketcher.check(self._layouts(problem, plan))
        if self.directions not in KINDS:
            problem.ledger.note_uncovered(
                f"the directions in {Path(self.directions).name}: they must not have been made from these records"
            )
        first = self._first_round(problem, sketcher, plan)
        counts = class_counts(first.noisy, first.layout, self.records, (self.doubt / deviation) ** 2)
        rounds = [first, *self._texture_rounds(problem, sketcher, plan)]
        targets = [self._target(one, counts) for one in rounds]
        weights = class_weights(counts)
        outcome = self._train(problem, targets, weights, plan, 1)
        for number in range(2, 2 + plan.learned_rounds):
            learned = self._learned_round(problem, sketcher, plan, number)
            rounds.append(learned)
            targets.append(self._target(learned, counts))
            outcome = _joined(outcome, self._train(problem, targets, weights, plan, number))
        self.release = Release(
            shape=problem.generator.shape,
            classes=problem.classes,
            records=self.records,
            counts=counts,
            rounds=rounds,
            plan=plan,
            deviation=deviation,
        )
        problem.ledger.note_uncovered(
            "the rules that set the sketch's parameters were found on MNIST's training images (where lines look: on "
            "Fashion-MNIST's too; all that is for colours: on images of CIFAR-10), outside this budget"
        )
        return outcome

    def refit(self, problem: Problem, release: Release) -> Outcome:
        """Fit problem.generator, a fresh one, to all rounds of a release: no records, nothing to charge."""
        colour = release.shape[0] > 1 and not is_table(release.shape)
        if any(one.kind == "textures" for one in release.rounds) and self._sees_photographs(problem):
            self._set({name: rules.PHOTOGRAPHS[name] for name in ("cumulated", "texture_weight")})
        plan = release.plan.adapted(release.classes, problem.device.type == "cuda", colour)
        plan = replace(plan, steps=problem.steps(self.steps or plan.steps))
        targets = [self._target(one, release.counts) for one in release.rounds]
        return self._train(problem, targets, class_weights(release.counts), plan, 1)

    def plan(self, problem: Problem, mu: float) -> Plan:
        """The plan by rule, with whatever was given replaced."""
        table = is_table(problem.generator.shape)
        cuda = problem.device.type == "cuda"
        colour = problem.generator.shape[0] > 1 and not table
        made = rules.plan(self.records, problem.classes, mu, not table, self.rounds, cuda, self._moved, colour)
        layout = replace(
            made.layout,
            lines=self.lines or made.layout.lines,
            knots=self.knots or made.layout.knots,
            planes=made.layout.planes if self.planes is None else self.planes,
            hard=self.hard,
        )
        second = made.second_share if self.second_share is None or not made.second_share else self.second_share
        steps = self.steps or round(self.step_factor * made.steps)
        second_steps = self.second_steps or round(self.step_factor * made.second_steps)
        if problem.max_steps and problem.max_steps < steps + second_steps:  # a small profile: both fits shortened alike
            part = problem.max_steps / (steps + second_steps)
            steps, second_steps = max(1, round(part * steps)), max(1, round(part * second_steps))
        textures = self.texture_share if self._looks(problem.generator.shape) else 0.0
        made = replace(made, layout=layout, second_share=second, texture_share=textures)
        if made.first_share <= 0:
            raise UsageError(f"loss.second_share={second:g}: nothing is left for the first round; it must be smaller")
        per_class = max(2, self.batch // problem.classes // 2 * 2) if self.batch else made.per_class
        return replace(made, steps=steps, second_steps=second_steps, per_class=per_class)

    @property
    def _moved(self) -> int:
        return 2 if self.neighbours is Adjacency.REPLACE_ONE else 1

    def _sees_photographs(self, problem: Problem) -> bool:
        """Whether their settings are taken: on a GPU for images in colour, unless textures or directions are given."""
        if self.photographs is not None:
            return self.photographs
        shape, given = problem.generator.shape, self.textures > 0 or self.directions != "mixed"
        return problem.device.type == "cuda" and shape[0] > 1 and not is_table(shape) and not given

    def _set(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def _count_records(self, problem: Problem, multiplier: float) -> None:
        """Their number: public where one is replaced, else released with noise before all the rest."""
        if self.neighbours is Adjacency.REPLACE_ONE:
            self.records, self.doubt = records_of(problem), 0.0
            return
        share = rules.COUNT_SHARE
        self.records, self.doubt = release_number(problem, records_of(problem), multiplier / math.sqrt(share))
        problem.ledger.note_uncovered(
            "the exact number of records, where it is written beside the release: δ is compared with it, and the "
            "record of a run names it. What is released and fitted knows the noisy number only"
        )

    def _first_round(self, problem: Problem, sketcher: Sketcher, plan: Plan) -> Round:
        for_norm = sketcher.open(plan.norm_share, "histogram of lengths")
        for_mean = sketcher.open(plan.moment_share * MEAN_SHARE, "mean")
        for_square = sketcher.open(plan.moment_share * (1 - MEAN_SHARE), "second moments")
        for_bins = sketcher.open(plan.first_share, "bins of the first round")

        def make() -> dict[str, Tensor]:
            bound = sketcher.norms(for_norm)
            sums = sketcher.moments(bound, for_mean, for_square)
            told = None if self.neighbours is Adjacency.REPLACE_ONE else self.records
            moments = read_moments(sums, sketcher.shape, bound, for_square.noise_multiplier, told)
            directions = draw_directions(
                sketcher.shape, plan.layout, moments, plan.low_noise, problem.random, self.directions
            )
            channels = 1 if is_table(sketcher.shape) else sketcher.shape[0]
            record_map = LinearMap.of(directions, *moments.place(directions, channels), plan.layout, sketcher.grid)
            return record_map.tensors() | {"noisy": sketcher.bins(record_map, plan.layout, for_bins)}

        facts = {"grid": sketcher.grid}
        kept = problem.keep_release("sketch-first", [for_norm, for_mean, for_square, for_bins], make, facts)
        noisy = kept.pop("noisy")
        return Round("linear", load_map("linear", kept, facts), plan.layout, noisy, facts)

    def _layouts(self, problem: Problem, plan: Plan) -> list[tuple[float, Layout]]:
        """Everything that will be counted in bins, with its share of the budget."""
        found = [(plan.first_share, plan.layout)]
        if plan.learned_rounds:
            found.append((plan.second_share / plan.learned_rounds, plan.second_layout))
        looks, shape = self._looks(problem.generator.shape), problem.generator.shape
        return found + [
            (plan.texture_share / len(looks), look.layout(self.textures, TEXTURE_KNOTS, shape)) for look in looks
        ]

    def _looks(self, shape: tuple[int, int, int]) -> list[Look]:
        """Textures at the image's size, at half of it, … as far as the image is large enough."""
        scales = [2**i for i in range(self.texture_scales if self.textures else 0)]
        looks = [Look(scale, self.texture_cells, self.squeeze, self.texture_pairs, STRIDE) for scale in scales]
        return [look for look in looks if all(look.grid(shape))]

    def _texture_rounds(self, problem: Problem, sketcher: Sketcher, plan: Plan) -> list[Round]:
        looks = self._looks(sketcher.shape)
        return [self._texture_round(problem, sketcher, plan.texture_share / len(looks), look) for look in looks]

    def _texture_round(self, problem: Problem, sketcher: Sketcher, share: float, look: Look) -> Round:
        name = "textures" if look.scale == 1 else f"textures-{look.scale}"
        release = sketcher.open(share, name)
        facts = {"shape": list(sketcher.shape), "knots": TEXTURE_KNOTS, "grid": sketcher.grid, "look": asdict(look)}
        layout = look.layout(self.textures, TEXTURE_KNOTS, sketcher.shape)

        def make() -> dict[str, Tensor]:
            made = TextureMap.draw(self.textures, sketcher.shape, TEXTURE_KNOTS, sketcher.grid, problem.random, look)
            return made.tensors() | {"noisy": sketcher.bins(made, layout, release)}

        kept = problem.keep_release(f"sketch-{name}", [release], make, facts)
        noisy = kept.pop("noisy")
        return Round("textures", load_map("textures", kept, facts), layout, noisy, facts)

    def _learned_round(self, problem: Problem, sketcher: Sketcher, plan: Plan, number: int) -> Round:
        share = plan.second_share / plan.learned_rounds
        release = sketcher.open(share, f"bins of round {number}, learned features")
        facts: dict[str, Any] = {
            "networks": list(styles_for(sketcher.shape, problem.device)),
            "shape": list(sketcher.shape),
            "classes": problem.classes,
        }

        def make() -> dict[str, Tensor]:
            count = self.synthetic or (SYNTHETIC if problem.device.type == "cuda" else SYNTHETIC_ON_CPU)
            images, labels = synthesize(problem.generator, count, problem.random, problem.device)
            record_map: LearnedMap = learn_map(
                images.flatten(1),
                labels,
                sketcher.shape,
                problem.classes,
                plan.second_layout,
                problem.random,
                problem.progress,
                self.network_steps,
            )
            return record_map.tensors() | {"noisy": sketcher.bins(record_map, plan.second_layout, release)}

        kept = problem.keep_release(f"sketch-round-{number}", [release], make, facts)
        noisy = kept.pop("noisy")
        return Round("learned", load_map("learned", kept, facts), plan.second_layout, noisy, facts)

    def _in_time(self, problem: Problem, targets: list[Target], weights: Tensor, plan: Plan, number: int) -> int:
        """The plan's steps; of photographs on a CPU only as many as minutes allow, and the same after a kill."""
        steps = plan.steps if number == 1 else plan.second_steps
        shape, given = problem.generator.shape, self.steps if number == 1 else self.second_steps
        if problem.device.type == "cuda" or shape[0] == 1 or is_table(shape) or given or steps <= LEAST_TIMED:
            return steps
        told = problem.checkpoints / f"steps-{number}.txt" if problem.checkpoints else None
        if told and told.exists():
            return int(told.read_text())
        seconds = SECONDS_ON_CPU[min(number, 2) - 1] * self.step_factor
        steps = min(steps, steps_in(seconds, targets, problem.generator, weights, plan.per_class, problem.random))
        if told:
            write_atomically(told, str(steps))
        return steps

    def _target(self, one: Round, counts: Tensor) -> Target:
        """A round as the fit sees it: cumulated bins count on the first round only, textures have their weight."""
        cumulated = self.cumulated if one.kind == "linear" else 0.0
        weight = self.texture_weight if one.kind == "textures" else 1.0
        return Target(one.record_map, one.layout, expectations(one.noisy, counts, one.layout), cumulated, weight)

    def _train(self, problem: Problem, targets: list[Target], weights: Tensor, plan: Plan, number: int) -> Outcome:
        model = problem.generator
        steps = self._in_time(problem, targets, weights, plan, number)
        rate = self.learning_rate if number == 1 else self.second_learning_rate
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        step = fit_step(targets, model, optimizer, weights, plan.per_class, problem.random)
        average = EMA(model, self.ema)
        engine = problem.engine(
            step, steps=steps, optimizer=optimizer, ema=average, schedule=Cosine(steps), part=f"round-{number}"
        )
        outcome = engine.run()
        problem.settle(plan.per_class)
        return outcome


def _refuse_few(problem: Problem, records: int, deviation: float) -> None:
    """Too few records for the noise: known from public numbers before anything is spent, or from the released one."""
    classes = problem.classes
    if records < CERTAIN * deviation * classes:
        raise UsageError(
            f"{records} records in {classes} class{'es' if classes > 1 else ''} at epsilon={problem.budget.epsilon:g}: "
            f"the noise hides {CERTAIN * deviation:.3g} records of a class; give more records, fewer classes, "
            "no labels, or raise privacy.epsilon"
        )


def _joined(first: Outcome, second: Outcome) -> Outcome:
    """Two trainings as one: steps and seconds added, histories one after the other."""
    history = first.history + [point | {"step": point["step"] + first.steps} for point in second.history]
    return Outcome(
        steps=first.steps + second.steps,
        seconds=first.seconds + second.seconds,
        mode=second.mode,
        reason=second.reason,
        history=history,
        resumed_at=first.resumed_at if second.resumed_at is None else first.steps + second.resumed_at,
        earlier=first.earlier + [part | {"until": part["until"] + first.steps} for part in second.earlier],
    )
