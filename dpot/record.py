"""What a run leaves behind: one directory with its config, metrics, privacy statement and provenance.

`record.json` is written last, atomically, and never again: a directory without it is an unfinished run
(perhaps with a checkpoint to resume from), never a result.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf

from dpot.config import INSTALLED, REPOSITORY
from dpot.disk import write_atomically
from dpot.errors import DataError, UsageError
from dpot.fingerprint import code_fingerprint, differences, fingerprint
from dpot.places import without_places
from dpot.version import __version__

RECORD = "record.json"
GIT = shutil.which("git")  # found before any configuration has been read; GIT_… variables can make git run commands
GIT_ENVIRONMENT = {name: value for name, value in os.environ.items() if name in ("HOME", "PATH", "XDG_CONFIG_HOME")}
PRIVATE = "private"  # the folder of a run for what shows private records
PRIVATE_NOTE = (
    "These files show private records, and no ε covers them. They are for the owner of the data: pass none on.\n"
)
log = logging.getLogger("dpot")
LIBRARIES = (
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "scikit-learn",
    "hydra-core",
    "dp-accounting",
    "autodp",
    "pot",
)


@dataclass
class Record:
    """The result of one run, as `output=json` prints it."""

    config: dict[str, Any]
    metrics: dict[str, Any]
    privacy: dict[str, Any]
    provenance: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)

    def save(self, directory: Path) -> None:
        """Write record.json atomically; whatever it names in `files` must already be there."""
        missing = [name for name in self.files.values() if not (directory / name).exists()]
        if missing:
            raise DataError(f"{directory}: the record names {missing[0]}, which was not written")
        write_atomically(directory / RECORD, json.dumps(asdict(self), indent=1, default=str) + "\n")

    def answer(self, directory: Path) -> dict[str, Any]:
        """The document of `output=json`: the record with its files where they lie."""
        return asdict(self) | {"files": {name: str(directory / file) for name, file in self.files.items()}}

    @classmethod
    def load(cls, directory: Path) -> Record:
        """Read a record back; one that is not whole is refused by name."""
        path = directory / RECORD
        try:
            content = json.loads(path.read_text())
            return cls(**{key: content[key] for key in ("config", "metrics", "privacy", "provenance", "files")})
        except FileNotFoundError:
            raise DataError(f"{path}: no record; the run has not finished") from None
        except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: not a record ({type(error).__name__}); remove it and run again") from None


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are one number each; the mean of those that were measured several times."""
    single = {name: value.get("mean") if isinstance(value, Mapping) else value for name, value in metrics.items()}
    return {
        name: float(value)
        for name, value in single.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


class Run:
    """The directory of one run. Only one process works in it at a time; a second one is told so."""

    def __init__(self, cfg: DictConfig) -> None:
        self.cfg = cfg
        self.fingerprint = fingerprint(cfg)
        names = [str(cfg[group]._target_).rpartition(".")[2].lower() for group in ("task", "dataset", "loss")]
        name = "-".join([*names, f"s{cfg.seed}", self.fingerprint])
        self.directory = Path(cfg.output_root) / "runs" / name
        self.started = time.time()
        self.forgotten = False  # whether an earlier result was thrown away, so that its ε is spent again
        self._lock = FileLock(self.directory.parent / f"{name}.lock", timeout=0)

    def private_folder(self) -> Path:
        """Where files go that show private records: readable by their owner alone, and marked."""
        folder = self.directory / PRIVATE
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        write_atomically(folder / "README.txt", PRIVATE_NOTE)
        return folder

    def __enter__(self) -> Run:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"output_root={self.cfg.output_root}: cannot write there ({error.strerror})") from None
        try:
            self._lock.acquire()
        except Timeout:
            raise UsageError(f"{self.directory}: another process is at this very run; wait for it") from None
        self.directory.mkdir(exist_ok=True)  # one that was refused may have just removed it
        if self.cfg.rerun:
            self.forget()
        return self

    def forget(self) -> None:
        """Begin anew: no record, no checkpoint; kept releases are forgotten by whoever keeps them."""
        self.forgotten = True
        (self.directory / RECORD).unlink(missing_ok=True)
        self.discard()

    def discard(self) -> None:
        """Delete the checkpoints, which hold the states of noise generators, and what killed runs left half-written.

        Neither may outlive the record. Notes for a sheet are written by other processes too, and are left alone.
        """
        for path in self.directory.glob(".*.tmp"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif not path.name.startswith(".cell-"):
                path.unlink(missing_ok=True)
        for folder, _, files in os.walk(self.checkpoints):  # parts of a training have folders of their own
            for name in files:
                Path(folder, name).unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints, ignore_errors=True)  # of folders alone now

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # nothing came of it: nothing is left
            self.checkpoints.rmdir()
        with contextlib.suppress(OSError):
            self.directory.rmdir()
        self._lock.release()

    @property
    def checkpoints(self) -> Path:
        """Where all lies that an unfinished run needs to go on, and a finished one must not keep."""
        return self.directory / "checkpoints"

    @property
    def code(self) -> str:
        """A hash of the code that this run is made by."""
        return code_fingerprint(self.cfg)

    def finished(self) -> Record | None:
        """The record of this very configuration, if there is one.

        It is used again by default: to run a private mechanism a second time on the same data would
        spend the budget a second time. `rerun=true` does so on request. Checkpoints beside it are those of a run that
        was killed right after its record was written: they go now.
        """
        if not (self.directory / RECORD).exists():
            return None
        record = Record.load(self.directory)
        if other := differences(record.config, self.cfg):
            log.warning("the record of this configuration has another %s: it is run again", ", ".join(other))
            self.forget()
            return None
        self.discard()
        return record

    def finish(
        self,
        metrics: dict[str, Any],
        privacy: dict[str, Any],
        data: dict[str, Any],
        files: dict[str, str] | None = None,
    ) -> Record:
        """Write the record, the very last act of a run."""
        plain: Any = OmegaConf.to_container(self.cfg, resolve=True)
        kept = {key: value for key, value in plain.items() if key not in ("output_root", "data_root")}
        record = Record(
            config=without_places(kept),
            metrics=metrics,
            privacy=privacy,
            provenance=provenance(self.cfg)
            | {
                "seconds": round(time.time() - self.started, 3),
                "data": data,
                "fingerprint": {"config": self.fingerprint, "code": self.code},
            },
            files=files or {},
        )
        record.save(self.directory)
        return record


def provenance(cfg: DictConfig) -> dict[str, Any]:
    """Commit, libraries, device and seed of a run."""
    commit, dirty = commit_of_code()
    return {
        "dpot": __version__,
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in LIBRARIES},
        "device": device_name(str(cfg.device)),
        "seed": cfg.seed,
        "command": without_places([argument for argument in sys.argv[1:] if "_root=" not in argument]),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def commit_of_code() -> tuple[str | None, bool | None]:
    """The commit of the code that runs and whether the tree differs from it; an installed package has only a version.

    A bundle's note comes first: the repository that git finds from a bundle is one that it lies in, with other code.
    """
    note = REPOSITORY / "COMMIT"  # written by scripts/bundle.py
    if note.exists():
        commit, _, state = note.read_text().strip().partition(" ")
        return commit, state == "dirty"
    if INSTALLED:  # a repository that the environment lies in is somebody else's
        return None, None
    try:
        return _git("rev-parse", "HEAD"), bool(_git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def name_of_code() -> str:
    """The same in a few letters, or the version of the package."""
    commit, dirty = commit_of_code()
    return commit[:12] + (" with changes" if dirty else "") if commit else f"dpot {__version__}"


def _git(*arguments: str) -> str:
    """What git says of the code. Its program and environment are those of the user's shell, whatever came after."""
    if GIT is None:
        raise FileNotFoundError("git")
    command = [GIT, "-c", "core.fsmonitor=false", "-C", str(REPOSITORY), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20, env=GIT_ENVIRONMENT)
    return done.stdout.strip()


def device_name(device: str) -> str:
    """The device as people name it: 'NVIDIA H200', or the processor's model."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"CPU ({platform.machine()}, {cores} cores)"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
