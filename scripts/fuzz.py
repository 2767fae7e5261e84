"""Damaged and hostile files for every loader: none may hang, fill the memory, end in a traceback or lose labels.

    make fuzz SECONDS=600
    python scripts/fuzz.py --kind npz --case 1234        one case again, with its traceback

Each case takes valid files of one kind, damages one of them by a rule drawn from the case's number, and loads them as
a user does. It may be refused (one line), load to the same values (the damage hit padding), or to other values where
nothing in the format could tell: no checksum covers them, or the checksums were made anew. Everything
else is a finding.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from fuzz_damage import damaged
from fuzz_kinds import KINDS, Kind

from dpot.data.base import Dataset, Documents
from dpot.errors import DataError, UsageError

SECONDS_AT_MOST = 20.0  # of a processor, for one case
WAITED_AT_MOST = 180.0  # for its end, on a machine that does other things as well
BYTES_AT_MOST = 500 << 20  # above what the process took before the case
ADDRESS_SPACE = 4 << 30  # likewise; more is a MemoryError, so that a finding does not take the machine down
OUTCOMES = ("refused", "same", "different", "finding")


# --- one case -----------------------------------------------------------------------------------------------------


def values(loaded: Any) -> dict[str, Any]:
    """What must be the same."""
    if not isinstance(loaded, Dataset):
        return dict(loaded)
    found: dict[str, Any] = {"classes": loaded.classes, "names": loaded.class_names, "columns": loaded.columns}
    for part, split in (("train", loaded.train), ("test", loaded.test)):
        found |= {f"{part} x": split.x.numpy().copy(), f"{part} y": None if split.y is None else split.y.numpy().copy()}
    return found | ({"words": loaded.words, "vectors": loaded.vectors.numpy()} if isinstance(loaded, Documents) else {})


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same, types and shapes included."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and bool(one == other)


@dataclass
class Bench:
    """Where cases are tried: the valid files of each kind and what they load to."""

    folder: Path
    seed: int
    truth: dict[str, dict[str, Any]] = field(default_factory=dict)

    def prepare(self, kind: Kind) -> None:
        """Write the valid files and load them once."""
        template = self.folder / f"valid {kind.name}"
        template.mkdir()
        os.environ["DPOT_CACHE"] = str(self.folder / "valid cache")
        kind.build(template)
        self.truth[kind.name] = values(kind.load(template))

    def damage(self, kind: Kind, number: int, root: Path) -> bool:
        """Damage a copy of the valid files; gives whether other values may come out of it."""
        rng = Random(f"{self.seed} {kind.name} {number}")
        chance = rng.random()
        if kind.around and chance < 0.2:
            rng.choice(kind.around)(rng, root)
            return False
        victim = rng.choice(sorted(p for p in root.glob(kind.files) if p.is_file() and p.suffix != ".lock"))
        resealed = bool(kind.inside) and chance < 0.6
        change = rng.choice(kind.inside) if resealed else damaged
        content = change(rng, victim.read_bytes())
        victim.unlink()
        victim.write_bytes(content)
        return resealed or not kind.sealed

    def judge(self, kind: Kind, number: int) -> tuple[str, str]:
        """(outcome, what was found) of one case."""
        root = self.folder / "case"
        shutil.copytree(self.folder / f"valid {kind.name}", root)
        os.environ["DPOT_CACHE"] = str(self.folder / "case cache")
        try:
            may_differ = self.damage(kind, number, root)
            before = memory("VmRSS", reset=True)
            try:
                found = values(kind.load(root))
            except (DataError, UsageError) as error:
                outcome = (
                    ("refused", "") if "\n" not in str(error) else ("finding", f"a message of several lines: {error}")
                )
                outcome = outcome if kind.refusable else ("finding", f"refused: {error}")
            except Exception:
                outcome = ("finding", traceback.format_exc())
            else:
                outcome = self.compare(kind, found, may_differ)
            taken = memory("VmHWM") - before
            return ("finding", f"took {taken >> 20} MB") if taken > BYTES_AT_MOST else outcome
        finally:
            shutil.rmtree(root)
            shutil.rmtree(self.folder / "case cache", ignore_errors=True)

    def compare(self, kind: Kind, found: dict[str, Any], may_differ: bool) -> tuple[str, str]:
        """What to make of values that came out of damaged files."""
        truth = self.truth[kind.name]
        if any(value is not None and found.get(name) is None for name, value in truth.items()):
            return "finding", "labels vanished"
        wrong = [name for name in truth if not equal(truth[name], found[name])]
        if wrong and not may_differ:
            return "finding", f"other values of {', '.join(wrong)} under sound checksums"
        return ("different" if wrong else "same"), ""


def memory(what: str, reset: bool = False) -> int:
    """Bytes that this process takes (VmRSS), or took at most (VmHWM) since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) << 10


def processor_time(process: int) -> float:
    """Seconds that another process has used."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended, and its connection will say so
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- many cases ---------------------------------------------------------------------------------------------------


def work(out: Connection, seed: int, first: int, step: int, kinds: tuple[str, ...], seconds: float) -> None:
    """Try cases first, first + step, … for so long; every start and every outcome is told."""
    warnings.simplefilter("ignore")
    logging.disable()
    os.environ["DPOT_OFFLINE"] = "1"
    os.fsync = lambda _: None  # no power cuts here, and waiting for the disk takes most of the time
    chosen = [kind for kind in KINDS if kind.name in kinds]
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), seed)
        for kind in chosen:
            bench.prepare(kind)
        space = memory("VmSize") + ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
        end = time.monotonic() + seconds
        number = first
        while time.monotonic() < end or number < len(chosen):  # every kind at least once
            kind = chosen[number % len(chosen)]
            out.send((number, kind.name, "", ""))
            out.send((number, kind.name, *bench.judge(kind, number)))
            number += step
    out.send(None)


def fuzz(
    seconds: float, processes: int, seed: int, kinds: tuple[str, ...]
) -> tuple[Counter[tuple[str, str]], list[tuple[str, int, str]]]:
    """(how many cases of each kind ended how, the findings as (kind, case, what))."""
    context = multiprocessing.get_context("fork")  # nothing has run here yet: there are no threads to lose
    counts: Counter[tuple[str, str]] = Counter()
    findings: list[tuple[str, int, str]] = []
    end = time.monotonic() + seconds
    running: dict[Connection, Any] = {}
    at: dict[Connection, tuple[int, str, float, float]] = {}  # the case, its kind, when it began by clock and processor

    def start(first: int) -> None:
        ours, theirs = context.Pipe(duplex=False)
        arguments = (theirs, seed, first, processes, kinds, max(0.0, end - time.monotonic()))
        running[ours] = context.Process(target=work, args=arguments, daemon=True)
        running[ours].start()
        theirs.close()
        at[ours] = (first, "(starting)", time.monotonic(), 0.0)

    def lose(connection: Connection, why: str) -> None:
        number, kind, *_ = at.pop(connection)
        process = running.pop(connection)
        process.kill()
        process.join()
        findings.append((kind, number, why))
        counts[kind, "finding"] += 1
        if kind != "(starting)" and time.monotonic() < end:
            start(number + processes)

    for first in range(processes):
        start(first)
    while running:
        for connection in wait(list(running), timeout=0.5):
            assert isinstance(connection, Connection)
            try:
                message = connection.recv()
            except EOFError:
                lose(connection, "the process died")
                continue
            if message is None:
                running.pop(connection).join()
                continue
            number, kind, outcome, what = message
            at[connection] = (number, kind, time.monotonic(), processor_time(running[connection].pid))
            if outcome:
                counts[kind, outcome] += 1
            if outcome == "finding":
                findings.append((kind, number, what))
        for connection in list(running):
            _, _, began, used = at[connection]
            if processor_time(running[connection].pid) - used > SECONDS_AT_MOST:
                lose(connection, f"no end within {SECONDS_AT_MOST:g} s of a processor")
            elif time.monotonic() - began > WAITED_AT_MOST:
                lose(connection, f"no end within {WAITED_AT_MOST:g} s")
    return counts, findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=[kind.name for kind in KINDS], action="append")
    parser.add_argument("--case", type=int, help="try this one again, of the kind given")
    options = parser.parse_args()
    kinds = tuple(options.kind or (kind.name for kind in KINDS))
    if options.case is not None:
        with tempfile.TemporaryDirectory() as name:
            bench = Bench(Path(name), options.seed)
            kind = next(kind for kind in KINDS if kind.name == kinds[0])
            bench.prepare(kind)
            print(": ".join(bench.judge(kind, options.case)))
        return 0
    counts, findings = fuzz(options.seconds, options.processes, options.seed, kinds)
    print(f"{'':14}{'tried':>9}" + "".join(f"{outcome:>11}" for outcome in OUTCOMES))
    for name in sorted({name for name, _ in counts}, key=lambda n: (*kinds, n).index(n)):
        row = [counts[name, outcome] for outcome in OUTCOMES]
        print(f"{name:14}{sum(row):>9,}" + "".join(f"{count:>11,}" for count in row))
    for name, number, what in findings[:40]:
        print(f"{name}, case {number} of seed {options.seed}: {what.strip().splitlines()[-1]}", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
