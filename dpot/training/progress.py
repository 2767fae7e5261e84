"""Progress of training on stderr: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

PLAIN_SECONDS = 10.0  # a log file wants a line now and then, not thousands


def duration(seconds: float) -> str:
    """'2 h 05 min', '3 min 20 s' or '12 s'."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    if whole >= 60:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole} s"


def _figures(metrics: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in metrics.items())


def _bars() -> Bars:
    from rich import progress  # only here: lines and silence do not need rich
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[speed]}"),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[figures]}"),
        console=Console(file=sys.stderr),
    )


class Progress:
    """Where training tells how far it is; several jobs may share one (a bar each).

    style: 'auto' is a bar if stderr is a terminal and plain lines otherwise; 'silent' prints nothing.
    """

    def __init__(self, style: Literal["auto", "bar", "lines", "silent"] = "auto") -> None:
        self.style = style if style != "auto" else ("bar" if sys.stderr.isatty() else "lines")
        self._bars: Bars | None = None
        self._open = 0

    def open(self, name: str, total: int, done: int) -> Line:
        """A line for one training that has `done` of `total` steps behind it."""
        task: TaskID | None = None
        if self.style == "bar":
            if self._bars is None:
                self._bars = _bars()
                self._bars.start()
            task = self._bars.add_task(name, total=total, completed=done, speed="", figures="")
        self._open += 1
        return Line(self, name, total, done, task)

    def _closed(self) -> None:
        self._open -= 1
        if self._open == 0 and self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _show(self, line: Line, step: int, speed: float, metrics: Mapping[str, float]) -> None:
        if self._bars is not None and line.task is not None:
            self._bars.update(line.task, completed=step, speed=f"{speed:,.0f} steps/s", figures=_figures(metrics))
        elif self.style == "lines" and (line.due() or step == line.total):
            left = duration((line.total - step) / speed) if speed > 0 else "?"
            print(
                f"{line.name}: step {step:,} of {line.total:,}, {speed:,.1f} steps/s, {left} left"
                f"{', ' if metrics else ''}{_figures(metrics)}",
                file=sys.stderr,
                flush=True,
            )


class Line:
    """The progress of one training."""

    def __init__(self, owner: Progress, name: str, total: int, done: int, task: TaskID | None) -> None:
        self.name, self.total, self.task = name, total, task
        self._owner = owner
        self._started_at, self._started = done, time.monotonic()
        self._last = self._started

    def due(self) -> bool:
        """Whether the last plain line is old enough; a yes counts as a line."""
        now = time.monotonic()
        if now - self._last < PLAIN_SECONDS:
            return False
        self._last = now
        return True

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """`step` steps are done; `metrics` are the latest means."""
        elapsed = time.monotonic() - self._started
        self._owner._show(self, step, (step - self._started_at) / max(elapsed, 1e-9), metrics)

    def close(self) -> None:
        """Nothing more will come."""
        self._owner._closed()
