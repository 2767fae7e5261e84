"""Ray: tasks on a cluster for partitions of files, ray.data for a data set that is there already.

Vectors stay in Ray's object store and are added by tasks, sixteen at a time, so that the driver receives one of them.
Ray starts a task anew on another worker when its own has died; its result is an object that exists once.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np

from dpot.engines.base import Count, Engine, Part, added, chunks, count_partitions, counted, settled
from dpot.errors import DataError, UsageError
from dpot.ranges import Count as Number
from dpot.ranges import NonNegative, Positive

FAN_IN = 16
TASKS = 20_000  # in a pass at most


class RayEngine(Engine):
    """address: of the cluster, `auto` for the one this machine belongs to; None: Ray on this machine alone.

    cpus, gpus: of one task; with gpus it counts on its GPU. tries: how often a task may lose its worker.
    """

    name = "ray"

    def __init__(
        self, address: str | None = None, cpus: Positive = 1.0, gpus: NonNegative = 0.0, tries: Number = 3
    ) -> None:
        self.address, self.cpus, self.gpus, self.tries = address, cpus, gpus, tries
        self.device = "cuda" if gpus else "cpu"
        self._own = False

    def total(self, count: Count, source: Any) -> np.ndarray:
        ray = self._started()
        try:
            parts = self._of_partitions(ray, count, source) if isinstance(source, list) else _of_blocks(count, source)
            add = ray.remote(num_cpus=0, max_retries=self.tries)(added)
            while len(parts) > 1:
                parts = [add.remote(*parts[at : at + FAN_IN]) for at in range(0, len(parts), FAN_IN)]
            return settled(ray.get(parts[0]))
        except ray.exceptions.RayError as error:
            line = (str(error).strip().splitlines() or [""])[0][:300]
            raise DataError(
                f"engine=ray: nothing of this pass was released ({type(error).__name__}: {line}); "
                "a worker that is out of memory needs smaller partitions or more engine.cpus per task"
            ) from None

    def close(self) -> None:
        if self._own:
            self._ray().shutdown()
            self._own = False

    def _of_partitions(self, ray: Any, count: Count, partitions: list[Any]) -> list[Any]:
        shared = ray.put(count)  # sent to each machine once
        task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=self.tries)(count_partitions)
        return [task.remote(shared, group) for group in chunks(partitions, TASKS)]

    def _started(self) -> Any:
        ray = self._ray()
        if not ray.is_initialized():
            quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
            if self.address is not None:
                quiet.pop("include_dashboard")
            try:
                ray.init(address=self.address, **quiet)
            except (ConnectionError, ValueError, RuntimeError) as error:
                line = (str(error).strip().splitlines() or [""])[0][:300]
                raise UsageError(f"engine.address={self.address}: no Ray cluster is there ({line})") from None
            self._own = True
        return ray

    @staticmethod
    def _ray() -> Any:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError:
            raise UsageError("engine=ray: Ray is not installed; pip install 'dpot[ray]'") from None
        return ray


def _of_blocks(count: Count, dataset: Any) -> list[Any]:
    """References to the parts of a ray.data.Dataset, one per block, counted where the blocks are."""
    import ray

    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    tables = dataset.map_batches(
        _count_block, fn_kwargs={"count": count}, batch_size=None, batch_format="pyarrow", zero_copy_batch=True
    ).to_arrow_refs()
    read = ray.remote(num_cpus=0)(_part_of)
    return [read.remote(table) for table in tables] or [ray.put(counted(count, lambda: (), "an empty data set"))]


def _count_block(block: Any, count: Count) -> Any:
    import pyarrow

    part = counted(count, lambda: (block,), "a block of the Ray data set")
    return pyarrow.table({"counts": [part.counts.tobytes()], "problem": [part.problem]})


def _part_of(table: Any) -> Part:
    return added(*(Part(np.frombuffer(row["counts"], np.int64), row["problem"]) for row in table.to_pylist()))
