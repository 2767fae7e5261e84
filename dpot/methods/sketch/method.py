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
exactly to the one that the budget allows. Neighbouring data sets differ in one record, its label included.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from dpot.errors import UsageError
from dpot.methods.generate.base import Method, Problem
from dpot.methods.sketch import rules
from dpot.methods.sketch.counters import records_of, total_of
from dpot.methods.sketch.directions import KINDS, draw_directions, is_table
from dpot.methods.sketch.features import Layout, LearnedMap, LinearMap
from dpot.methods.sketch.file import CERTAIN, Release, Round, load_map
from dpot.methods.sketch.fit import (
    CUMULATED,
    Target,
    class_weights,
    expectations,
    fit_step,
    learn_map,
    styles_for,
)
from dpot.methods.sketch.release import MEAN_SHARE, Sketcher, class_counts, read_moments
from dpot.methods.sketch.rules import Plan
from dpot.methods.sketch.textures import Pooled, TextureMap, places_of
from dpot.models.generator import synthesize
from dpot.privacy import calibration
from dpot.privacy.events import Gaussian
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
    weighs cumulated bins against plain ones.
    """

    tasks = ("generate", "synthesize")
    afterwards = (
        *("steps", "second_steps", "step_factor", "batch", "cumulated", "learning_rate", "second_learning_rate", "ema"),
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
    ) -> None:
        self.rounds, self.lines, self.knots, self.planes = rounds, lines, knots, planes
        self.second_share, self.steps, self.second_steps = second_share, steps, second_steps
        self.textures, self.batch = textures, batch
        self.directions, self.hard, self.step_factor, self.cumulated = directions, hard, step_factor, cumulated
        self.learning_rate, self.second_learning_rate, self.ema = learning_rate, second_learning_rate, ema
        self.release: Release | None = None

    def fit(self, problem: Problem) -> Outcome:
        """Release, fit, release again where the classifiers look, fit again."""
        multiplier = calibration.find_sigma(Gaussian, 1, problem.budget) * ROUNDING
        plan = self.plan(problem, 1 / multiplier)
        _refuse_few(problem, plan.count_deviation(1 / multiplier))
        sketcher = Sketcher(total_of(problem), problem.generator.shape, problem.classes, plan, multiplier, problem)
        sketcher.check(self._layouts(problem, plan))
        if self.directions not in KINDS:
            problem.ledger.note_uncovered(
                f"the directions in {Path(self.directions).name}: they must not have been made from these records"
            )
        first = self._first_round(problem, sketcher, plan)
        counts = class_counts(first.noisy, first.layout, records_of(problem))
        rounds = [first, *self._texture_round(problem, sketcher, plan)]
        targets = [_target(one, counts, self.cumulated) for one in rounds]
        weights = class_weights(counts)
        outcome = self._train(problem, targets, weights, plan, 1)
        for number in range(2, 2 + plan.learned_rounds):
            learned = self._learned_round(problem, sketcher, plan, number)
            rounds.append(learned)
            targets.append(_target(learned, counts))
            outcome = _joined(outcome, self._train(problem, targets, weights, plan, number))
        self.release = Release(
            shape=problem.generator.shape,
            classes=problem.classes,
            records=records_of(problem),
            counts=counts,
            rounds=rounds,
            plan=plan,
            deviation=plan.count_deviation(1 / multiplier),
        )
        problem.ledger.note_uncovered(
            "the rules that set the sketch's parameters were found on MNIST's training images (where lines look: on "
            "Fashion-MNIST's too; their colours: on images of CIFAR-10), outside this budget"
        )
        return outcome

    def refit(self, problem: Problem, release: Release) -> Outcome:
        """Fit problem.generator, a fresh one, to all rounds of a release: no records, nothing to charge."""
        plan = release.plan.adapted(release.classes, problem.device.type == "cuda")
        plan = replace(plan, steps=problem.steps(self.steps or plan.steps))
        targets = [_target(one, release.counts, self.cumulated) for one in release.rounds]
        return self._train(problem, targets, class_weights(release.counts), plan, 1)

    def plan(self, problem: Problem, mu: float) -> Plan:
        """The plan by rule, with whatever was given replaced."""
        table = is_table(problem.generator.shape)
        cuda = problem.device.type == "cuda"
        made = rules.plan(records_of(problem), problem.classes, mu, not table, self.rounds, cuda)
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
        textures = TEXTURE_SHARE if self.textures and places_of(problem.generator.shape) else 0.0
        made = replace(made, layout=layout, second_share=second, texture_share=textures)
        if made.first_share <= 0:
            raise UsageError(f"loss.second_share={second:g}: nothing is left for the first round; it must be smaller")
        per_class = max(2, self.batch // problem.classes // 2 * 2) if self.batch else made.per_class
        return replace(made, steps=steps, second_steps=second_steps, per_class=per_class)

    def _first_round(self, problem: Problem, sketcher: Sketcher, plan: Plan) -> Round:
        for_norm = sketcher.open(plan.norm_share, "histogram of lengths")
        for_mean = sketcher.open(plan.moment_share * MEAN_SHARE, "mean")
        for_square = sketcher.open(plan.moment_share * (1 - MEAN_SHARE), "second moments")
        for_bins = sketcher.open(plan.first_share, "bins of the first round")

        def make() -> dict[str, Tensor]:
            bound = sketcher.norms(for_norm)
            sums = sketcher.moments(bound, for_mean, for_square)
            moments = read_moments(sums, sketcher.shape, bound, for_square.noise_multiplier)
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
        if plan.texture_share:
            places = places_of(problem.generator.shape)
            found.append((plan.texture_share, Pooled(self.textures, TEXTURE_KNOTS, places=places)))
        return found

    def _texture_round(self, problem: Problem, sketcher: Sketcher, plan: Plan) -> list[Round]:
        if not plan.texture_share:
            return []
        release = sketcher.open(plan.texture_share, "textures")
        facts = {"shape": list(sketcher.shape), "knots": TEXTURE_KNOTS, "grid": sketcher.grid}
        layout = Pooled(self.textures, TEXTURE_KNOTS, places=places_of(sketcher.shape))

        def make() -> dict[str, Tensor]:
            made = TextureMap.draw(self.textures, sketcher.shape, TEXTURE_KNOTS, sketcher.grid, problem.random)
            return made.tensors() | {"noisy": sketcher.bins(made, layout, release)}

        kept = problem.keep_release("sketch-textures", [release], make, facts)
        noisy = kept.pop("noisy")
        return [Round("textures", load_map("textures", kept, facts), layout, noisy, facts)]

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

    def _train(self, problem: Problem, targets: list[Target], weights: Tensor, plan: Plan, number: int) -> Outcome:
        model = problem.generator
        steps = plan.steps if number == 1 else plan.second_steps
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


def _refuse_few(problem: Problem, deviation: float) -> None:
    """Too few records for the noise: known from public numbers, before anything is spent."""
    records, classes = records_of(problem), problem.classes
    if records < CERTAIN * deviation * classes:
        raise UsageError(
            f"{records} records in {classes} class{'es' if classes > 1 else ''} at epsilon={problem.budget.epsilon:g}: "
            f"the noise hides {CERTAIN * deviation:.3g} records of a class; give more records, fewer classes, "
            "no labels, or raise privacy.epsilon"
        )


def _target(one: Round, counts: Tensor, cumulated: float = CUMULATED) -> Target:
    """A round as the fit sees it: cumulated bins count on lines only, textures by their share of the budget."""
    return Target(
        one.record_map,
        one.layout,
        expectations(one.noisy, counts, one.layout),
        cumulated if one.kind == "linear" else 0.0,
        TEXTURE_WEIGHT if one.kind == "textures" else 1.0,
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
