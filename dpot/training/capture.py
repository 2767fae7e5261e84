"""The loop, for one training or for several side by side, and how the steps of a chunk are run: replays of a captured
CUDA graph, torch.compile, or plain calls.

Capture needs the step to have run before (libraries initialise, the optimizer allocates its state). These
warm-up runs are undone: every tensor the training can change is put back, and every generator is rewound,
so that each warm-up run *is* the first step, computed with the very noise the first real step will draw.
Nothing of it remains, nothing new is released, and the first step was charged before (see Engine), so a
private step is never run without being accounted. Capture itself records kernels without running them.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from dpot.errors import TrainingError, UsageError
from dpot.graphs import Ambient, recording

log = logging.getLogger(__name__)
Mode = Literal["auto", "graph", "compile", "eager"]
UNROLLED, MANY_STEPS = 8, 2000  # steps in a graph, where so many are left
WARM_UP_RUNS = 3  # the first allocates, the second runs on what is allocated, the third must not synchronise


@dataclass
class Outcome:
    """What a training did: how, why so, how fast, and the mean of each metric over every `log_every` steps."""

    steps: int
    seconds: float
    mode: str
    reason: str
    history: list[dict[str, float]] = field(default_factory=list)
    resumed_at: int | None = None
    earlier: list[dict[str, Any]] = field(default_factory=list)  # up to which step which code trained, before this one

    @property
    def steps_per_second(self) -> float:
        """Per second of wall time; what a stopped run had not kept yet and did again counts as time alone."""
        return self.steps / max(self.seconds, 1e-9)

    def facts(self) -> dict[str, Any]:
        """What a record says of a training."""
        return {
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "steps_per_second": round(self.steps_per_second, 1),
            "mode": self.mode,
            "reason": self.reason,
            "resumed_at": self.resumed_at,
            "earlier": self.earlier,
            "history": self.history,
        }


class Job(Protocol):
    """What running needs to know of a training."""

    name: str
    device: torch.device
    ambient: Ambient
    step: int  # done so far
    steps: int
    mode: Mode
    outcome: Outcome

    def prepare(self) -> None:
        """Go to the last checkpoint, or write the first."""

    def room(self) -> int:
        """How many steps the next chunk may have."""

    def open(self, n: int) -> None:
        """Before n steps: ask for leave, do what is due."""

    def close(self, n: int) -> None:
        """After n steps: read the metrics, check, checkpoint, report."""

    def keep(self) -> None:
        """Write a checkpoint."""

    def finish(self) -> Outcome:
        """Sum up."""

    def one_step(self) -> None:
        """The whole step, reading and writing device tensors only."""

    def live_tensors(self) -> dict[str, Tensor]:
        """Every tensor a step may change, by name."""

    def all_generators(self) -> dict[str, torch.Generator]:
        """Every generator a step may draw from, the ambient one included, by name."""

    def capture_obstacle(self) -> str | None:
        """Why the step cannot be captured, as far as can be told without trying."""

    def compile_step(self) -> None:
        """Put the step through torch.compile."""


@dataclass(frozen=True)
class Runner:
    """Runs a number of steps of all jobs; `mode` and `reason` say how and why so."""

    run: Callable[[int], None]
    mode: str
    reason: str


class NotCapturable(Exception):
    """The step cannot be captured; the message says why."""


def train_together(jobs: Sequence[Job]) -> list[Outcome]:
    """Train all jobs to the end; what each learns is what it would learn alone.

    On CUDA the steps of each job are captured into graphs of its own, on a stream of its own, so that the
    kernels of small models, which do not fill a GPU, run beside each other; memory is the sum of the jobs'.
    On a CPU the jobs take turns, a chunk at a time. The first job that fails ends the training of all;
    their checkpoints stay, and the same call goes on from there. SIGTERM, by which schedulers end a process, ends it
    once the chunk at hand is done and kept.
    """
    _check(jobs)
    runner: Runner | None = None
    try:
        for job in jobs:
            job.prepare()
        active = [job for job in jobs if job.step < job.steps]
        with _told_to_stop() as told:
            while active:
                n = min(job.room() for job in active)
                for job in active:
                    job.open(n)
                if runner is None:  # only now: the first step, which warm-up runs, has been charged
                    runner = choose(active[0].mode, active)
                    if (runner.mode, active[0].mode, active[0].device.type) == ("eager", "auto", "cuda"):
                        log.warning("%s: many times slower than it could be, %s", active[0].name, runner.reason)
                    for job in active:
                        job.outcome.mode, job.outcome.reason = runner.mode, runner.reason
                runner.run(n)
                for job in active:
                    job.close(n)
                if told.is_set():
                    for job in active:
                        job.keep()
                    raise SystemExit(128 + signal.SIGTERM)
                left = [job for job in active if job.step < job.steps]
                if len(left) < len(active):
                    runner, active = None, left
    finally:
        outcomes = [job.finish() for job in jobs]
    return outcomes


@contextlib.contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """Set once SIGTERM has come, which does not end what is inside."""
    told = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # signals are for that one
        yield told
        return
    before = signal.signal(signal.SIGTERM, lambda *_: told.set())
    try:
        yield told
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _check(jobs: Sequence[Job]) -> None:
    if not jobs:
        raise UsageError("there is nothing to train")
    if len({(job.device, job.mode) for job in jobs}) > 1:
        raise UsageError("trainings side by side need one device and one mode")
    generators: list[torch.Generator] = [g for job in jobs for g in job.all_generators().values()]
    if len({id(generator) for generator in generators}) < len(generators):
        raise UsageError("trainings side by side need generators of their own: results would mix")


def choose(mode: Mode, jobs: Sequence[Job]) -> Runner:
    """A runner for these jobs. 'auto' captures on CUDA, and falls back to plain calls with the reason.

    torch.compile is never chosen by itself: it takes minutes, and its fused kernels round differently.
    """
    device = jobs[0].device
    if mode == "compile":
        for job in jobs:
            job.compile_step()
        return Runner(_plainly(jobs), "compile", "asked for")
    if mode == "eager":
        return Runner(_plainly(jobs), "eager", "asked for")
    if device.type != "cuda":
        if mode == "graph":
            raise UsageError(f"mode=graph needs a CUDA device, and this training runs on {device}: use mode=auto")
        return Runner(_plainly(jobs), "eager", f"CUDA graphs do not exist on {device.type}")
    try:
        return Runner(_captured(jobs), "graph", "captured on CUDA")
    except NotCapturable as obstacle:
        if mode == "graph":
            raise TrainingError(f"the step cannot be captured ({obstacle}): mend it or use mode=auto") from obstacle
        return Runner(_plainly(jobs), "eager", f"not captured: {obstacle}")


def _plainly(jobs: Sequence[Job]) -> Callable[[int], None]:
    def run(n: int) -> None:
        for job in jobs:
            with job.ambient():
                for _ in range(n):
                    job.one_step()

    return run


def _captured(jobs: Sequence[Job]) -> Callable[[int], None]:
    """Each job's steps in graphs of its own, on a stream of its own, so that small kernels overlap.

    A graph without branches is started in one go, however long it is, so several steps in a row are a graph too.
    """
    for job in jobs:
        if obstacle := job.capture_obstacle():
            raise NotCapturable(obstacle)
    streams = [torch.cuda.Stream(job.device) for job in jobs]
    drawn = [_warm_up(job, stream) for job, stream in zip(jobs, streams, strict=True)]
    everyone = torch.cuda.default_generators[jobs[0].device.index]  # torch registers this one by itself
    restorable = [everyone, *(g for job in jobs for g in job.all_generators().values())]
    states = [generator.get_state() for generator in restorable]
    lengths = [UNROLLED, 1] if min(job.steps - job.step for job in jobs) >= MANY_STEPS else [1]
    graphs: list[dict[int, torch.cuda.CUDAGraph]] = []
    try:
        for job, stream, generators in zip(jobs, streams, drawn, strict=True):
            graphs.append(_graphs(job, stream, generators, lengths))
    except Exception as error:
        graphs.clear()
        for generator, state in zip(restorable, states, strict=True):
            # A failed capture may leave a generator's inner state marked as capturing: give it a fresh one.
            fresh = torch.Generator(generator.device)
            fresh.set_state(state)
            generator.graphsafe_set_state(fresh)
        raise NotCapturable(_first_cause(error)) from error

    def run(n: int) -> None:
        current = torch.cuda.current_stream(jobs[0].device)
        for stream in streams:
            stream.wait_stream(current)
        while n:
            length = next(length for length in lengths if length <= n)
            for own, stream in zip(graphs, streams, strict=True):
                with torch.cuda.stream(stream):
                    own[length].replay()
            n -= length
        for stream in streams:
            current.wait_stream(stream)

    return run


def _graphs(
    job: Job, stream: torch.cuda.Stream, generators: Sequence[torch.Generator], lengths: Sequence[int]
) -> dict[int, torch.cuda.CUDAGraph]:
    """Graphs of so many steps of the job. They share their memory: they never run at once, and leave nothing in it."""
    graphs: dict[int, torch.cuda.CUDAGraph] = {}
    pool = None
    for length in lengths:
        graph = torch.cuda.CUDAGraph()
        for generator in generators:  # registered: each replay continues the stream of random numbers
            graph.register_generator_state(generator)
        with recording(graph, pool=pool, stream=stream), job.ambient():
            for _ in range(length):
                job.one_step()
        graphs[length], pool = graph, graph.pool()
    return graphs


class Snapshot:
    """The state of a job at one moment, to go back to: its tensors in place, its generators rewound."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._states = {name: generator.get_state() for name, generator in job.all_generators().items()}
        self._tensors = {name: tensor.detach().clone() for name, tensor in job.live_tensors().items()}

    def drawn(self) -> list[torch.Generator]:
        """The generators that have been drawn from since."""
        now = self._job.all_generators()
        return [g for name, g in now.items() if not torch.equal(g.get_state(), self._states[name])]

    @torch.no_grad()
    def restore(self) -> None:
        """Undo everything since."""
        for name, generator in self._job.all_generators().items():
            generator.set_state(self._states[name])
        for name, tensor in self._job.live_tensors().items():
            if name in self._tensors:
                tensor.copy_(self._tensors[name])
            else:  # optimizer state born since; the optimizers let through begin at zero (rates.py)
                tensor.zero_()


def _warm_up(job: Job, stream: torch.cuda.Stream) -> list[torch.Generator]:
    """Run the first step a few times on `stream`, undo it each time; which generators it draws from."""
    current = torch.cuda.current_stream(job.device)
    snapshot = Snapshot(job)
    drawn: list[torch.Generator] = []
    homes = _addresses(job)
    for run in range(WARM_UP_RUNS):
        last = run == WARM_UP_RUNS - 1
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream), job.ambient(), _no_synchronisation(active=last):
                job.one_step()
        except RuntimeError as error:
            if last and "synchroniz" in str(error):
                raise NotCapturable(f"the step waits for the device ({_one_line(error)})") from error
            raise
        finally:
            current.wait_stream(stream)
            drawn = snapshot.drawn()
            snapshot.restore()
        now = _addresses(job)
        if moved := [name for name in now if now[name] != homes.get(name, now[name])]:
            raise NotCapturable(f"the step replaces {moved[0]} instead of writing into it")
        homes = now
    return drawn


def _addresses(job: Job) -> dict[str, int]:
    return {name: tensor.data_ptr() for name, tensor in job.live_tensors().items()}


@contextlib.contextmanager
def _no_synchronisation(active: bool) -> Iterator[None]:
    """Inside, an operation that makes the host wait for the device is an error."""
    if not active:
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _first_cause(error: BaseException) -> str:
    while error.__context__ is not None:  # ending a spoilt capture raises again, over the real cause
        error = error.__context__
    return _one_line(error)


def _one_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
