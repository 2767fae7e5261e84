"""How fast and in how much memory each engine counts a table, and the same counts by other means.

    python scripts/bench_engines.py                        # engines, workers, widths, to four million records
    python scripts/bench_engines.py --largest 100000000    # and one stream of a hundred million

Records are a generated stream (half numbers, half categories of five values, two classes), made anew in every pass, as
a file would be read anew; making them alone is measured too. What is counted is what the release of a table needs: the
histograms of all columns, then those of all pairs of columns by class. Beside it, on one table in Parquet files: the
same counts by Spark SQL, and the engines on the same files. Other work may be using the machine, so ratios within one
run say more than seconds, and the load is noted. Writes results/bench/engines.cpu.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpot.config import REPOSITORY
from dpot.data.coding import Category, Coding, Number, TableCoding
from dpot.data.decoding import TableDecoder
from dpot.data.images import decode_image
from dpot.data.partitions import table_partitions
from dpot.data.schema import Schema
from dpot.disk import write_atomically
from dpot.engines.base import Engine
from dpot.engines.local import Local
from dpot.engines.processes import Processes
from dpot.engines.ray import RayEngine
from dpot.engines.spark import SparkEngine
from dpot.methods.sketch.counters import Bins, Cells, Counter, Lengths, MomentSums, Pairs, Parts
from dpot.methods.sketch.features import Layout, LearnedMap, LinearMap, freeze
from dpot.methods.sketch.fit import NETWORKS
from dpot.models.feature_network import HIDDEN, FeatureNetwork
from dpot.record import commit_of_code
from dpot.spread import Spread
from dpot.tables import columns_of

BATCH, PARTITION = 1 << 15, 1 << 18
VALUES = ("a", "b", "c", "d", "e")
CLASSES = 2


def coding_of(width: int) -> TableCoding:
    """Half numbers, half categories."""
    numbers = [Number(f"n{index}", 0.0, 1.0) for index in range(width // 2)]
    return TableCoding((*numbers, *(Category(f"c{index}", VALUES) for index in range(width - width // 2))))


@dataclass(frozen=True)
class Generated:
    """A partition of a stream that is made when it is read."""

    name: str
    seed: int
    rows: int
    width: int

    def read(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Encoded records with their labels."""
        random = np.random.default_rng(self.seed)
        numbers = self.width // 2
        for start in range(0, self.rows, BATCH):
            size = min(BATCH, self.rows - start)
            labels = random.integers(0, CLASSES, size)
            records = np.zeros((size, numbers + 5 * (self.width - numbers)), np.float32)
            records[:, :numbers] = random.random((size, numbers), np.float32)
            chosen = random.integers(0, 5, (size, self.width - numbers), np.int8)
            places = numbers + 5 * np.arange(self.width - numbers) + chosen
            np.put_along_axis(records, places, 1, 1)
            yield torch.from_numpy(records), torch.from_numpy(labels)


@dataclass(frozen=True)
class Given:
    """What is encoded already."""

    coding: Coding
    classes: tuple[int, ...] = tuple(range(CLASSES))
    columns: tuple[str, ...] = ()

    def __call__(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return batch


@dataclass(frozen=True, kw_only=True)
class OnlyRead(Counter):
    """Nothing is counted: what it costs to make the records."""

    def __call__(self, parts: Parts) -> Tensor:
        for _ in parts:
            pass
        return self.zeros(1)


def counters(coding: TableCoding) -> dict[str, Counter]:
    """What a release of the table counts; five bins per column."""
    columns = columns_of(coding)
    bins = torch.cat([torch.arange(column.values) * 5 // column.values for column in columns])
    return {
        "only making the records": OnlyRead(),
        "histograms": Cells(columns=columns, classes=CLASSES),
        "pairs": Pairs(columns=columns, classes=CLASSES, bin_of=bins),
    }


def stream(engine: Engine, rows: int, width: int) -> Spread:
    """A generated stream in partitions of a quarter of a million records, on an engine."""
    parts = [
        Generated(f"part {number}", number, min(PARTITION, rows - start), width)
        for number, start in enumerate(range(0, rows, PARTITION))
    ]
    return Spread(engine, parts, Given(coding_of(width)), rows)


class Watch:
    """What this process and its descendants take while a block runs: processor time, and the largest Python worker."""

    def __enter__(self) -> Watch:
        self.peak, self._stop = 0.0, threading.Event()
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._look(self._first)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look(self._last)

    @property
    def cpu(self) -> float:
        """Seconds of all of them together."""
        return sum(value - self._first.get(pid, 0.0) for pid, value in self._last.items())

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            self._look(self._last)

    def _look(self, cpu: dict[int, float]) -> None:
        for pid, parts in _family(os.getpid()).items():
            cpu[pid] = (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
            if parts[-1].startswith(("python", "ray::")):
                self.peak = max(self.peak, int(parts[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20)


def _family(root: int) -> dict[int, list[str]]:
    """The fields of /proc/PID/stat after the name, and the name, of a process and all that descend from it."""
    every: dict[int, list[str]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                head, _, rest = Path(f"/proc/{entry}/stat").read_text().rpartition(")")
            except OSError:
                continue
            every[int(entry)] = [*rest.split(), head.partition("(")[2]]
    found = {root}
    while new := {pid for pid, parts in every.items() if int(parts[1]) in found} - found:
        found |= new
    return {pid: every[pid] for pid in found if pid in every}


def timed(work: Callable[[], Any]) -> float:
    """Wall seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(engine: Engine, workers: int, rows: int, width: int) -> dict[str, Any]:
    """Seconds of each pass over a generated stream, and the memory of the largest worker."""
    there = stream(engine, rows, width)
    seconds, cpu, worker = {}, {}, 0.0
    for name, counter in counters(coding_of(width)).items():
        with Watch() as watch:
            seconds[name] = round(timed(lambda c=counter: there.total(c)), 2)
        cpu[name], worker = round(watch.cpu, 2), max(worker, watch.peak)
    taken = {what: own["histograms"] + own["pairs"] for what, own in (("wall", seconds), ("cpu", cpu))}
    row = {"engine": engine.name, "workers": workers, "records": rows, "width": width, "seconds": seconds, "cpu": cpu}
    row |= {"rows_per_second": round(rows / taken["wall"]), "rows_per_cpu_second": round(rows / taken["cpu"])}
    row |= {"worker_mb": round(worker), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps(row), flush=True)
    return row


def warm(engine: Engine, workers: int) -> None:
    """Start the workers and let them load what they need."""
    parts = [Generated(f"warm {n}", n, 2000, 4) for n in range(4 * workers)]
    Spread(engine, parts, Given(coding_of(4)), 8000 * workers).total(counters(coding_of(4))["pairs"])


def started(name: str, workers: int) -> Engine:
    """An engine with so many workers."""
    if name == "ray":
        import ray

        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        engine: Engine = RayEngine()
        engine._own = True
        return engine
    if name == "spark":
        return SparkEngine(f"local[{workers}]")
    return Processes(workers) if name == "processes" else Local()


def write_files(folder: Path, rows: int, width: int) -> Path:
    """The same table in eight Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    coding = coding_of(width)
    for number in range(8):
        part = Generated("", number, rows // 8, width)
        for index, (records, labels) in enumerate(part.read()):
            frame: Any = coding.decode(records[:, :, None, None])
            frame["y"] = labels.numpy().astype(str)
            pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / f"{number}-{index}.parquet")
    return folder


def on_files(rows: int, width: int, workers: int) -> dict[str, Any]:
    """Both passes over one table in files: engines, and the same counts by Spark SQL."""
    columns: dict[str, Any] = {f"n{i}": {"kind": "decimal", "range": [0, 1]} for i in range(width // 2)}
    columns |= {f"c{i}": {"kind": "category", "values": list(VALUES)} for i in range(width - width // 2)}
    schema = Schema.of({"label": "y", "columns": columns | {"y": {"kind": "category", "values": ["0", "1"]}}})
    decode = TableDecoder(schema)
    passes = [one for name, one in counters(schema.coding).items() if name != "only making the records"]
    found: dict[str, float] = {}
    cpu: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = str(write_files(Path(place), rows, width))
        parts, there = table_partitions(folder, decode.columns)
        expected = None
        for name in ("local", "processes", "ray", "spark"):
            engine = started(name, workers)
            warm(engine, workers)
            spread = Spread(engine, parts, decode, there or 0)
            sums: list[Tensor] = []
            with Watch() as watch:
                found[name] = timed(lambda s=spread, out=sums: out.extend(s.total(one) for one in passes))
            cpu[name] = watch.cpu
            expected = expected or sums
            assert all(torch.equal(a, b) for a, b in zip(sums, expected, strict=True)), name
            if name == "ray":
                import ray

                native = Spread(engine, ray.data.read_parquet(folder), decode, there or 0)
                with Watch() as watch:
                    found["ray data set"] = timed(lambda s=native: [s.total(one) for one in passes])
                cpu["ray data set"] = watch.cpu
            if name == "spark":
                session = engine._session()
                frame = session.read.parquet(folder)
                native = Spread(engine, frame, decode, there or 0)
                with Watch() as watch:
                    found["spark DataFrame"] = timed(lambda s=native: [s.total(one) for one in passes])
                cpu["spark DataFrame"] = watch.cpu
                with Watch() as watch:
                    found["Spark SQL"] = timed(lambda f=frame: spark_sql(f, width))
                cpu["Spark SQL"] = watch.cpu
            engine.close()
    rounded = {name: round(value, 2) for name, value in found.items()}
    row = {"records": there, "width": width, "workers": workers, "load": round(os.getloadavg()[0], 1)}
    row |= {"seconds": rounded, "cpu": {name: round(value, 2) for name, value in cpu.items()}}
    print(json.dumps(row), flush=True)
    return row


def spark_sql(frame: Any, width: int) -> int:
    """All histograms and pairs by class as one query of grouping sets over bins of five; gives the number of cells."""
    from pyspark.sql import functions as F

    numbers = [f"n{i}" for i in range(width // 2)]
    names = numbers + [f"c{i}" for i in range(width - width // 2)]
    binned = frame.select(
        "y", *(F.floor(F.col(n) * 5).cast("string").alias(n) for n in numbers), *names[len(numbers) :]
    )
    binned.createOrReplaceTempView("bench")
    pairs = [(a, b) for j, b in enumerate(names) for a in names[:j]]
    sets = [f"({n})" for n in names] + [f"(y, {a}, {b})" for a, b in pairs]
    every = ", ".join(["y", *names])
    query = f"SELECT {every}, count(*) AS counted FROM bench GROUP BY {every} GROUPING SETS ({', '.join(sets)})"
    return len(frame.sparkSession.sql(query).collect())


def per_image(count: int = 400) -> dict[str, Any]:
    """Processor milliseconds of each pass for one grey image of 28×28, with the lines that millions of records get."""
    import io

    from PIL import Image

    shape, classes = (1, 28, 28), 10
    layout, second = Layout(4000, 24, 1600), Layout(1200, 24)
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 28, 28), generator=random, dtype=torch.uint8)
    labels = torch.randint(classes, (count,), generator=random)
    records = images.flatten(1).float() / 255
    directions = torch.nn.functional.normalize(torch.randn(layout.positions, 784, generator=random), dim=1)
    linear = LinearMap.of(directions, directions.sum(1) / 2, torch.full((layout.positions,), 0.3), layout, 255)
    networks = [freeze(FeatureNetwork(style, shape, classes)) for style in NETWORKS]
    mixed = torch.randn(sum(HIDDEN[style] for style in NETWORKS), second.lines, generator=random)
    learned = LearnedMap(networks, mixed, torch.zeros(second.lines))
    encoded = []
    for image in images:
        buffer = io.BytesIO()
        Image.fromarray(image.numpy()).save(buffer, "png")
        encoded.append(buffer.getvalue())
    passes: dict[str, Callable[[], Any]] = {
        "decoding a PNG": lambda: [decode_image(image, "", 28, True) for image in encoded],
        "lengths": lambda: Lengths(shape=shape, grid=255)([(records, labels)]),
        "moments": lambda: MomentSums(shape=shape, grid=255, parts=64, limit=900)([(records, labels)]),
        "bins": lambda: Bins(record_map=linear, layout=layout, classes=classes)([(records, labels)]),
        "learned bins": lambda: Bins(record_map=learned, layout=second, classes=classes)([(records, labels)]),
    }
    found = {}
    for name, work in passes.items():
        work()
        began = time.process_time()
        work()
        found[name] = round(1000 * (time.process_time() - began) / count, 4)
    vectors = {"bins": 8 * classes * layout.bins, "learned bins": 8 * classes * second.bins}
    sent = {"bins": 2 * layout.positions * 784 + 16 * layout.positions}
    sent["learned bins"] = sum(4 * v.numel() for v in learned.tensors().values())
    return {"cpu_ms": found, "bytes_back_per_task": vectors, "bytes_to_a_machine": sent}


def said(text: str) -> list[str]:
    """A paragraph of the page."""
    return ["", *textwrap.wrap(" ".join(text.split()), 120)]


def markdown(report: dict[str, Any]) -> str:
    """The report for people."""
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = ["# Engines"]
    lines += said(
        f"""A table counted by every engine: histograms of all columns, then all pairs of columns by class, from a
        generated stream. {report["cores"]} cores ({report["machine"]}) that other work was using: *load* is the number
        of processes that wanted a core, so seconds on the clock say little, and rows per second of processor time are
        compared; they count all processes of an engine. {versions}; commit {str(report["commit"])[:10]}."""
    )
    head = (
        "engine",
        "workers",
        "records",
        "columns",
        "rows/s (clock)",
        "rows per CPU second",
        "largest worker",
        "load",
    )
    lines += ["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in report["rows"]:
        rates = f"{row['rows_per_second']:,} | {row['rows_per_cpu_second']:,}"
        what = f"{row['engine']} | {row['workers']} | {row['records']:,} | {row['width']}"
        lines.append(f"| {what} | {rates} | {row['worker_mb']} MB | {row['load']} |")
    same = [row for row in report["rows"] if (row["engine"], row["width"], row["workers"]) == ("processes", 20, 2)]
    if same:
        least, most = (choose(same, key=lambda row: row["records"]) for choose in (min, max))
        cost = [1e6 / row["rows_per_cpu_second"] for row in (least, most)]
        lines += said(
            f"""Time is linear in the records: {cost[0]:.2f} µs of a core per record at {least["records"]:,} records and
            {cost[1]:.2f} µs at {most["records"]:,}. **Extrapolated, not measured**, with the last slope: 10⁹ records of
            20 columns take {cost[1] * 1000 / 3600:.1f} core-hours for both passes, the making of the records included.
            Memory does not grow with the number of records; most of it is torch itself."""
        )
    for row in report["files"]:
        lines += said(
            f"""The same counts of {row["records"]:,} records of {row["width"]} columns in Parquet files,
            {row["workers"]} workers, load {row["load"]}; both passes, decoding included. Spark SQL counts them in one
            query of grouping sets:"""
        )
        lines += ["", "| by | seconds (clock) | CPU seconds | CPU, over Spark SQL |", "|---|---|---|---|"]
        for name, seconds in row["seconds"].items():
            cpu = row["cpu"][name]
            lines.append(f"| {name} | {seconds} | {cpu} | {cpu / row['cpu']['Spark SQL']:.2f} |")
    lines += _images(report["images"]) if report.get("images") else []
    lines += said(
        """PipelineDP and Tumult Analytics could not be compared: the library below the first (PyDP) has no wheel for
        this processor, and the one below the second (tmlt.core) refuses to be installed on it."""
    )
    return "\n".join(lines) + "\n"


def _images(found: dict[str, Any]) -> list[str]:
    """The plan for a billion images, on paper."""
    cpu, back, sent = found["cpu_ms"], found["bytes_back_per_task"], found["bytes_to_a_machine"]
    passes = {name: cpu["decoding a PNG"] + cost for name, cost in cpu.items() if name != "decoding a PNG"}
    hours = {name: 1e9 * cost / 1000 / 3600 for name, cost in passes.items()}
    total = sum(hours.values())
    lines = ["", "## A billion images, on paper"]
    lines += said(
        """Grey images of 28×28, 784 bytes each (0.8 TB as plain bytes in Parquet, somewhat less as PNG files), 4000
        lines with 24 knots and 1600 planes, ten classes, 1200 lines of learned features of four networks. The processor
        time of one image was measured on one core here; the rest is multiplied."""
    )
    lines += ["", "| pass | ms per image, decoding a PNG included | core-hours for 10⁹ |", "|---|---|---|"]
    lines += [f"| {name} | {cost:.2f} | {hours[name]:,.0f} |" for name, cost in passes.items()]
    return lines + said(
        f"""Together {total:,.0f} core-hours, or {total / 1024:,.1f} hours on 1024 cores (32 machines of 32), about
        {0.04 * total:,.0f} $ at 0.04 $ per core-hour. Each of the four passes reads everything once: 3.2 TB in all. A
        machine is sent {sent["bins"] / 1e6:.0f} MB of directions and {sent["learned bins"] / 1e6:.1f} MB of networks,
        once each. A task gives back {back["bins"] / 1e6:.1f} MB for the first bins and {back["learned bins"] / 1e6:.1f}
        MB for the second: {back["bins"] * 1e4 / 1e9:,.0f} GB go through the tree with 100,000 images in a task, and a
        hundred times as much with 1000, so files should be large. The driver receives {back["bins"] / 1e6:.1f} MB."""
    )


def main() -> None:
    """Run everything and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000_000, 4_000_000])
    parser.add_argument("--largest", type=int, default=None)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--images", type=int, default=1, help="0: without the passes over images")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "results/bench")
    parser.add_argument("--again", action="store_true", help="add to what is written there, and write the page anew")
    parser.add_argument("--engines", nargs="+", default=["ray", "spark"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {"rows": [], "files": []}
    commit, dirty = commit_of_code()
    report |= {"commit": commit, "dirty": dirty, "machine": platform.machine(), "cores": os.cpu_count()}
    place = given.output / "engines.cpu.json"
    if given.again:
        report = json.loads(place.read_text())
    report["versions"] = {name: metadata.version(name) for name in ("torch", "ray", "pyspark", "pyarrow")}

    def note(row: dict[str, Any], where: str = "rows") -> None:
        report[where].append(row)
        given.output.mkdir(parents=True, exist_ok=True)
        write_atomically(place, json.dumps(report, indent=1) + "\n")

    def run(name: str, workers: int, rows: int, width: int) -> None:
        engine = started(name, workers)
        warm(engine, workers)
        note(measure(engine, workers, rows, width))
        engine.close()

    smallest = min(given.sizes, default=0)
    if given.sizes:
        plan = [("local", 1, size, 20) for size in given.sizes[:1]]
        plan += [("processes", 2, size, 20) for size in given.sizes]
        plan += [("processes", 2, smallest, width) for width in (10, 40)]
        plan += [("processes", workers, smallest, 20) for workers in (1, 4, 8)]
        plan += [(name, workers, smallest, 20) for name in given.engines for workers in (2,)]
        for name, workers, rows, width in plan:
            run(name, workers, rows, width)
    if given.files:
        note(on_files(given.files, 8, 2), "files")
    if given.largest:
        run("processes", 2, given.largest, 20)
    if given.images:
        report["images"] = per_image()
        write_atomically(place, json.dumps(report, indent=1) + "\n")
    write_atomically(given.output / "engines.cpu.md", markdown(report))
    print(f"written to {given.output / 'engines.cpu.json'}")


if __name__ == "__main__":
    main()
