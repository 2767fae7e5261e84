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

from dpot.training import capture, together, train_together
from dpot.training.engine import Engine


class Stream:
    def __init__(self, *_: Any) -> None:
        pass

    def wait_stream(self, other: Stream) -> None:
        pass


class Graph:
    """Replays by calling the jobs it was made for."""

    jobs: Sequence[Engine] = ()
    registered: list[torch.Generator]

    def __init__(self) -> None:
        self.registered = []

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.registered.append(generator)

    def replay(self) -> None:
        for job in self.jobs:
            with job.ambient():
                job.one_step()


@pytest.fixture
def imitation(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """torch.cuda as far as capture uses it; the graphs that were captured."""
    captured: list[Graph] = []

    @contextlib.contextmanager
    def record(graph: Graph, stream: Stream) -> Iterator[None]:
        snapshots = [capture.Snapshot(job) for job in graph.jobs]
        yield
        for snapshot in snapshots:  # a capture runs nothing
            snapshot.restore()
        captured.append(graph)

    def choose(mode: str, jobs: Sequence[Engine]) -> capture.Runner:
        Graph.jobs = tuple(jobs)
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
    monkeypatch.setattr(together, "choose", choose)
    return captured


def test_warm_up_and_capture_leave_no_trace(imitation: list[Graph]) -> None:
    toys = [Toy(seed, steps=40 + 10 * seed) for seed in range(2)]
    outcomes = train_together([toy.engine for toy in toys])
    assert [outcome.mode for outcome in outcomes] == ["graph", "graph"]
    assert [len(graph.registered) for graph in imitation] == [6, 3]  # both jobs, then the longer one alone
    for seed, toy in enumerate(toys):
        assert toy.ledger.charged == toy.engine.steps
        assert toy.calls == toy.engine.steps + (seed + 1) * (capture.WARM_UP_RUNS + 1)
    # The same trainings by plain calls, outside the loop under test.
    for toy, seed in zip(toys, range(2), strict=True):
        plain = Toy(seed, steps=40 + 10 * seed)
        runner = capture.choose("eager", [plain.engine])
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
