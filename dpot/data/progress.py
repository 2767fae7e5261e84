"""Progress on stderr: a bar where somebody watches, a plain line now and then where nobody does."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

log = logging.getLogger("dpot.data")

EVERY = 10.0  # seconds between two plain lines


class Meter:
    """`with Meter("decoding celeba", total) as meter: meter.advance(n)`."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what = what
        self.total = total
        self.done = 0
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said = time.monotonic()

    def __enter__(self) -> Meter:
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self.what, total=self.total)
        return self

    def advance(self, amount: int) -> None:
        """So much more is done."""
        self.done += amount
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, amount)
        elif time.monotonic() - self._said > EVERY:
            self._said = time.monotonic()
            share = f" ({100 * self.done / self.total:.0f}%)" if self.total else ""
            log.info("%s: %d%s", self.what, self.done, share)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
