"""Exams that end in time: one that is not done when the time is up is left out; how long is left is said meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

from dpot.evaluation.stepping import Fit

log = logging.getLogger("dpot")
SECONDS = 10.0  # from line to line


class Clock:
    """So many seconds for all exams together; None: as long as they take."""

    def __init__(self, what: str, names: Sequence[str], seconds: float | None) -> None:
        self.what, self.names, self.seconds = what, list(names), seconds
        self.began = self._told = time.monotonic()
        self.left_out: list[str] = []
        self._done = 0

    def exams(self, exams: Iterator[Fit[float]]) -> Iterator[Fit[float | None]]:
        """The same exams, each with None where the time was up first."""
        for name, exam in zip(self.names, exams, strict=True):
            yield self._sat(name, exam)

    def _sat(self, name: str, exam: Fit[float]) -> Fit[float | None]:
        while not self._is_up:
            try:
                next(exam)
            except StopIteration as end:
                self._done += 1
                found: float = end.value
                return found
            self._tell(name)
            yield
        exam.close()
        self.left_out.append(name)
        return None

    @property
    def _is_up(self) -> bool:
        return self.seconds is not None and time.monotonic() - self.began > self.seconds

    def _tell(self, name: str) -> None:
        now = time.monotonic()
        if now - self._told < SECONDS:
            return
        self._told = now
        gone = now - self.began
        left = "" if self.seconds is None else f", at most {max(0.0, self.seconds - gone):.0f} s left"
        log.info("%s: %s, %d of %d done after %.0f s%s", self.what, name, self._done, len(self.names), gone, left)
