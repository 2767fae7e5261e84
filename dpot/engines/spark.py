"""Spark: one vector per partition, by mapPartitions for files and by mapInArrow for a DataFrame, and treeReduce.

Vectors are results of tasks. Accumulators, which a task that is run again adds to a second time, are not used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dpot.engines.base import Count, Engine, Part, added, chunks, count_partitions, counted, settled
from dpot.errors import DataError, UsageError
from dpot.ranges import Count as Number

TASKS = 10_000  # in a pass at most


class SparkEngine(Engine):
    """master: of the cluster, as spark-submit has it; None: the running session, or this machine.

    depth: of the tree that adds the vectors. tries: how often a task may fail on this machine (a cluster has its own
    spark.task.maxFailures).
    """

    name = "spark"

    def __init__(self, master: str | None = None, depth: Number = 2, tries: Number = 4) -> None:
        self.master, self.depth, self.tries = master, depth, tries
        self._own: Any = None

    def total(self, count: Count, source: Any) -> np.ndarray:
        try:
            if isinstance(source, list):
                context = self._session().sparkContext
                groups = chunks(source, TASKS)
                parts = context.parallelize(groups, len(groups)).map(partial(count_partitions, count))
            else:
                rows = source.mapInArrow(_in_arrow(count), "counts binary, problem string")
                parts = rows.rdd.map(_part_of)
            return settled(parts.treeReduce(added, self.depth))
        except _spark_errors() as error:
            raise DataError(
                f"engine=spark: nothing of this pass was released ({type(error).__name__}: {_cause(error)}); "
                "a worker that is out of memory needs smaller partitions or more memory"
            ) from None

    def close(self) -> None:
        if self._own is not None:
            self._own.stop()
            self._own = None

    def _session(self) -> Any:
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            raise UsageError("engine=spark: PySpark is not installed; pip install 'dpot[spark]'") from None
        running = SparkSession.getActiveSession()
        if running is not None:
            return running
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("dpot").master(self.master or f"local[*,{self.tries}]")
        quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "FATAL"}
        for name, value in quiet.items():
            builder = builder.config(name, value)
        try:
            self._own = builder.getOrCreate()
        except Exception as error:  # no Java, another Java, no master
            raise UsageError(f"engine=spark: Spark does not start ({_cause(error)}); it needs Java 17 or 21") from None
        return self._own


def _in_arrow(count: Count) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        tables = (pyarrow.Table.from_batches([batch]) for batch in batches)
        part = counted(count, lambda: tables, "a partition of the DataFrame")
        yield pyarrow.RecordBatch.from_pydict({"counts": [part.counts.tobytes()], "problem": [part.problem]})

    return run


def _part_of(row: Any) -> Part:
    return Part(np.frombuffer(bytes(row["counts"]), np.int64), row["problem"])


def _spark_errors() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def _cause(error: Exception) -> str:
    """The line of a long report that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Exception" in line or "Error" in line]
    return (telling or lines or [""])[-1 if telling else 0][:300]
