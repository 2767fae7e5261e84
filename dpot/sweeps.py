"""A sweep (`dpot -m …`): what its jobs leave behind, and the one table or document that is made of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpot.disk import write_atomically
from dpot.record import numbers
from dpot.tasks.base import dump

WIDE = 200  # columns of a table that goes into a file
Job = Mapping[str, Any]  # overrides, exit_code, and answer or error


class SweepWatch(Callback):
    """Remembers where the jobs of a sweep write, so that their answers can be gathered."""

    directory: Path | None = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Called by Hydra once, in the launching process."""
        SweepWatch.directory = Path(config.hydra.sweep.dir)


def leave(place: Path, outcome: Job) -> None:
    """Write down what came of a job, in its own process."""
    write_atomically(place / "job.json", dump(outcome))


def finish(as_json: bool) -> int:
    """Gather what the jobs left, show it, say how many failed, and give the exit code of the sweep."""
    if SweepWatch.directory is None:
        return 0
    files = [f for f in SweepWatch.directory.glob("*/job.json") if f.parent.name.isdigit()]
    jobs = [json.loads(f.read_text()) for f in sorted(files, key=lambda f: int(f.parent.name))]
    if as_json:
        print(dump({"jobs": jobs}))
    elif jobs:
        Console(width=None if sys.stdout.isatty() else WIDE).print(table(jobs))
    if failed := sum("error" in job for job in jobs):
        print(f"dpot: {failed} of {len(jobs)} jobs failed", file=sys.stderr)
    return max((int(job["exit_code"]) for job in jobs), default=0)


def table(jobs: Sequence[Job]) -> Table:
    """A row per job: the overrides in which they differ, every number that is one, ε, and where it is kept."""
    chosen = [dict(override.partition("=")[::2] for override in job["overrides"]) for job in jobs]
    keys = [key for key in dict.fromkeys(key for one in chosen for key in one) if len({o.get(key) for o in chosen}) > 1]
    answers = [job.get("answer", {}) for job in jobs]
    found = [numbers(answer.get("metrics", answer)) for answer in answers]
    names = list(dict.fromkeys(name for one in found for name in one))
    with_epsilon = any("privacy" in answer for answer in answers)
    folders = {str(place.parent) for answer in answers if (place := _kept(answer))}
    together = f", kept in {next(iter(folders))}" if len(folders) == 1 else ""
    shown = Table(title=Text(f"{len(jobs)} runs{together}"), title_justify="left")
    for name in ("job", *keys):
        shown.add_column(name, overflow="fold")
    for name in (*names, *(["ε"] if with_epsilon else [])):
        shown.add_column(name, justify="right", overflow="fold")
    shown.add_column("kept as", overflow="fold")
    for number, (job, own, values, answer) in enumerate(zip(jobs, chosen, found, answers, strict=True)):
        row = [str(number), *(own.get(key, "") for key in keys)]
        row += [f"{values[name]:.4g}" if name in values else "" for name in names]
        row += [_epsilon(answer)] if with_epsilon else []
        place = _kept(answer)
        where = "" if place is None else place.name if len(folders) == 1 else str(place)
        row.append(f"failed: {job['error']}" if "error" in job else where)
        shown.add_row(*map(Text, row))  # as they are: brackets of a list are no markup
    return shown


def _kept(answer: Mapping[str, Any]) -> Path | None:
    """The folder of a record: all its files lie there."""
    files = answer.get("files")
    return Path(next(iter(files.values()))).parent if isinstance(files, Mapping) and files else None


def _epsilon(answer: Mapping[str, Any]) -> str:
    privacy = answer.get("privacy", {})
    if privacy.get("epsilon") is None:
        return "" if not privacy else "none"
    return f"{privacy['epsilon']:.4g}{'' if privacy.get('rigorous') else ' (not proved)'}"
