"""Processes on this machine. A worker that dies is replaced, and what it had not handed in is counted again."""

from __future__ import annotations

import logging
import multiprocessing
import os
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

from dpot.engines.base import Count, Engine, Part, added, chunks, count_partitions, settled
from dpot.errors import DataError
from dpot.ranges import Count as Number

log = logging.getLogger("dpot")
PER_WORKER = 8  # groups of partitions in a pass: what is lost with a worker


class Processes(Engine):
    """`workers` processes, by default one per core; `tries`: how often a group is begun before the pass is given up."""

    name = "processes"

    def __init__(self, workers: Number | None = None, tries: Number = 3) -> None:
        self.workers, self.tries = workers or os.cpu_count() or 1, tries
        self._pool: ProcessPoolExecutor | None = None

    def total(self, count: Count, source: Any) -> np.ndarray:
        groups = chunks(source, PER_WORKER * self.workers)
        done: dict[int, Part] = {}
        for _ in range(self.tries):
            left = [index for index in range(len(groups)) if index not in done]
            try:
                futures = {self._workers().submit(count_partitions, count, groups[index]): index for index in left}
                self._gather(futures, done)
                return settled(added(*(done[index] for index in sorted(done))))
            except BrokenProcessPool:
                self.close()
                log.warning(
                    "a worker has died: %d of %d groups are counted again", len(groups) - len(done), len(groups)
                )
        raise DataError(
            f"engine=processes: workers have died in {self.tries} attempts, out of memory perhaps; nothing of this "
            "pass was released. Take fewer engine.workers, or smaller partitions"
        )

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _gather(self, futures: dict[Future[Part], int], done: dict[int, Part]) -> None:
        """Take in what is handed in; a group that was handed in is never counted again."""
        waiting = set(futures)
        broken = None
        while waiting:
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ended:
                try:
                    done[futures[future]] = future.result()
                except BrokenProcessPool as error:
                    broken = error
        if broken is not None:
            raise broken

    def _workers(self) -> ProcessPoolExecutor:
        """The pool: kept from pass to pass, because a process takes seconds to begin."""
        if self._pool is None:
            context = multiprocessing.get_context("forkserver")
            self._pool = ProcessPoolExecutor(self.workers, context, initializer=_one_thread)
        return self._pool


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
