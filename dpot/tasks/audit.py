"""`task=audit`: is a claimed ε contradicted by what the method lets out?

Three looks at the method's own code, on synthetic records, in seconds on a CPU:

- one run with canaries (dpot/privacy/audit.py): a lower bound on ε that holds with the stated confidence and must not
  exceed the claim. Its positive control is the same run with the noise switched off, which must be caught; its null
  control guesses coins that the run never saw, and must find nothing.
- replay: the method on neighbouring data with the same noise. What the noise is enough for, by the ledger, against how
  far one record moves what it hides.
- the noise itself: what left the gate less what came to it is the noise that was added; is it what was stated?

An audit can refute an ε; it can never prove one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig
from rich.console import Console
from torch import Tensor

from dpot import config
from dpot.errors import PrivacyError, UsageError
from dpot.methods.generate.base import Method, Problem
from dpot.methods.tape import Ended, Tape
from dpot.privacy import audit
from dpot.privacy.budget import Budget
from dpot.privacy.events import DiscreteGaussian, Event, Gaussian, ProjectionGaussian, Sampled
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.ranges import Count, Probability
from dpot.record import provenance, write_atomically
from dpot.tasks.audited import CLASSES, SIDE, Audited, Canaries, Plain, watched
from dpot.tasks.base import Answer, Task

log = logging.getLogger("dpot")
NEARLY_ALL = 0.75  # of the largest bound that so many guesses can give
ROUNDING = 1e-3  # float32 sums of two runs that differ in one record


class Audit(Task):
    """Audit the method that `loss=` names at the budget of `privacy=`.

    canaries: null: as many as the method's score is made for. guesses: null: half of them.
    """

    def __init__(
        self,
        canaries: Count | None = None,
        guesses: Count | None = None,
        steps: Count = 20,
        confidence: Probability = 0.95,
        replays: Count = 6,
    ) -> None:
        self.canaries, self.guesses, self.steps = canaries, guesses, steps
        self.confidence, self.replays = confidence, replays

    def run(self, cfg: DictConfig) -> Answer:
        """One run, its controls, the replays; the answer says whether the claim stands."""
        kind = watched(config.instantiate(cfg.loss, "loss"))
        canaries = self.canaries or kind.canaries
        guesses = self.guesses or canaries // 2
        if guesses > canaries:
            raise UsageError(f"task.guesses={guesses}: there are only {canaries} canaries")
        budget: Budget = config.instantiate(cfg.privacy, "privacy")
        if budget.epsilon is None or budget.delta is None:
            raise UsageError("privacy.epsilon: an audit needs a claim to test")
        reach = audit.best_bound(canaries, guesses, budget.delta, self.confidence)
        if budget.epsilon >= reach:
            log.warning(
                "privacy.epsilon=%g: %d guesses can refute no more than %.3g, so this claim cannot be refuted; take "
                "a smaller epsilon or more canaries",
                budget.epsilon,
                guesses,
                reach,
            )
        data = self._audit(cfg, kind, budget, canaries, guesses)
        suffix = "-paper" if budget.mode == "paper" else ""
        path = Path(cfg.output_root) / "audit" / f"{data['method']}{suffix}.json"
        write_atomically(path, json.dumps(data | {"provenance": provenance(cfg)}, indent=1) + "\n")
        return Answer(data, lambda console: _show(console, data, path), exit_code=0 if data["passed"] else 1)

    def _audit(self, cfg: DictConfig, kind: Audited, budget: Budget, count: int, guesses: int) -> dict[str, Any]:
        assert budget.delta is not None
        seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(cfg.seed).spawn(5)]
        random, rng = torch.Generator().manual_seed(seeds[0]), np.random.default_rng(seeds[1])
        canaries = Canaries.draw(count, random)
        included = rng.random(count) < 0.5
        images = canaries.images(torch.from_numpy(included))
        bounds, scores, ledgers = {}, {}, {}
        for name, strength in (("claim", 1.0), ("noise off", 0.0)):
            tape, method, ledgers[name] = self._release(
                cfg, kind, budget, images, canaries.labels, seeds[2], Tape(strength), self.steps
            )

            def shadow(others: Tensor, tape: Tape = tape) -> Tape:
                # where records are sampled, which ones were drawn is as secret as the noise
                seed = seeds[4] if any(isinstance(one.event, Sampled) for one in tape.passed) else seeds[2]
                answers = Tape(answers=[one.noisy for one in tape.passed], ends=True)
                return self._release(cfg, kind, budget, others, canaries.labels, seed, answers, self.steps)[0]

            scores[name] = kind.score(method, tape, canaries, shadow).double().numpy()
            bounds[name] = audit.OneRun.of(scores[name], included, guesses, budget.delta, self.confidence)
        claimed = ledgers["claim"].epsilon()
        one, off = bounds["claim"], bounds["noise off"]
        null = audit.false_alarms(scores["claim"], guesses, budget.delta, self.confidence, rng)
        # Where the claim is beyond what any guesses could refute, noise off is caught if nearly all of them are right.
        reach = audit.best_bound(count, one.guesses, budget.delta, self.confidence)
        caught = off.lower_bound > min(claimed, NEARLY_ALL * reach)
        positive = {"lower_bound": off.lower_bound, "correct": off.correct, "reach": reach, "caught": caught}
        replay = self._replay(cfg, kind, budget, random, seeds[3])
        passed = one.lower_bound <= claimed and positive["caught"] and null["passed"] and replay["holds"]
        return {
            "method": [part for part in str(cfg.loss._target_).split(".")[:-1] if part != "method"][-1],
            "claimed_epsilon": claimed,
            "delta": budget.delta,
            "lower_bound": one.lower_bound,
            "confidence": self.confidence,
            "canaries": one.canaries,
            "guesses": one.guesses,
            "correct": one.correct,
            "refuted": one.lower_bound > claimed,
            "controls": {"positive": positive, "null": null, "sensitivity": replay},
            "unsound": ledgers["claim"].unsound,
            "passed": bool(passed),
        }

    def _release(
        self,
        cfg: DictConfig,
        kind: Audited,
        budget: Budget,
        images: Tensor,
        labels: Tensor,
        seed: int,
        tape: Tape,
        steps: int,
    ) -> tuple[Tape, Method, Ledger]:
        """Run the configured method once: what passed its gate, the method as it was run, what the ledger holds."""
        method: Method = config.instantiate(cfg.loss, "loss")
        kind.ease(method)
        torch.manual_seed(cfg.seed)
        problem = Problem(
            images=images,
            labels=labels,
            classes=CLASSES,
            generator=Plain(kind.pixel_range),
            budget=budget,
            ledger=Ledger.of(budget),
            noise=NoiseSource(seed),
            tape=tape,
            random=torch.Generator().manual_seed(cfg.seed),
            max_steps=steps,
        )
        with contextlib.suppress(Ended):
            method.fit(problem)
        if not tape.passed:
            raise PrivacyError(
                f"loss: {type(method).__name__} let nothing out through the gate: what did it learn from?"
            )
        return tape, method, problem.ledger

    def _replay(
        self, cfg: DictConfig, kind: Audited, budget: Budget, random: torch.Generator, seed: int
    ) -> dict[str, Any]:
        """One step on neighbouring data, several times: the largest move of each release, and its noise."""
        size = kind.population(config.instantiate(cfg.loss, "loss"))
        labels = torch.arange(size) % CLASSES
        moves: dict[int, float] = {}
        noises: dict[int, Tensor] = {}
        events: list[Event] = []
        for trial in range(self.replays):
            images = (torch.rand(size, 1, SIDE, SIDE, generator=random) < 0.3).float()
            other = images.clone()
            position = int(torch.randint(size, (1,), generator=random))
            images[position], other[position] = _opposites(trial, random)
            one, _, _ = self._release(cfg, kind, budget, images, labels, seed + trial, Tape(), 1)
            same = Tape(answers=[passed.noisy for passed in one.passed], ends=True)
            two, _, _ = self._release(cfg, kind, budget, other, labels, seed + trial, same, 1)
            events = [passed.event for passed in one.passed]
            for i, (here, there) in enumerate(zip(one.passed, two.passed, strict=True)):
                apart = here.in_units(here.bounded.double() - there.bounded.double())
                moved = float(apart.norm()) / kind.steps_apart(here.event)
                moves[i] = max(moves.get(i, 0.0), moved)
                drawn = here.in_units(here.noisy.double() - here.value.double())
                noises[i] = torch.cat([noises[i], drawn]) if i in noises else drawn
        return _judged(events, moves, noises)


def _opposites(trial: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two records that are far apart: black and white, two halves, or noise and its negative."""
    black = torch.zeros(1, SIDE, SIDE)
    half = black.clone()
    half[:, : SIDE // 2] = 1
    noise = (torch.rand(1, SIDE, SIDE, generator=random) < 0.5).float()
    return ((black, 1 - black), (half, 1 - half), (noise, 1 - noise))[trial % 3]


def _judged(events: list[Event], moves: dict[int, float], noises: dict[int, Tensor]) -> dict[str, Any]:
    """For each release: the move its noise is enough for (by its event), and the largest move found.

    The noise is measured on n numbers, to one part in √(2n); five such parts are left as room.
    """
    releases = []
    for i, event in enumerate(events):
        noise, multiplier = noises[i], _multiplier(event)
        std = float(noise.square().mean().sqrt())
        room = 5 / math.sqrt(2 * noise.numel())
        declared = std / multiplier
        releases.append(
            {
                "noise": std,
                "noise_multiplier": multiplier,
                "declared": declared,
                "actual": moves[i],
                "holds": moves[i] <= declared * (1 + room) + ROUNDING * declared,
            }
        )
    worst = max(releases, key=lambda r: float(r["actual"]) / float(r["declared"]))
    summary = {"declared": worst["declared"], "actual": worst["actual"], "holds": all(r["holds"] for r in releases)}
    return summary | {"releases": releases}


def _multiplier(event: Event) -> float:
    """Noise over sensitivity, as the ledger entered it."""
    inside = event.event if isinstance(event, Sampled) else event
    if isinstance(inside, Gaussian):
        return inside.noise_multiplier
    if isinstance(inside, ProjectionGaussian):
        return inside.sigma / inside.diameter
    if isinstance(inside, DiscreteGaussian):
        return inside.sigma / (inside.sensitivity * math.sqrt(inside.coordinates))
    raise UsageError(f"an audit cannot judge the noise of {type(inside).__name__}")


def _show(console: Console, data: dict[str, Any], path: Path) -> None:
    positive, null, moved = (data["controls"][name] for name in ("positive", "null", "sensitivity"))
    claim = f"({data['claimed_epsilon']:.4g}, {data['delta']:g})"
    lines = [
        f"{data['method']}: claimed {claim}; ε ≥ {data['lower_bound']:.3g} with confidence {data['confidence']:g} "
        f"({data['correct']} of {data['guesses']} guesses right): {'REFUTED' if data['refuted'] else 'not refuted'}",
        f"noise off: ε ≥ {positive['lower_bound']:.3g}, {'caught' if positive['caught'] else 'NOT CAUGHT'}",
        f"unseen coins: {100 * null['false_alarms']:.1f}% false alarms, {'' if null['passed'] else 'NOT '}as stated",
        f"sensitivity: the noise is enough for {moved['declared']:.4g}, found {moved['actual']:.4g}: "
        f"{'holds' if moved['holds'] else 'VIOLATED'}",
        *(f"unsound: {reason}" for reason in data["unsound"]),
        f"wrote {path}",
    ]
    for line in lines:
        console.print(line, highlight=False)
