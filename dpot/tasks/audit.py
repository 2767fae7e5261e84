"""`task=audit`: is a claimed ε contradicted by what the method lets out?

Three looks at the method's own code, on synthetic records, in seconds on a CPU:

- one run with canaries (dpot/privacy/audit.py): a lower bound on ε that holds with the stated confidence and must not
  exceed the claim. Its positive control is the same run with the noise switched off, which must be caught; its null
  control guesses coins that the run never saw, and must find nothing.
- replay: the method on neighbouring data with the same noise. What the noise is enough for, by the ledger, against how
  far one record moves what it hides.
- the noise itself: the same run with and without it gives the noise that was added; is it what was stated?

An audit can refute an ε; it can never prove one.
"""

from __future__ import annotations

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
from dpot.errors import UsageError
from dpot.methods.generate.base import Method
from dpot.privacy import audit
from dpot.privacy.budget import Budget
from dpot.privacy.events import DiscreteGaussian, Event, Gaussian, ProjectionGaussian, Sampled
from dpot.privacy.ledger import Ledger
from dpot.ranges import Count, Probability
from dpot.record import provenance, write_atomically
from dpot.tasks.audited import AUDITED, CLASSES, SIDE, Audited, Canaries, Plain, Tape, TapedNoise, TapedProblem
from dpot.tasks.base import Answer, Task

log = logging.getLogger("dpot")
NEARLY_ALL = 0.75  # of the largest bound that so many guesses can give
ROUNDING = 1e-3  # float32 sums of two runs that differ in one record


class Audit(Task):
    """Audit the method that `loss=` names at the budget of `privacy=`."""

    def __init__(
        self,
        canaries: Count = 400,
        guesses: Count = 200,
        steps: Count = 20,
        confidence: Probability = 0.95,
        replays: Count = 6,
    ) -> None:
        if guesses > canaries:
            raise UsageError(f"task.guesses={guesses}: there are only {canaries} canaries")
        self.canaries, self.guesses, self.steps = canaries, guesses, steps
        self.confidence, self.replays = confidence, replays

    def run(self, cfg: DictConfig) -> Answer:
        """One run, its controls, the replays; the answer says whether the claim stands."""
        method: Method = config.instantiate(cfg.loss, "loss")
        watched = AUDITED.get(type(method))
        if watched is None:
            known = ", ".join(sorted(kind.__module__.rpartition(".")[2] for kind in AUDITED))
            raise UsageError(f"loss: {type(method).__name__} cannot be audited; those that can: {known}")
        budget: Budget = config.instantiate(cfg.privacy, "privacy")
        if budget.epsilon is None or budget.delta is None:
            raise UsageError("privacy.epsilon: an audit needs a claim to test")
        reach = audit.best_bound(self.canaries, self.guesses, budget.delta, self.confidence)
        if budget.epsilon >= reach:
            log.warning(
                "privacy.epsilon=%g: %d guesses can refute no more than %.3g, so this claim cannot be refuted; take "
                "a smaller epsilon or more canaries",
                budget.epsilon,
                self.guesses,
                reach,
            )
        data = self._audit(cfg, watched, budget)
        suffix = "-paper" if budget.mode == "paper" else ""
        path = Path(cfg.output_root) / "audit" / f"{data['method']}{suffix}.json"
        write_atomically(path, json.dumps(data | {"provenance": provenance(cfg)}, indent=1) + "\n")
        return Answer(data, lambda console: _show(console, data, path), exit_code=0 if data["passed"] else 1)

    def _audit(self, cfg: DictConfig, watched: Audited, budget: Budget) -> dict[str, Any]:
        assert budget.delta is not None
        seeds = [int(s.generate_state(1)[0]) for s in np.random.SeedSequence(cfg.seed).spawn(4)]
        random, rng = torch.Generator().manual_seed(seeds[0]), np.random.default_rng(seeds[1])
        canaries = Canaries.draw(self.canaries, random)
        included = rng.random(self.canaries) < 0.5
        images = canaries.images(torch.from_numpy(included))
        bounds, scores, ledgers = {}, {}, {}
        for name, strength in (("claim", 1.0), ("noise off", 0.0)):
            tape, ledgers[name], method = self._release(
                cfg, watched, budget, images, canaries.labels, seeds[2], strength, self.steps
            )
            scores[name] = watched.score(method, tape, canaries).double().numpy()
            bounds[name] = audit.OneRun.of(scores[name], included, self.guesses, budget.delta, self.confidence)
        claimed = ledgers["claim"].epsilon()
        one, off = bounds["claim"], bounds["noise off"]
        null = audit.false_alarms(scores["claim"], self.guesses, budget.delta, self.confidence, rng)
        # Where the claim is beyond what any guesses could refute, noise off is caught if nearly all of them are right.
        reach = audit.best_bound(self.canaries, one.guesses, budget.delta, self.confidence)
        caught = off.lower_bound > min(claimed, NEARLY_ALL * reach)
        positive = {"lower_bound": off.lower_bound, "correct": off.correct, "reach": reach, "caught": caught}
        replay = self._replay(cfg, watched, budget, random, seeds[3])
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
        watched: Audited,
        budget: Budget,
        images: Tensor,
        labels: Tensor,
        seed: int,
        strength: float,
        steps: int,
        history: list[Tensor] | None = None,
    ) -> tuple[Tape, Ledger, Method]:
        """Run the configured method once; what passed by, what the ledger holds, and the method as it was run."""
        method: Method = config.instantiate(cfg.loss, "loss")
        tape, ledger = Tape(strength, history=history), Ledger.of(budget)
        torch.manual_seed(cfg.seed)
        problem = TapedProblem(
            images=images,
            labels=labels,
            classes=CLASSES,
            generator=Plain(watched.pixel_range),
            budget=budget,
            ledger=ledger,
            noise=TapedNoise(seed, tape),
            random=torch.Generator().manual_seed(cfg.seed),
            max_steps=steps,
        )
        problem.tape = tape
        with watched.watch(tape):
            method.fit(problem)
        return tape, ledger, method

    def _replay(
        self, cfg: DictConfig, watched: Audited, budget: Budget, random: torch.Generator, seed: int
    ) -> dict[str, Any]:
        """One step on neighbouring data, several times: the largest move of each release, and its noise."""
        size = watched.population(config.instantiate(cfg.loss, "loss"))
        labels = torch.arange(size) % CLASSES
        moves: dict[int, float] = {}
        noises: dict[int, Tensor] = {}
        events: list[Event] = []
        for trial in range(self.replays):
            images = (torch.rand(size, 1, SIDE, SIDE, generator=random) < 0.3).float()
            other = images.clone()
            position = int(torch.randint(size, (1,), generator=random))
            images[position], other[position] = _opposites(trial, random)

            def replayed(
                x: Tensor, strength: float = 1.0, history: list[Tensor] | None = None, trial: int = trial
            ) -> Any:
                return self._release(cfg, watched, budget, x, labels, seed + trial, strength, 1, history)

            one, ledger, _ = replayed(images)
            two, _, _ = replayed(other, history=one.answers or None)
            events = [entry.event for entry in ledger.entries]
            hidden = watched.hidden(one), watched.hidden(two)
            without = hidden[0] if watched.shows_noise else watched.released(replayed(images, strength=0.0)[0])
            for i in range(len(events)):
                moved = float((hidden[0][i].double() - hidden[1][i].double()).norm())
                moves[i] = max(moves.get(i, 0.0), moved)
                drawn = (watched.released(one)[i].double() - without[i].double()).flatten()
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
    """For each release: the move its noise is enough for (by the ledger's event), and the largest move found.

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
