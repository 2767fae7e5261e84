"""Run many dpot commands side by side on one GPU for a limited time, and pack what they leave behind.

    python scripts/batch.py commands.txt --limit 540 --pack results.tgz

Each line of the file is one worker: dpot commands separated by ';', run one after the other (without the word dpot, or
the name of a .py file in its place; '#' begins a comment). Small trainings do not fill a GPU: with NVIDIA's MPS, which
is started if it can be, several processes share it without taking turns, and what the first line leaves idle the others
get. All write to --output-root. When the time is up the workers are told to stop; what is finished is on record, what
is not goes on from its checkpoint when the same batch is run again. Records and pictures are packed every minute, kept
releases and the newest checkpoint of each training only with --checkpoints (they hold noise states: keep them private).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
QUEUES = 32  # of the GPU, in all: a worker that finds none left says that it is out of memory
STOPPED = (-signal.SIGTERM, 128 + signal.SIGTERM)  # how a command ends that was told to
STATE = (".safetensors", ".dpot", ".lock")  # releases, checkpoints, locks


def start_mps() -> bool:
    """Start the multi-process service for the children; without it they take turns. Whether it is there."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        print("batch: no MPS here; the workers take turns")
        return False
    folder = tempfile.mkdtemp(prefix="mps-")
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = folder
    subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False)
    check = [sys.executable, "-c", "import torch; torch.ones(1, device='cuda')"]
    if subprocess.run(check, capture_output=True, check=False).returncode:
        print("batch: MPS does not work here; the workers take turns")
        stop_mps()
        del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]
        return False
    print("batch: the workers share the GPU by MPS")
    return True


def stop_mps() -> None:
    """End the service: it holds GPU memory, and another batch starts its own."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit -t 5\n", capture_output=True, timeout=15, check=False)


class Worker(threading.Thread):
    """One line of the file: its commands one after the other, with a log of their own."""

    def __init__(self, number: int, line: str, root: Path, deadline: float, queues: int) -> None:
        super().__init__(daemon=True)
        self.environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "CUDA_DEVICE_MAX_CONNECTIONS": str(queues),
            "CUDA_MPS_CLIENT_PRIORITY": str(min(number, 1)),
        }
        self.commands = [shlex.split(part) for part in line.split(";") if part.strip()]
        self.log = root / f"worker-{number}.log"
        self.root, self.deadline = root, deadline
        self.process: subprocess.Popen[bytes] | None = None
        self.done = self.failed = 0

    def run(self) -> None:
        """Until the commands or the time are at an end; a command that fails does not stop those after it."""
        with self.log.open("ab") as log:
            for command in self.commands:
                if time.monotonic() > self.deadline:
                    return
                ours = ["-m", "dpot", *command, f"output_root={self.root}"]
                call = [sys.executable, *(command if command[0].endswith(".py") else ours)]
                self.process = subprocess.Popen(
                    call, stdout=log, stderr=log, env=self.environment, start_new_session=True
                )
                code = self.process.wait()
                self.done += code == 0
                self.failed += code not in (0, *STOPPED)

    def stop(self) -> None:
        """Stop the running command and its children, and begin no other."""
        self.deadline = 0.0
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)


def is_newest(path: Path) -> bool:
    """Not a checkpoint with a later one beside it; their names are in the order of their steps."""
    return path.suffix != ".dpot" or path == max(path.parent.glob("*.dpot"), default=path)


def pack(root: Path, target: Path, checkpoints: bool) -> None:
    """Everything below root but state files (unless asked for), written whole or not at all."""
    partial = target.with_suffix(".part")
    with tarfile.open(partial, "w:gz") as tar:
        for path in sorted(root.rglob("*")):
            wanted = path.suffix not in STATE or (checkpoints and is_newest(path))
            wanted = wanted and path.resolve() not in (target.resolve(), partial.resolve())
            if path.is_file() and wanted and "statistics" not in path.parts:
                with contextlib.suppress(FileNotFoundError):  # a worker has deleted it since, an older checkpoint
                    tar.add(path, path.relative_to(root.parent))
    partial.replace(target)


def main() -> None:
    """Start the workers, pack now and then, stop them in time, say what each did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", type=Path)
    parser.add_argument("--limit", type=float, default=540, help="seconds")
    parser.add_argument("--output-root", type=Path, default=Path("outputs"))
    parser.add_argument("--pack", type=Path, default=Path("results.tgz"))
    parser.add_argument("--checkpoints", action="store_true", help="pack the state of unfinished runs too")
    options = parser.parse_args()
    began = time.monotonic()
    lines = [line.split("#")[0].strip() for line in options.commands.read_text().splitlines()]
    root = options.output_root.resolve()
    root.mkdir(parents=True, exist_ok=True)
    options.pack.resolve().parent.mkdir(parents=True, exist_ok=True)
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *([path] if path else [])])
    with_mps = start_mps()
    lines = list(filter(None, lines))
    queues = max(2, QUEUES // max(1, len(lines)))
    workers = [Worker(i, line, root, began + options.limit, queues) for i, line in enumerate(lines)]
    for worker in workers:
        worker.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    packed = began
    try:
        while any(w.is_alive() for w in workers) and time.monotonic() - began < options.limit:
            time.sleep(0.5)
            if time.monotonic() - packed > 60:
                pack(root, options.pack, options.checkpoints)
                packed = time.monotonic()
    finally:  # whatever happens: nothing goes on without us
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(10)
        if with_mps:
            stop_mps()
    pack(root, options.pack, options.checkpoints)
    for worker in workers:
        last = [x for x in worker.log.read_text(errors="replace").splitlines() if "steps/s" not in x and x.strip()][-1:]
        print(f"{worker.log.name}: {worker.done} of {len(worker.commands)} commands done; {''.join(last)[:140]}")
    size = options.pack.stat().st_size / 2**20
    print(
        f"{time.monotonic() - began:.0f} s; {len(list(root.glob('runs/*/record.json')))} records, {size:.1f} MB packed",
        flush=True,
    )
    if any(worker.failed for worker in workers):
        sys.exit(1)


if __name__ == "__main__":
    main()
