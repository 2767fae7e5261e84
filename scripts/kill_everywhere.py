"""Kill small runs at their file operations, start them again, and look at what is left on the disk.

    python scripts/kill_everywhere.py                    # at every operation of every run (make kills)
    python scripts/kill_everywhere.py --points 2         # at two operations of each, as the tests do
    python scripts/kill_everywhere.py --tasks adapt --at 17     # one kill, to look into

A file operation is whatever changes the disk: creating, renaming and deleting files and folders, and flushing them. The
process dies right before it (`os._exit`: no handler runs, no buffer is written), so that the death after one
operation is the death before the next. Then the same run is started again, killed again where several kills are asked
for, and let go to the end. A child process is forked for each, after everything has been imported.

What must hold: no half record; a record that was there stays as it is; the next start goes to the end, with the ledger
and the steps of a run that nobody killed; no state of a noise generator and no temporary file beside a record; of
each noisy release one version ever on the disk.
"""

from __future__ import annotations

import argparse
import builtins
import gc
import hashlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dpot import record
from dpot.composing import compose_config
from dpot.errors import DataError
from dpot.launch import run
from dpot.record import Record
from dpot.tasks import reproduce

KILLED = 87
DIGITS = ["dataset=digits", "profile=smoke", "device=cpu"]
RUNS = {
    "generate": ["task=generate", *DIGITS, "loss=dp_merf", "loss.features=20", "loss.batch=50", "classifier.kinds=[]"],
    "adapt": ["task=adapt", "dataset=dslr_to_webcam", *DIGITS[1:], "loss.batch=16", "task.picture=none"],
    "synthesize": ["task=synthesize", *DIGITS, "dataset.size=8", "generator.width=4", "task.utility=false"],
    "reproduce": ["task=reproduce", "paper=dp_swd", "table=2", *DIGITS[1:], "task.rows=[DP-MERF]", "profile.steps=2"],
}
RUNS["generate"] += ["tracker=csv", "task.fid=false", "profile.steps=4", "profile.samples=20"]
RUNS["adapt"] += ["profile.steps=4"]
RUNS["synthesize"] += ["profile.steps=2", "loss.rounds=1", "privacy.epsilon=10", "task.count=20", "task.format=png"]
RUNS["reproduce"] += ["profile.seeds=1", "profile.samples=20", "profile.passes=1"]


@dataclass
class Shim:
    """Stands before everything that changes the disk below a folder, and dies before the operation `fatal`."""

    root: str
    fatal: int | None
    seen: list[str] = field(default_factory=list)

    def strike(self, name: str, path: Any) -> None:
        """One operation is about to be made."""
        place = os.fspath(path) if not isinstance(path, int) else os.readlink(f"/proc/self/fd/{path}")
        place = place.decode() if isinstance(place, bytes) else place
        if os.path.isabs(place) and not place.startswith(self.root):
            return
        self.seen.append(f"{name} {os.path.basename(place)}")
        if len(self.seen) == self.fatal:
            os._exit(KILLED)

    def wrap(self, name: str, plain: Callable[..., Any], writes: Callable[..., bool] = lambda *_, **__: True) -> Any:
        """The function, with a strike before it where it writes."""

        def struck(path: Any, *more: Any, **named: Any) -> Any:
            if writes(path, *more, **named):
                self.strike(name, path)
            return plain(path, *more, **named)

        return struck

    def install(self) -> None:
        """In this process, from now on."""
        for name in ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "fsync", "truncate", "link", "symlink"):
            setattr(os, name, self.wrap(name, getattr(os, name)))
        os.open = self.wrap("open", os.open, lambda _, flags=0, *__, **___: bool(flags & (os.O_CREAT | os.O_TRUNC)))

        def opened(file: Any, mode: str = "r", *_: Any, **__: Any) -> bool:
            return not isinstance(file, int) and bool(set(mode) & set("wax+"))

        builtins.open = io.open = self.wrap("open", open, opened)  # type: ignore[assignment]


@dataclass
class End:
    """How a start ended: what it did to the disk, and the words of an error."""

    code: int
    operations: list[str]
    error: str = ""


def start(task: str, place: Path, fatal: int | None) -> End:
    """Fork a process that makes a run in a folder, and wait for its end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        gc.disable()  # to collect is to touch, and thereby copy, all that was imported
        code, error = 0, ""
        shim = Shim(str(place), fatal)
        try:
            os.environ |= {"DPOT_CACHE": str(place / "cache")}
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            shim.install()
            run(CONFIGS[task](place))
        except BaseException:
            code, error = 1, traceback.format_exc()
        with os.fdopen(writing, "w") as told:
            json.dump([shim.seen, error], told)
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        heard = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    operations, error = json.loads(heard) if heard else ([], "")
    return End(code, operations, error)


def composed(task: str, data: Path) -> Callable[[Path], Any]:
    """The configuration of a run, composed once."""
    cfg = compose_config([*RUNS[task], f"data_root={data}", "output_root=nowhere"])

    def placed(place: Path) -> Any:
        own = cfg.copy()
        own.output_root = str(place / "outputs")
        return own

    return placed


CONFIGS: dict[str, Callable[[Path], Any]] = {}


def lay_out_data(root: Path) -> Path:
    """Small features for the adaptation."""
    (root / "office31").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for domain in ("dslr", "webcam"):
        x, y = rng.standard_normal((93, 10)).astype(np.float32), np.arange(93) % 31
        np.savez(root / "office31" / f"{domain}_resnet50.npz", x=x, y=y)
    return root


def records(place: Path) -> dict[Path, bytes]:
    """The records below a folder, which must be whole."""
    found = {path: path.read_bytes() for path in place.rglob("record.json")}
    for path in found:
        Record.load(path.parent)
    return found


def promise(kept: Record) -> dict[str, Any]:
    """What a run says it has released and trained: the same whether it was killed or not."""
    said = {key: kept.privacy.get(key) for key in ("epsilon", "delta", "releases", "entries", "not_covered")}
    return said | {"steps": kept.metrics["training"]["steps"], "files": sorted(kept.files)}


def releases(place: Path) -> set[tuple[str, str]]:
    """The kept releases on the disk, by name and content; a temporary file that is not empty is one, too."""
    found = [path for path in place.rglob("*release-*") if path.is_file() and path.stat().st_size]
    return {(p.name.lstrip(".").partition(".")[0], hashlib.sha256(p.read_bytes()).hexdigest()) for p in found}


def faults(place: Path, before: dict[Path, bytes], wanted: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong in a folder after the last start."""
    found = []
    after = records(place)
    if any(after.get(path) != content for path, content in before.items()):
        found.append("a record was lost or changed")
    if [promise(Record.load(path.parent)) for path in sorted(after)] != list(wanted):
        found.append("another statement, or other steps, than without a kill")
    left = list((place / "outputs").rglob("*"))
    if any(path.suffix in (".dpot", ".part") or path.name == "checkpoints" for path in left):
        found.append("the state of a noise generator beside a record")
    if any(path.name.endswith(".tmp") and not path.name.startswith(".cell-") for path in left):  # see Run.discard
        found.append("a temporary file beside a record")
    for path in after:
        missing = [name for name in Record.load(path.parent).files.values() if not (path.parent / name).exists()]
        found += [f"a record without its file {name}" for name in missing]
    return found


def killed_at(task: str, points: Sequence[int], wanted: Sequence[dict[str, Any]]) -> list[str]:
    """Start a run, kill it at each of these operations in turn, let the last start go to the end, and look."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        before: dict[Path, bytes] = {}
        made: set[tuple[str, str]] = set()
        try:
            for point in [*points, None]:
                end = start(task, place, point)
                if end.code not in (KILLED, 0):
                    return [f"the start after a kill fails: {(end.error.splitlines() or [str(end.code)])[-1]}"]
                made |= releases(place)
                if point is not None:
                    before |= records(place)
            twice = len(made) > len({name for name, _ in made})
            return faults(place, before, wanted) + (["a release was made twice"] if twice else [])
        except DataError as error:
            return [f"a half record: {error}"]


def whole(task: str) -> tuple[list[str], list[dict[str, Any]]]:
    """A run that nobody kills: its operations, and what it promises.

    It is made in this process first, so that a fork has imported and prepared everything already. (On a CPU autograd
    goes on in a fork.)
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DPOT_CACHE"] = f"{folder}/cache"
        run(CONFIGS[task](Path(folder)))
    gc.freeze()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        end = start(task, place, None)
        if end.code:
            raise SystemExit(f"{task}: {end.error}")
        return end.operations, [promise(Record.load(path.parent)) for path in sorted(records(place))]


def chosen(count: int, points: int | None, seed: int) -> list[list[int]]:
    """Every operation and as many sequences of two or three kills as a tenth of them; or a fixed selection."""
    draw = random.Random(seed)
    if points is not None:
        return [[1 + (2 * index + 1) * count // (2 * points)] for index in range(points)]
    sequences = [[draw.randint(1, count) for _ in range(draw.choice((2, 3)))] for _ in range(count // 10)]
    return [[point] for point in range(1, count + 1)] + sequences


def main() -> None:
    """Kill, and say what was found; exit code 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(RUNS), help="which runs, separated by commas")
    parser.add_argument("--points", type=int, help="so many operations of each instead of every one")
    parser.add_argument("--at", type=int, nargs="+", help="only these kills, one after the other")
    given = parser.parse_args()
    torch.set_num_threads(1)
    record.commit_of_code = lambda: (None, None)  # neither is a matter of files that a run writes, and both take time
    record.code_fingerprint = reproduce.code_fingerprint = lambda _: "the same"
    reproduce.Reproduce._needs_demo = lambda *_: True  # type: ignore[method-assign] # embedded digits: no network
    data = Path(tempfile.mkdtemp())
    summary, failed = {}, False
    try:
        lay_out_data(data / "data")
        for task in given.tasks.split(","):
            CONFIGS[task] = composed(task, data / "data")
            operations, wanted = whole(task)
            plan = [given.at] if given.at else chosen(len(operations), given.points, seed=0)
            bad: Counter[str] = Counter()
            for points in plan:
                for fault in killed_at(task, points, wanted):
                    bad[fault] += 1
                    where = ", ".join(f"{p} ({operations[p - 1]})" for p in points)
                    print(f"{task}: killed at {where}: {fault}", file=sys.stderr, flush=True)
            summary[task] = {"operations": len(operations), "kills": sum(map(len, plan)), "faults": dict(bad)}
            print(f"{task}: {json.dumps(summary[task])}", file=sys.stderr, flush=True)
            failed |= bool(bad)
    finally:
        shutil.rmtree(data)
    print(json.dumps(summary))
    sys.exit(failed)


if __name__ == "__main__":
    main()
