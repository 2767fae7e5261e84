"""The loop itself, for one training or for several side by side (seeds of one configuration)."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator, Sequence

import torch

from dpot.errors import UsageError
from dpot.training.capture import Runner, choose
from dpot.training.engine import Engine, Outcome

log = logging.getLogger(__name__)


def train_together(jobs: Sequence[Engine]) -> list[Outcome]:
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


def _check(jobs: Sequence[Engine]) -> None:
    if not jobs:
        raise UsageError("there is nothing to train")
    if len({(job.device, job.mode) for job in jobs}) > 1:
        raise UsageError("trainings side by side need one device and one mode")
    generators: list[torch.Generator] = [g for job in jobs for g in job.all_generators().values()]
    if len({id(generator) for generator in generators}) < len(generators):
        raise UsageError("trainings side by side need generators of their own: results would mix")
