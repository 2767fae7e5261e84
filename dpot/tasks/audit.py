"""`task=audit`: is a claimed ε contradicted by what a method lets out?

A method of any task runs on a handful of records (scenes.py), and its releases are repeated many thousand times on two
neighbouring data sets that the adversary has chosen (rehearsal.py). How well the two are told apart is a lower bound on
ε that holds with the stated confidence (dpot/privacy/audit.py). Beside it, looks at the parts: does a record move the
release by more than was stated, is the noise as large as was stated, are records drawn as seldom as was stated, does
nothing but the batch decide what comes to the gate, are directions of projections unknown beforehand.

Every audit is itself tested: the same with a planted fault must be caught, the same without any difference between the
two data sets must find nothing. An audit can refute an ε; it can never prove one.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from rich.console import Console

from dpot import config
from dpot.disk import write_atomically
from dpot.errors import UsageError
from dpot.fingerprint import audited_code
from dpot.methods.tape import Tape
from dpot.privacy import audit
from dpot.privacy.audit import Floats
from dpot.privacy.budget import Budget
from dpot.privacy.events import Adjacency, Sampled
from dpot.privacy.ledger import Ledger
from dpot.ranges import Count, Probability
from dpot.record import provenance
from dpot.reporting.audits import in_words
from dpot.tasks.base import Answer, Task
from dpot.tasks.rehearsal import (
    CANARY,
    Batch,
    Cast,
    Neighbours,
    Rehearsal,
    always_drawn,
    drawn_twice,
    known_directions,
    measured_noise,
    with_it,
)
from dpot.tasks.scenes import CLASSES, Records, Scene, arbitrary, patterns, scene_of

log = logging.getLogger("dpot")
FEW, MANY = 4, 4096  # records; as few as the method takes
ROUNDING = 1e-3  # float32 sums of two runs that differ in one record
ERRORS = 5  # standard errors that a measured number may be off


class Audit(Task):
    """Audit the method that `loss=` names at the budget of `privacy=`.

    repetitions: of all releases of the method, on each of the two data sets. steps: releases of a method that looks at
    private records in every step; its noise is calibrated to these. pairs: neighbours that the adversary tries.
    """

    def __init__(
        self,
        repetitions: Count = 100_000,
        steps: Count = 2,
        pairs: Count = 24,
        confidence: Probability = 0.95,
        nulls: Count = 40,
    ) -> None:
        self.repetitions, self.steps, self.pairs = repetitions, steps, pairs
        self.confidence, self.nulls = confidence, nulls
        if repetitions < 8 * audit.FEWEST:
            raise UsageError(f"task.repetitions={repetitions}: take {8 * audit.FEWEST} or more, to count with")

    def run(self, cfg: DictConfig) -> Answer:
        """The search for neighbours, the repetitions, the controls; the answer says whether the claim stands."""
        began, code = time.perf_counter(), audited_code(str(cfg.loss._target_))
        scene = scene_of(config.locate(str(cfg.loss._target_), "loss"))
        budget: Budget = config.instantiate(cfg.privacy, "privacy")
        if budget.epsilon is None or budget.delta is None:
            raise UsageError("privacy.epsilon: an audit needs a claim to test")
        data = self._audit(cfg, scene, budget)
        data |= {"seconds": round(time.perf_counter() - began, 1), "code": code}
        path = Path(cfg.output_root) / "audit" / f"{data['name']}.json"
        write_atomically(path, json.dumps(data | {"provenance": provenance(cfg)}, indent=1) + "\n")

        def show(console: Console) -> None:
            for line in (*in_words(data), f"wrote {path}"):
                console.print(line, highlight=False)

        return Answer(data, show, exit_code=0 if data["passed"] else 1)

    def _audit(self, cfg: DictConfig, scene: Scene, budget: Budget) -> dict[str, Any]:
        assert budget.delta is not None
        delta, rng = budget.delta, np.random.default_rng(cfg.seed)
        cast = self._cast(cfg, scene, budget)
        claimed = cast.ledger.epsilon()
        tried = self._tried(cast, scene, torch.Generator().manual_seed(cfg.seed))
        best = max(tried, key=Rehearsal.signal)
        batches = cast.draw(self.repetitions)  # the same on both sides: each is counted by itself
        without, present = best.scores(False, batches), best.scores(True, batches)
        told = audit.tell_apart(without, present, delta, self.confidence)
        perfect = audit.perfect_scores(cast.events, self.repetitions, rng)
        reach = audit.tell_apart(*perfect, delta, self.confidence)
        parts = self._parts(cast, tried, best, batches)
        null = audit.false_alarms(without, delta, self.confidence, rng, self.nulls)
        faults = self._planted(cast, best, batches, without, parts, claimed, delta)
        caught = all(fault["caught_by"] or fault["harmless"] for fault in faults.values())
        sound = all(part["holds"] for part in parts.values())
        return {
            **_names(str(cfg.loss._target_), budget),
            "claimed_epsilon": claimed,
            "delta": delta,
            "confidence": self.confidence,
            "lower_bound": told.epsilon,
            "if_gaussian": told.gaussian,
            "reach": {"lower_bound": reach.epsilon, "if_gaussian": reach.gaussian},
            "told": told.to_dict(),
            "repetitions": self.repetitions,
            "releases": len(cast.events),
            "events": [event.to_dict() for event in dict.fromkeys(cast.events)],
            "adjacency": str(cast.relation),
            "records": len(cast.records.y),
            "neighbours": best.pair.name,
            "refuted": told.epsilon > claimed,
            "parts": parts,
            "controls": {"planted": faults, "null": null},
            "unsound": cast.ledger.unsound,
            "passed": bool(told.epsilon <= claimed and sound and caught and null["passed"]),
        }

    def _cast(self, cfg: DictConfig, scene: Scene, budget: Budget) -> Cast:
        """One run on as few records as the method takes."""

        def perform(records: Records, tape: Tape, noise: int) -> Ledger:
            return scene.perform(
                lambda: config.instantiate(cfg.loss, "loss"), records, budget, cfg.seed, noise, tape, self.steps
            )

        size = FEW
        while True:
            black = scene.record(patterns()["black"])
            records = Records(black.expand(size, *scene.shape).clone(), torch.arange(size) % CLASSES)
            try:
                return Cast(perform, _seeds(cfg.seed), records)
            except UsageError:
                if size >= MANY:
                    raise
                size *= 4

    def _tried(self, cast: Cast, scene: Scene, random: torch.Generator) -> list[Rehearsal]:
        """Neighbours that may be told apart well: patterns as different as can be, then arbitrary ones."""
        pairs = neighbours(cast.relation, cast.sampler is not None, cast.records, scene, random)
        return [Rehearsal(cast, pair) for pair in itertools.islice(pairs, self.pairs)]

    def _parts(
        self, cast: Cast, tried: list[Rehearsal], best: Rehearsal, batches: list[list[Batch]]
    ) -> dict[str, dict[str, Any]]:
        """Sensitivity, noise, sampler and directions, each against what was stated."""
        moves = np.max([one.largest_moves() for one in tried], axis=0)
        parts = {"sensitivity": _sensitivity(float(moves.max()), [float(m) for m in moves])}
        parts["noise"] = _noise(best)
        drawn = {event: i for i, event in reversed(list(enumerate(cast.events))) if isinstance(event, Sampled)}
        for event, first in itertools.islice(reversed(drawn.items()), 1):
            parts["sampler"] = _frequency(cast.shares[first:], event.rate)  # type: ignore[attr-defined]
        two = [cast.values(best.pair.present, best.some()[0]) for _ in range(2)]
        same = all(torch.equal(a.bounded, b.bounded) for a, b in zip(*two, strict=True))
        parts["batch"] = {"holds": same}  # nothing but the batch that the sampler was told decides what is released
        if "directions" in two[0][0].public:
            parts["directions"] = _directions(*(values[0].public for values in two))
        return parts

    def _planted(
        self,
        cast: Cast,
        best: Rehearsal,
        batches: list[list[Batch]],
        without: Floats,
        parts: dict[str, dict[str, Any]],
        claimed: float,
        delta: float,
    ) -> dict[str, dict[str, Any]]:
        """The same audit of what is wrong on purpose.

        A record that is counted twice and moves no release by more than was stated breaks nothing: where the whole
        release is clipped, as DP-Sinkhorn's, that fault is harmless.
        """

        def fault(bound: audit.Told | None, part: str, found: dict[str, Any]) -> dict[str, Any]:
            ways = ["the bound"] if bound is not None and bound.epsilon > claimed else []
            ways += [] if found["holds"] else [part]
            kept = {} if bound is None else {"lower_bound": bound.epsilon, "if_gaussian": bound.gaussian}
            return kept | {"caught_by": ways, "harmless": part == "sensitivity" and not ways}

        def told(present: Floats, against: Floats = without) -> audit.Told:
            return audit.tell_apart(against, present, delta, self.confidence)

        half = Rehearsal(cast, best.pair, strength=0.5)
        found = told(half.scores(True, batches), half.scores(False, batches))
        faults = {"noise at half size": fault(found, "noise", _noise(half))}
        if (sampler := cast.sampler) is None:
            twice = Rehearsal(cast, _twice(best.pair))
            found, moved = told(twice.scores(True, batches), twice.scores(False, batches)), max(twice.largest_moves())
        else:
            found = told(best.scores(True, drawn_twice(batches, sampler)))
            moved = max(best.largest_moves(partial(with_it, sampler=sampler)))
        faults["record counted twice"] = fault(found, "sensitivity", _sensitivity(moved, []))
        if sampler is not None and "sampler" in parts:
            drawn = always_drawn(batches, sampler)
            counted = [Counter(release) for release in drawn]
            faults["record always drawn"] = fault(
                told(best.scores(True, drawn)), "sampler", _frequency(counted, parts["sampler"]["stated"])
            )
        if "directions" in parts:
            public = cast.passed[0].public
            faults["directions known beforehand"] = fault(None, "directions", _directions(public, public))
        return faults


def neighbours(
    relation: Adjacency, sampled: bool, records: Records, scene: Scene, random: torch.Generator
) -> Iterator[Neighbours]:
    """Pairs of data sets without end, as the relation has them: all other records are alike, or arbitrary."""
    known = {name: scene.record(pixels) for name, pixels in patterns().items()}
    any_record = map(scene.record, arbitrary(random))
    chosen = [(a, b, c) for c in ("right", "black", "white", "dim") for a, b in (("left", "right"), ("white", "black"))]
    named = ((f"{a} for {b} among {c}", (known[a], known[b], known[c])) for a, b, c in chosen)
    drawn = (
        (f"arbitrary records {i}", (next(any_record), next(any_record), next(any_record))) for i in itertools.count()
    )
    for name, (one, other, rest) in itertools.chain(named, drawn):
        base = Records(rest.expand_as(records.x).clone(), records.y)
        for label in (None, CLASSES - 1) if relation is Adjacency.REPLACE_ONE else (None,):
            present = base.but(CANARY, one)
            if relation is not Adjacency.ADD_REMOVE:
                called = name if label is None else f"{name}, with another label"
                yield Neighbours(present, base.but(CANARY, other, label), called)
            else:
                yield Neighbours(present, None if sampled else present.without(CANARY), name)


def _twice(pair: Neighbours) -> Neighbours:
    """The record in question in two places, of the same label."""
    again = CANARY + CLASSES
    assert pair.other is not None  # no sampler
    copied = pair.present.but(again, pair.present.x[CANARY])
    if len(pair.other.y) < len(pair.present.y):
        return replace(pair, present=copied, other=copied.without(again).without(CANARY))
    return replace(pair, present=copied, other=pair.other.but(again, pair.other.x[CANARY], int(pair.other.y[CANARY])))


def _sensitivity(actual: float, releases: list[float]) -> dict[str, Any]:
    """How far one record moves a release, over what was stated."""
    return {"stated": 1.0, "actual": actual, "releases": releases, "holds": actual <= 1 + ROUNDING}


def _noise(one: Rehearsal) -> dict[str, Any]:
    """For the release whose noise is least: its noise over the stated sensitivity, measured, against the ledger's."""
    (batch, _), *_ = one.cast.shares[0].most_common(1)
    found = []
    for passed in one.values(False, batch):
        measured, numbers = measured_noise(passed)
        found.append((measured / audit.noise_over_sensitivity(passed.event), numbers, passed))
    ratio, numbers, passed = min(found, key=lambda f: f[0])
    stated = audit.noise_over_sensitivity(passed.event)
    room = ERRORS / math.sqrt(2 * numbers)
    return {"stated": stated, "measured": ratio * stated, "holds": ratio >= 1 - room}


def _frequency(shares: list[Counter[Batch]], rate: float) -> dict[str, Any]:
    """How often the record in question was drawn."""
    total = sum(counts.total() for counts in shares)
    found = sum(n for counts in shares for batch, n in counts.items() if CANARY in batch) / total
    room = ERRORS * math.sqrt(rate * (1 - rate) / total)
    return {"stated": rate, "measured": found, "holds": found <= rate + room}


def _directions(first: Any, second: Any) -> dict[str, Any]:
    """Whether directions are unknown beforehand to somebody who knows the public seed."""
    return {"holds": not known_directions(first, second)}


def _names(target: str, budget: Budget) -> dict[str, str]:
    """The method, and the name of its file: dp_merf, adapt-dp_swd, dp_swd-paper."""
    *room, method = [part for part in target.split(".")[2:-1] if part != "method"]
    prefix = "" if room in ([], ["generate"]) else f"{room[0]}-"
    return {"method": method, "name": f"{prefix}{method}{'-paper' if budget.mode == 'paper' else ''}", "target": target}


def _seeds(seed: int) -> Iterator[int]:
    """Seeds of noise, never twice the same."""
    root = np.random.SeedSequence(seed)
    while True:
        yield int(root.spawn(1)[0].generate_state(1, np.uint64)[0] >> np.uint64(1))
