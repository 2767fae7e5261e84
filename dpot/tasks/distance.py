"""`task=distance`: a distance between two parties by one method, beside the direct one, with what it tells whom.

dpot task=distance dataset=mnist loss=triangle_wad privacy=none
dpot task=distance dataset=mnist loss=sketch privacy=eps1 task.size=5000
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from dpot import config
from dpot.data.base import Dataset, Pair
from dpot.errors import UsageError
from dpot.methods.distance.direct_wad import DirectWad
from dpot.methods.distance.parties import Distance as Method
from dpot.methods.distance.parties import Estimate, Party
from dpot.methods.distance.sketch import SketchDistance
from dpot.papers.triangle_wad.clouds import Side, points_allowed, two_sides
from dpot.privacy.budget import Budget
from dpot.ranges import Count, Positive
from dpot.record import Record
from dpot.tasks.training import Findings, Training, TrainingTask, note_form, show_headline
from dpot.transport.exact import exact_plan
from dpot.transport.otdd import Statistics

MOST_DIRECT = 2000  # points; exact transport of more takes minutes, and a sketch does not need it


class Distance(TrainingTask[Training]):
    """Data → two parties → a protocol → distance, bracket, messages, statement.

    noise_rows and noise_std make noisy copies of the first party's data (rows replaced by noise) and measure these too:
    the sets D1, D2 of TriangleWad's Table 1. noise_scale multiplies all noise_std: what is printed there fits less
    noise than is stated (docs/private_distances.md). draws repeats everything with other records.
    """

    name = "distance"

    def __init__(
        self,
        size: Count = 500,
        second_size: Count | None = None,
        statistics: Statistics = "none",
        noise_rows: Sequence[Count] = (),
        noise_std: Sequence[Positive] = (),
        noise_scale: Positive = 1.0,
        draws: Count = 1,
    ) -> None:
        if len(noise_rows) != len(noise_std):
            raise UsageError("task.noise_rows and task.noise_std: give one standard deviation for each number of rows")
        self.size, self.second_size, self.statistics, self.draws = size, second_size, statistics, draws
        self.noise = [(rows, noise_scale * std) for rows, std in zip(noise_rows, noise_std, strict=True)]

    def check(self, cfg: DictConfig) -> None:
        """And a private method releases single records, once."""
        super().check(cfg)
        if config.locate(str(cfg.loss._target_), "loss").private:  # type: ignore[attr-defined]
            self._check_one_release_of_single_records()

    def build(self, one: Training) -> None:
        """Nothing is trained."""

    def _check_one_release_of_single_records(self) -> None:
        """What the ε of a private method rests on."""
        if self.statistics != "none":
            raise UsageError(
                f"task.statistics={self.statistics}: every record carries means that each record moves, so no ε holds; "
                "use none, and loss.label_scale for labels"
            )
        if self.draws > 1 or self.noise:
            raise UsageError(
                "task.draws, task.noise_rows: each repetition releases the same data again and the ε is that of one; "
                "leave them out"
            )

    def judge(self, one: Training) -> Findings:
        """The distance by the method and the direct one, on every set and draw."""
        cfg, profile, method, budget = one.cfg, one.profile, one.method, one.budget
        direct = DirectWad(getattr(method, "p", 2.0))
        exact_plan(torch.zeros(2, 1), torch.ones(2, 1))  # POT takes seconds to import: not in anybody's time
        draws = self.draws if profile.name == "paper" else 1
        values: dict[str, list[float]] = {}
        last: Estimate | None = None
        parties: tuple[Party, Party] | None = None
        for draw in range(draws):
            random = torch.Generator().manual_seed(1000 * cfg.seed + draw)
            size, other = (points_allowed(s, profile) for s in (self.size, self.second_size or self.size))
            first, second = two_sides(one.data, size, other, random)
            spent = {"method": 0.0, "direct": 0.0}
            gaps = []
            for name, side in self._sets(first, random):
                found, seconds, estimate, pair = self._timed(method, side, second, random, budget, one)
                spent["method"] += seconds
                sliced = isinstance(method, SketchDistance)
                truth = method.exact(*pair) if isinstance(method, SketchDistance) else math.nan
                if not sliced or max(len(side.x), len(second.x)) <= MOST_DIRECT:
                    wasserstein, seconds, _, _ = self._timed(direct, side, second, random, Budget(None))
                    spent["direct"] += seconds
                    truth = truth if sliced else wasserstein  # a sliced distance is judged by the sliced one
                gaps.append(abs(found - truth))
                for key, value in ((name, found), (f"direct_{name}", truth)):
                    values.setdefault(key, []).append(value)
                if name == "distance":
                    last, parties = estimate, pair
            values.setdefault("gap", []).append(statistics.fmean(gaps))
            if spent["direct"]:
                values.setdefault("time_ratio", []).append(spent["method"] / spent["direct"])
        assert last is not None
        assert parties is not None
        metrics: dict[str, Any] = {name: _spread(found) for name, found in values.items()}
        metrics |= {"p": last.p, "truth": last.truth, "low": last.low, "high": last.high, "rate": last.rate}
        metrics |= {"points": [len(first.x), len(second.x)], "details": last.details, "messages": last.log.describe()}
        for party in parties if method.private else ():
            if isinstance(one.data, Dataset):
                note_form(party.ledger, one.data)
            party.ledger.note_uncovered("the exact distance and the gap in this record: made without noise, as a judge")
        statements = [party.statement() for party in parties]
        privacy = {
            "headline": _headline(method, statements[0].headline()),
            "parties": {p.name: s.epsilon for p, s in zip(parties, statements, strict=True)},
        }
        return Findings(metrics, statements[0], len(first.x), privacy=privacy)

    def show(self, console: Console, record: Record) -> None:
        """Distances and bracket, and the last of the messages."""
        title = f"{record.provenance['data']['name']}, {record.metrics['truth']}"
        table = Table(title=title, title_justify="left")
        table.add_column("what")
        table.add_column("value", justify="right")
        for name, value in record.metrics.items():
            if isinstance(value, dict) and "mean" in value:
                spread = f" ± {value['std']:.3f}" if value["std"] is not None else ""
                table.add_row(name, f"{value['mean']:.3f}{spread}")
        low, high, rate = (record.metrics[name] for name in ("low", "high", "rate"))
        if low is not None:
            table.add_row(f"bracket, rate {rate:g}", f"{low:.3f} – {high:.3f}")
        console.print(table)
        show_headline(console, record)
        sent = record.metrics["messages"]
        console.print(f"{len(sent)} messages, the last: {sent[-1]['what']} from {sent[-1]['from']}", highlight=False)

    def _sets(self, first: Side, random: torch.Generator) -> list[tuple[str, Side]]:
        noisy = [
            (f"distance_{i + 1}", first.with_noise(min(rows, len(first.x)), std, random))
            for i, (rows, std) in enumerate(self.noise)
        ]
        return [("distance", first), *noisy]

    def _timed(
        self,
        method: Method,
        first: Side,
        second: Side,
        random: torch.Generator,
        budget: Budget,
        one: Training | None = None,
    ) -> tuple[float, float, Estimate, tuple[Party, Party]]:
        pair = first.party("mu", self.statistics), second.party("nu", self.statistics)
        if one is not None:
            # The account is that of the data set, or of a pair's second one. A record is with one party only, and both
            # release the same, so the cost of one is the cost of the run.
            pair[1 if isinstance(one.data, Pair) else 0].account = one.account
        started = time.perf_counter()
        estimate = method.estimate(*pair, random, budget)
        return estimate.value, time.perf_counter() - started, estimate, pair


def _headline(method: Method, sentence: str) -> str:
    return f"Each party: {sentence}" if method.private else f"No ε: {sentence}"


def _spread(values: list[float]) -> dict[str, Any]:
    std = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "std": std, "draws": len(values)}
