"""`task=reproduce`: run what a published table needs and is not on record yet, then compare.

Killed at any time and started again, it goes on: finished runs are not done twice, the one it was at resumes from
its checkpoint. Runs whose record was made by other code are named and made anew.
"""

from __future__ import annotations

import logging
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dpot import config
from dpot.composing import compose_config
from dpot.disk import write_atomically
from dpot.errors import DataError, DpotError, UsageError
from dpot.fingerprint import code_fingerprint
from dpot.ranges import Count, NonNegativeInt
from dpot.record import RECORD, Record, Run
from dpot.reporting import compare, pictures, sheets, store, tables
from dpot.tasks.base import Answer, Task
from dpot.tasks.compare import compared, lacking
from dpot.tasks.compute import chosen_sheet, computed

log = logging.getLogger("dpot")
SMALL = ("quick", "smoke")  # profiles for a CPU
SIDE_BY_SIDE = 5  # on a GPU: the seeds of one cell


@dataclass
class Planned:
    """A run of a sheet with its composed config and what is on record of it."""

    run: sheets.PlannedRun
    cfg: DictConfig
    directory: Path
    record: Record | None
    stale: bool
    demo: bool

    @property
    def is_due(self) -> bool:
        """Whether it must be run."""
        return self.record is None or self.stale

    def profile_words(self) -> list[str]:
        """What a command must say of the profile to be this run: its name, and what the sheet does not set alike."""
        chosen = f"profile={self.cfg.profile.name}"
        plain = _compose([*self.run.overrides, chosen]).profile
        own = {key: value for key, value in self.cfg.profile.items() if value != plain[key]}
        return [chosen, *(f"profile.{key}={'null' if value is None else value}" for key, value in own.items())]


class Reproduce(Task):
    """Reproduce one table (paper=, table=) or all of them."""

    def __init__(
        self,
        dry_run: bool = False,
        all: bool = False,
        rows: Sequence[str] | None = None,
        launcher: str | None = None,
        demo: bool = True,
        together: Count | None = None,
        datasets: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        seeds: Sequence[NonNegativeInt] | None = None,
    ) -> None:
        self.dry_run, self.all, self.rows, self.launcher, self.demo = dry_run, all, rows, launcher, demo
        self.seeds = seeds
        self.together, self.datasets, self.columns = together, datasets, columns

    def run(self, cfg: DictConfig) -> Answer:
        """Plan, run what is due, compare."""
        chosen = sheets.all_sheets() if self.all else [chosen_sheet(cfg)]
        if not self.all:
            return self._sheet(chosen[0], cfg)
        answers = [self._or_why_not(sheet, cfg) for sheet in chosen]

        def show(console: Console) -> None:
            for answer in answers:
                answer.show(console)

        code = max((a.exit_code for a in answers), default=0)
        return Answer({"sheets": [a.data for a in answers]}, show, exit_code=code)

    def _or_why_not(self, sheet: sheets.Sheet, cfg: DictConfig) -> Answer:
        """One of many sheets: what it lacks is said, and the others go on."""
        try:
            return self._sheet(sheet, cfg)
        except DpotError as error:
            why = f"{sheet.paper} {sheet.kind} {sheet.name}: {error}"
            log.error("%s", why)
            data = {"paper": sheet.paper, sheet.kind: sheet.name, "error": str(error)}
            return Answer(data, lambda console: console.print(why, style="red", highlight=False), exit_code=1)

    def _sheet(self, sheet: sheets.Sheet, cfg: DictConfig) -> Answer:
        if sheet.compute:
            return _computed_answer(sheet) if self.dry_run else computed(sheet, cfg)
        for row in self.rows or ():
            if sheet.rows.get(row) is None:
                raise config.unknown("row", row, [name for name, o in sheet.rows.items() if o is not None])
        wanted = self._restricted(sheet)
        demo = self._needs_demo(wanted, cfg)
        planned = self._at_hand(self.plan(wanted, cfg, demo), wanted, cfg)
        for item in planned:
            if item.stale:
                log.warning("%s (seed %d) was made by other code and is run again", item.run.row, item.run.seed)
        if self.dry_run:
            return self._plan_answer(sheet, planned, cfg)
        failures = self._work(sheet, [p for p in planned if p.is_due], cfg)
        _claim(sheet, [item for item in planned if (item.directory / RECORD).exists()])
        cells = compared(sheet, cfg, cfg.profile.name, committed=False)
        data = compare.as_answer(sheet, cells) | {"failed": failures}
        drawn = _draw(sheet, planned, Path(cfg.output_root) / "figures") if sheet.picture else None
        if drawn:
            data["files"] = [str(drawn)]

        def show(console: Console) -> None:
            console.print(tables.Terminal(sheet, cells))
            for line in tables.legend(cells, sheet):
                console.print(line, highlight=False)
            if drawn:
                console.print(f"drawn: {drawn}", highlight=False)
            if demo:
                console.print(
                    f"[yellow]The real data are not at hand: this was a demonstration on {sheet.demo}. "
                    "`dpot task=data` says what to put where.[/yellow]"
                )
            for failure in failures:
                console.print(f"[red]failed: {failure['row']} seed {failure['seed']}: {failure['error']}[/red]")

        return Answer(data, show, exit_code=1 if failures else 0)

    def _restricted(self, sheet: sheets.Sheet) -> sheets.Sheet:
        """The sheet with the columns that were asked for, by name or by data set."""
        for name in self.columns or ():
            if name not in (known_columns := [c.name for c in sheet.columns]):
                raise config.unknown("task.columns", name, known_columns)
        if self.columns is not None:
            sheet = replace(sheet, columns=tuple(c for c in sheet.columns if c.name in self.columns))
        if self.datasets is None:
            return sheet
        known = {o.partition("=")[2] for c in sheet.columns for o in c.overrides if o.startswith("dataset=")}
        for name in self.datasets:
            if name not in known:
                raise config.unknown("task.datasets", name, sorted(known))
        chosen = {f"dataset={name}" for name in self.datasets}
        return replace(sheet, columns=tuple(c for c in sheet.columns if chosen & set(c.overrides)))

    def _needs_demo(self, sheet: sheets.Sheet, cfg: DictConfig) -> bool:
        """Whether a data set is missing, cannot be had, and a demonstration is what the profile allows."""
        names = {o for c in sheet.columns for o in c.overrides if o.startswith("dataset=")}
        for name in sorted(names):
            source = config.instantiate(_compose([name]).dataset, "dataset")
            if source.status(cfg.data_root).present:
                continue
            try:
                log.info("%s is not at hand: trying to download it", name.partition("=")[2])
                source.fetch(cfg.data_root)
            except DataError as error:
                if not (self.demo and sheet.demo and cfg.profile.name in SMALL):
                    raise
                log.warning("%s", error)
                log.warning("going on with %s, for demonstration only: NOT comparable with the paper", sheet.demo)
                return True
        return False

    def _at_hand(self, planned: list[Planned], sheet: sheets.Sheet, cfg: DictConfig) -> list[Planned]:
        """The runs whose row has its data; a row without is left to be shown as such, if others can be run."""
        absent = lacking(sheet, cfg)
        missing = {item.run.row: absent[item.run.row] for item in planned if item.run.row in absent}
        for row, reason in missing.items():
            log.warning("%s is left out: %s", row, reason)
        kept = [item for item in planned if item.run.row not in missing]
        if missing and not kept:
            raise DataError(next(iter(missing.values())))
        return kept

    def plan(self, sheet: sheets.Sheet, cfg: DictConfig, demo: bool) -> list[Planned]:
        """Compose every run of the sheet and look up its record."""
        planned = []
        composed: dict[tuple[str, ...], DictConfig] = {}
        name = str(cfg.profile.name)
        plain = _compose([f"profile={name}"]).profile
        rows = sheet.small_rows if self.rows is None and name in SMALL else self.rows
        if rows is not None and self.rows is None:
            log.info("profile=%s runs only %s (task.rows= chooses others)", name, ", ".join(rows))
        for run in sheet.runs(cfg.profile.seeds, demo, name in SMALL, name):
            if (rows is not None and run.row not in rows) or (self.seeds is not None and run.seed not in self.seeds):
                continue
            if run.overrides not in composed:
                composed[run.overrides] = _compose([*run.overrides, f"profile={name}"])
                config.check(composed[run.overrides])  # brings values to their types, as a run does
            own = composed[run.overrides].copy()
            own.seed = run.seed
            # the profile as the sheet may set it (profile.steps), with the user's own overrides of it
            own.profile = {
                key: own.profile[key] if cfg.profile[key] == plain[key] else cfg.profile[key] for key in plain
            }
            own.profile.seeds = None  # how many seeds are run is no property of one run
            for key in ("device", "data_root", "output_root", "tracker", "debug"):
                own[key] = cfg[key]
            place = Run(own)
            record = Record.load(place.directory) if (place.directory / RECORD).exists() else None
            if record is not None:
                place.discard()  # what a run left that was killed right after its record
            stale = record is not None and record.provenance["fingerprint"]["code"] != code_fingerprint(own)
            planned.append(Planned(run, own, place.directory, None if cfg.rerun else record, stale, demo))
        if self.seeds is not None and not planned:
            raise UsageError(f"task.seeds={list(self.seeds)}: nothing is run with these (profile.seeds= says how many)")
        return planned

    def _work(self, sheet: sheets.Sheet, due: list[Planned], cfg: DictConfig) -> list[dict[str, Any]]:
        if self.launcher and due:
            return self._spread(sheet, due, cfg)
        failures: list[dict[str, Any]] = []
        made: set[Path] = set()  # rows that are one run are trained once
        began = time.monotonic()
        for batch in self._batches(due, str(cfg.device)):
            done = due.index(batch[0])
            left = f", about {(time.monotonic() - began) / done * (len(due) - done):.0f} s left" if done else ""
            for item in batch:
                at = f"[{due.index(item) + 1}/{len(due)}]"
                log.info("%s %s, %s, seed %d%s", at, item.run.row, _data(item), item.run.seed, left)
            _claim(sheet, batch)  # now: it may be cut short, with some of the batch on record
            failures += self._run(batch, [(item.stale or cfg.rerun) and item.directory not in made for item in batch])
            made |= {item.directory for item in batch}
        return failures

    def _batches(self, due: list[Planned], device: str) -> list[list[Planned]]:
        """What trains side by side: runs of one task, which on a GPU take little longer than one of them."""
        size = self.together or (1 if device == "cpu" else SIDE_BY_SIDE)
        batches: list[list[Planned]] = []
        for item in due:
            last = batches[-1] if batches else None
            alike = last is not None and last[0].cfg.task == item.cfg.task
            if last is None or len(last) == size or not alike or any(i.directory == item.directory for i in last):
                batches.append([item])
            else:
                last.append(item)
        return batches

    def _run(self, batch: list[Planned], reruns: list[bool]) -> list[dict[str, Any]]:
        """Run a batch; if it fails as one, each by itself, to know which cannot be run (the others resume)."""
        before = [_written(item) for item in batch]
        try:
            run_together([item.cfg for item in batch], reruns)
        except (DpotError, RuntimeError) as error:  # torch's, out of memory for one, are RuntimeErrors
            if batch[0].cfg.debug:
                raise
            if len(batch) > 1:
                log.warning("side by side these runs failed (%s): one after the other now", error)
                again = [rerun and _written(i) == old for i, rerun, old in zip(batch, reruns, before, strict=True)]
                alone = zip(batch, again, strict=True)
                return [failure for item, rerun in alone for failure in self._run([item], [rerun])]
            item = batch[0]
            log.error("%s (seed %d) failed: %s", item.run.row, item.run.seed, error)
            return [{"row": item.run.row, "seed": item.run.seed, "error": str(error)}]
        return []

    def _spread(self, sheet: sheets.Sheet, due: list[Planned], cfg: DictConfig) -> list[dict[str, Any]]:
        """Hand the runs to a Hydra launcher: one multirun per distinct set of overrides, swept over its seeds."""
        failures = []
        for overrides in dict.fromkeys(item.run.overrides for item in due):
            mine = [item for item in due if item.run.overrides == overrides]
            seeds = ",".join(str(item.run.seed) for item in mine)
            shared = [f"{key}={cfg[key]}" for key in ("output_root", "data_root", "device") if cfg[key] is not None]
            command = [sys.executable, "-m", "dpot", "-m", f"hydra/launcher={self.launcher}", *overrides, *shared]
            command += [*mine[0].profile_words(), f"seed={seeds}"]
            command += [f"rerun={bool(cfg.rerun) or any(i.stale for i in mine)}"]
            log.info("%s", shlex.join(command[2:]))
            done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
            missing = [item for item in mine if not (item.directory / RECORD).exists()]
            failures += [
                {"row": item.run.row, "seed": item.run.seed, "error": f"exit code {done.returncode}"}
                for item in missing
            ]
        return failures

    def _plan_answer(self, sheet: sheets.Sheet, planned: list[Planned], cfg: DictConfig) -> Answer:
        known = [r for p in planned if (r := p.record) is not None]
        rows = {p.run.row for p in planned}
        committed = [] if known else compare.records_of(sheet, store.records(None))
        elsewhere: list[Record] = [r for home, r in committed if home.row in rows]
        known = known or [r for r in elsewhere if r.config["profile"]["name"] == cfg.profile.name] or elsewhere
        sizes = ", ".join(dict.fromkeys(str(r.config["profile"]["name"]) for r in known))
        each = statistics.fmean(map(_seconds, known)) if known else None
        devices = ", ".join(dict.fromkeys(str(r.provenance["device"]) for r in known))
        due = [p for p in planned if p.is_due]
        runs = [
            {
                "row": p.run.row,
                "data": _data(p),
                "seed": p.run.seed,
                "state": "stale" if p.stale else ("due" if p.is_due else "on record"),
                "command": p.run.command(*p.profile_words()),
            }
            for p in planned
        ]
        cost = None if each is None else each * len(due)

        def show(console: Console) -> None:
            table = Table(title=f"{sheet.paper} {sheet.kind} {sheet.name}: {len(due)} of {len(planned)} runs are due")
            for name in ("row", "data", "seed", "state"):
                table.add_column(name, overflow="fold")
            for r in runs:
                table.add_row(*(escape(str(r[name])) for name in ("row", "data", "seed", "state")))
            console.print(table)
            for r in runs:  # each on a line of its own, to be copied
                if r["state"] != "on record":
                    console.print(escape(str(r["command"])), soft_wrap=True, highlight=False)
            console.print(
                f"expected: {cost:.0f} s, if this machine is as fast as in earlier runs ({devices}; profile {sizes})"
                if cost is not None
                else "expected cost: unknown before a first run",
                highlight=False,
            )

        data = {"paper": sheet.paper, sheet.kind: sheet.name, "runs": runs}
        measured = {"measured_on": devices or None, "measured_profile": sizes or None}
        return Answer(data | {"expected_seconds": cost} | measured, show)


def _computed_answer(sheet: sheets.Sheet) -> Answer:
    """The plan of a sheet that is computed as a whole."""
    command = f"dpot task=compute paper={sheet.paper} {sheet.kind}={sheet.name}"
    runs = [{"row": "all", "data": "", "seed": None, "state": "due", "command": command}]
    data = {"paper": sheet.paper, sheet.kind: sheet.name, "runs": runs, "expected_seconds": None}
    return Answer(data, lambda console: console.print(f"computed as a whole: {command}", highlight=False))


def _claim(sheet: sheets.Sheet, items: Sequence[Planned]) -> None:
    """Note in the folders of these runs which cells of the sheet they fill."""
    for item in items:
        store.claim(item.directory, _home(sheet, item))


def _home(sheet: sheets.Sheet, item: Planned) -> store.Home:
    return store.home_of(sheet, item.run.row, item.run.group, item.run.seed, item.demo)


def _draw(sheet: sheets.Sheet, planned: Sequence[Planned], folder: Path) -> Path | None:
    """The picture of a figure, from the runs that have a record."""
    done = [item for item in planned if (item.directory / RECORD).exists()]
    panels = [pictures.Panel(_home(sheet, item), item.directory, Record.load(item.directory)) for item in done]
    if not panels:
        return None
    path = folder / f"{sheet.paper}_figure_{sheet.name}.png"
    write_atomically(path, pictures.draw(sheet, panels))
    return path


def run_together(cfgs: Sequence[DictConfig], reruns: Sequence[bool]) -> list[Answer]:
    """Run composed configs of one task, as the launcher would run each."""
    own = [cfg.copy() for cfg in cfgs]
    for cfg, rerun in zip(own, reruns, strict=True):
        cfg.rerun = rerun
        config.check(cfg)
    task: Task = config.instantiate(own[0].task, "task")
    return task.run_together(own)


def _data(item: Planned) -> str:
    return " ".join(o for o in item.run.overrides if o.startswith("dataset="))


def _written(item: Planned) -> int | None:
    """When its record was written; None without one."""
    place = item.directory / RECORD
    return place.stat().st_mtime_ns if place.exists() else None


def _seconds(record: Record) -> float:
    """What a run took, with the parts before it was resumed."""
    training = record.metrics.get("training", {}).get("seconds", 0.0)
    return max(float(record.provenance["seconds"]), float(training))


def _compose(overrides: Sequence[str]) -> DictConfig:
    try:
        return compose_config(overrides)
    except Exception as error:
        raise UsageError(f"the sheet asks for {' '.join(overrides)}: {str(error).splitlines()[0]}") from None
