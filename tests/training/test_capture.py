"""The order of capture (charge, warm up, undo, record, replay), with an imitation of CUDA graphs on a CPU.

The imitation records nothing and replays by calling the steps: it cannot tell whether CUDA would agree
(test_gpu.py does), but it does tell whether warm-up and capture leave a trace in the training.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from toy import Toy, differing

from dpot.training import capture, train_together
from dpot.training.capture import choose  # as it is when nothing is imitated
from dpot.training.engine import Engine
from dpot.training.schedules import Constant


class Stream:
    def __init__(self, *_: Any) -> None:
        pass

    def wait_stream(self, other: Stream) -> None:
        pass


class Graph:
    """Replays by calling the steps that were made while it was recorded."""

    candidates: Sequence[Engine] = ()
    registered: list[torch.Generator]
    steps: dict[Engine, int]

    def __init__(self) -> None:
        self.registered = []

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.registered.append(generator)

    def pool(self) -> object:
        return self

    def replay(self) -> None:
        for job, count in self.steps.items():
            for _ in range(count):
                with job.ambient():
                    job.one_step()


@pytest.fixture
def imitation(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """torch.cuda as far as capture uses it; the graphs that were captured."""
    captured: list[Graph] = []

    @contextlib.contextmanager
    def record(graph: Graph, pool: object, stream: Stream) -> Iterator[None]:
        before = {job: (int(job._position), capture.Snapshot(job)) for job in Graph.candidates}
        yield
        graph.steps = {job: int(job._position) - position for job, (position, _) in before.items()}
        for _, snapshot in before.values():  # a capture runs nothing
            snapshot.restore()
        captured.append(graph)

    def choose(mode: str, jobs: Sequence[Engine]) -> capture.Runner:
        Graph.candidates = tuple(jobs)
        return capture.Runner(capture._captured(jobs), "graph", "imitated")

    for name, value in {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "graph": record,
        "stream": lambda stream: contextlib.nullcontext(),
        "current_stream": lambda device: Stream(),
        "default_generators": {None: torch.Generator()},
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": lambda mode: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(capture, "choose", choose)
    return captured


@pytest.mark.parametrize("unrolled", [1, 4])
def test_warm_up_and_capture_leave_no_trace(
    imitation: list[Graph], monkeypatch: pytest.MonkeyPatch, unrolled: int
) -> None:
    monkeypatch.setattr(capture, "UNROLLED", unrolled)
    monkeypatch.setattr(capture, "MANY_STEPS", 15 if unrolled > 1 else 10**9)
    # A capture on CUDA runs nothing; here steps beyond the chunk would want rates that are not there yet.
    rates: dict[str, Any] = {"schedule": Constant()} if unrolled > 1 else {}
    toys = [Toy(seed, steps=40 + 10 * seed, **rates) for seed in range(2)]
    outcomes = train_together([toy.engine for toy in toys])
    assert [outcome.mode for outcome in outcomes] == ["graph", "graph"]
    # both jobs, several steps at once and single ones; then the longer one alone, with too few steps left
    lengths = [1, 1, 1] if unrolled == 1 else [4, 1, 4, 1, 1]
    assert [sum(graph.steps.values()) for graph in imitation] == lengths
    assert all(len(graph.registered) == 3 for graph in imitation)
    for seed, toy in enumerate(toys):
        assert toy.ledger.charged == toy.engine.steps
        recorded = sum(graph.steps.get(toy.engine, 0) for graph in imitation)
        assert toy.calls == toy.engine.steps + (seed + 1) * capture.WARM_UP_RUNS + recorded
    # The same trainings by plain calls, outside the loop under test.
    for toy, seed in zip(toys, range(2), strict=True):
        plain = Toy(seed, steps=40 + 10 * seed, **rates)
        runner = choose("eager", [plain.engine])
        while plain.engine.step < plain.engine.steps:
            n = plain.engine.room()
            plain.engine.open(n)
            runner.run(n)
            plain.engine.close(n)
        assert differing(toy.state(), plain.state()) == []


def test_warm_up_comes_after_the_charge(imitation: list[Graph]) -> None:
    toy = Toy()
    order: list[str] = []
    inner = toy.engine._step_function
    toy.engine._before = lambda n: order.append("charge")
    toy.engine._step_function = lambda: (order.append("step"), inner())[1]
    toy.engine.run()
    assert order[0] == "charge"
    assert order[1 : 1 + capture.WARM_UP_RUNS] == ["step"] * capture.WARM_UP_RUNS
