"""How the sketch's release grows with the number of records: its time linearly, its memory not at all.

    python scripts/bench_sketch.py                              # 100k to 10M records on a CPU, in about three minutes
    python scripts/bench_sketch.py --sizes 1000000 3000000 10000000 --side 28 --lines 4000 --device cuda

Records are made chunk by chunk, by a generator that begins anew for every pass, as a file would be read anew: they are
never all in memory. Lengths, moments and bins are released from them under (1, 1e-9). A second run of the smallest size
in several streams must give the same whole numbers before noise. Each size runs in a process of its own, so that the
peak memory that the system reports is its own. Writes results/bench/sketch.<device>.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dpot.config import REPOSITORY
from dpot.disk import write_atomically
from dpot.methods.gate import Gate
from dpot.methods.sketch.counters import Stream, over
from dpot.methods.sketch.directions import draw_directions
from dpot.methods.sketch.features import Layout, LinearMap
from dpot.methods.sketch.release import MEAN_SHARE, Sketcher, read_moments
from dpot.methods.sketch.rules import plan
from dpot.privacy import calibration
from dpot.privacy.budget import Budget
from dpot.privacy.events import Gaussian
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.record import commit_of_code, device_name

CHUNK = 4096
CLASSES = 10


def stream_of(records: int, side: int, device: torch.device, parts: tuple[int, int] = (0, 1)) -> Stream:
    """Blurred class-dependent patterns with noise; `parts` = (which, of how many) streams."""

    def stream() -> Iterator[tuple[Tensor, Tensor]]:
        seeded = torch.Generator(device).manual_seed(7)
        patterns = torch.rand(CLASSES, side * side, generator=seeded, device=device)
        for number, start in enumerate(range(0, records, CHUNK)):
            if number % parts[1] != parts[0]:
                continue
            size = min(CHUNK, records - start)
            own = torch.Generator(device).manual_seed(number)
            labels = torch.randint(CLASSES, (size,), generator=own, device=device)
            noise = torch.rand(size, side * side, generator=own, device=device)
            yield (0.6 * patterns[labels] + 0.4 * noise), labels

    return stream


def release(records: int, side: int, lines: int, device: torch.device) -> dict[str, Any]:
    """Time and peak memory of the three releases of the first round."""
    budget = Budget(1.0, 1e-9, conversion="tight")
    multiplier = calibration.find_sigma(Gaussian, 1, budget) * (1 + 1e-9)
    ruled = plan(records, CLASSES, 1 / multiplier, images=True)
    ruled = replace(ruled, layout=Layout(lines, 16, lines // 4), low_noise=True)  # the same work at all sizes
    stream = stream_of(records, side, device)
    sketcher = Sketcher(
        over(stream, device),
        (1, side, side),
        CLASSES,
        ruled,
        multiplier,
        Gate(ledger=Ledger.of(budget), noise=NoiseSource(device=device)),
    )
    seconds: dict[str, float] = {}
    clock = time.perf_counter if device.type == "cuda" else time.process_time  # others may be using the processor

    def timed(name: str, began: float) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds[name] = round(clock() - began, 3)

    began = clock()
    for _ in stream():
        pass
    timed("making the records once", began)
    shares = (ruled.norm_share, ruled.moment_share * MEAN_SHARE, ruled.moment_share * (1 - MEAN_SHARE))
    for_norm, for_mean, for_square = (sketcher.open(s, f"release {i}") for i, s in enumerate(shares))
    for_bins = sketcher.open(ruled.first_share, "bins")
    began = clock()
    bound = sketcher.norms(for_norm)
    timed("lengths", began)
    began = clock()
    sums = sketcher.moments(bound, for_mean, for_square)
    moments = read_moments(sums, (1, side, side), bound, for_square.noise_multiplier)
    timed("moments", began)
    random = torch.Generator(device).manual_seed(0)
    directions = draw_directions((1, side, side), ruled.layout, moments, ruled.low_noise, random)
    record_map = LinearMap.of(directions, *moments.place(directions), ruled.layout, sketcher.grid)
    began = clock()
    sketcher.bins(record_map, ruled.layout, for_bins)
    timed("bins", began)
    total = sum(value for name, value in seconds.items() if name != "making the records once")
    peak = {"peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)}
    if device.type == "cuda":
        peak["peak_device_memory_mb"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return {
        "records": records,
        "layout": ruled.layout.to_dict(),
        "seconds": seconds,
        "total_seconds": round(total, 3),
        "records_per_second": round(records / total),
        "epsilon": round(sketcher.gate.ledger.epsilon(), 6),
        **peak,
    }


def split_agrees(records: int, side: int, device: torch.device, parts: int = 3) -> bool:
    """Whether streams of a part each, added up, give the very counts of one stream."""
    layout, d = Layout(24, 8, 6), side * side
    random = torch.Generator(device).manual_seed(1)
    directions = torch.nn.functional.normalize(torch.randn(36, d, generator=random, device=device), dim=1)
    centres, deviations = directions.sum(1) / 2, torch.full((36,), 0.2, device=device)
    record_map = LinearMap.of(directions, centres, deviations, layout, 255)

    def count(which: tuple[int, int]) -> Tensor:
        counts = torch.zeros(CLASSES, layout.bins, dtype=torch.int64, device=device)
        for batch, labels in stream_of(records, side, device, which)():
            layout.count(counts, record_map.exactly(batch), labels)
        return counts

    return bool(torch.equal(sum(count((i, parts)) for i in range(parts)), count((0, 1))))  # type: ignore[arg-type]


def main() -> None:
    """Run every size in a process of its own and write what they report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--side", type=int, default=8)
    parser.add_argument("--lines", type=int, default=100, help="the rule takes 4000 for millions of records")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, default=None)
    parser.add_argument("--one", type=int, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args()
    device = torch.device(given.device)
    if given.one is not None:
        print(json.dumps(release(given.one, given.side, given.lines, device)))
        return
    rows = []
    for size in given.sizes:
        own = [f"--side={given.side}", f"--device={given.device}", f"--one={size}", f"--lines={given.lines}"]
        done = subprocess.run([sys.executable, __file__, *own], stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"{size:>12,} records: {rows[-1]['total_seconds']} s, {rows[-1]['peak_memory_mb']} MB")
    commit, dirty = commit_of_code()
    report = {
        "what": "releases of the sketch's first round from a stream of records",
        "side": given.side,
        "classes": CLASSES,
        "clock": "wall" if device.type == "cuda" else "processor time",
        "rows": rows,
        "time_ratio_per_record_largest_to_smallest": round(
            rows[0]["records_per_second"] / rows[-1]["records_per_second"], 3
        ),
        "peak_memory_ratio_largest_to_smallest": round(rows[-1]["peak_memory_mb"] / rows[0]["peak_memory_mb"], 3),
        "three_streams_give_the_same_counts": split_agrees(min(given.sizes[0], 50_000), given.side, device),
        "device": device_name(given.device),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "commit": commit,
        "dirty": dirty,
    }
    output = given.output or REPOSITORY / "results" / "bench" / f"sketch.{device.type}.json"
    write_atomically(output, json.dumps(report, indent=1) + "\n")
    print(f"written to {output}")


if __name__ == "__main__":
    main()
