"""Exams in time: what is done counts, what is not is named, and nobody waits in silence."""

import logging
from collections.abc import Iterator

import pytest

from dpot.evaluation import hurried
from dpot.evaluation.hurried import Clock
from dpot.evaluation.stepping import Fit, side_by_side


class Time:
    """A clock that goes on by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


def exam(steps: int, mark: float, ended: list[float]) -> Fit[float]:
    try:
        for _ in range(steps):
            yield
    finally:
        ended.append(mark)
    return mark


@pytest.mark.parametrize(("seconds", "marks"), [(None, [1.0, 2.0, 3.0]), (40.0, [1.0, None, None])])
def test_what_is_not_done_in_time_is_left_out(monkeypatch, caplog, seconds, marks) -> None:
    import torch

    monkeypatch.setattr(hurried, "time", Time())
    ended: list[float] = []
    clock = Clock("report", ["logreg", "mlp", "cnn"], seconds)

    def exams() -> Iterator[Fit[float]]:
        yield exam(5, 1.0, ended)
        yield exam(200, 2.0, ended)
        yield exam(5, 3.0, ended)

    with caplog.at_level(logging.INFO, logger="dpot"):
        assert side_by_side(clock.exams(exams()), torch.device("cpu")) == marks
    assert clock.left_out == [name for name, mark in zip(("logreg", "mlp", "cnn"), marks, strict=True) if mark is None]
    assert 2.0 in ended  # one that was broken off is closed
    lines = [record.getMessage() for record in caplog.records]
    assert any("mlp, 1 of 3 done" in line for line in lines)
    assert any("s left" in line for line in lines) == (seconds is not None)
