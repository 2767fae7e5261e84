"""Checkpoints: everything a training needs to go on bit for bit, in one file that is whole or is refused.

A file is one line of ASCII (`dpot-checkpoint 1 sha256=… bytes=…`) followed by a safetensors block whose
metadata hold, as JSON, all that is not a tensor. No pickle: reading a checkpoint never runs code.

**A checkpoint is as sensitive as the private data.** It holds the state of the noise and sampling
generators: whoever reads it can recompute the noise of the steps that follow, subtract it, and see the
private sums bare. Hence files are created with mode 0600, at most two are kept, and the training that made
them deletes them when its result is safely written (`Engine.discard`). Never publish one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from dpot.errors import UsageError
from dpot.ranges import NonNegative

log = logging.getLogger(__name__)

MAGIC = b"dpot-checkpoint 1 "
GENERATIONS = 2  # the last good one and the one before it, should the last be damaged
_NAME = re.compile(r"step-(\d{12})\.dpot")


@dataclass(frozen=True)
class CheckpointPolicy:
    """Where and how often. One directory per training; resume=False begins anew and removes its old ones.

    `code` names the code that trains, for the record of a run that other code goes on with.
    """

    directory: str | Path
    every_seconds: NonNegative = 300.0
    resume: bool = True
    code: str | None = None


class Refused(Exception):
    """A file that is not a whole checkpoint of this training; the message says why."""


class Foreign(Refused):
    """A whole checkpoint, but of another configuration or device."""


def encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A JSON tree for a tree of dicts, lists, tuples, scalars and tensors; the tensors go into `tensors`."""
    if isinstance(value, Tensor):
        key = f"t{len(tensors)}"
        # A copy: safetensors refuses tensors that share memory, and the training writes on in place.
        tensors[key] = value.detach().to("cpu", copy=True).contiguous()
        return {"$tensor": key}
    if isinstance(value, Mapping):
        return {"$dict": [[encode(k, tensors), encode(v, tensors)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        items = [encode(item, tensors) for item in value]
        return items if isinstance(value, list) else {"$tuple": items}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be stored in a checkpoint")


def decode(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of encode."""
    if isinstance(tree, list):
        return [decode(item, tensors) for item in tree]
    if isinstance(tree, dict):
        ((kind, content),) = tree.items()
        if kind == "$tensor":
            return tensors[content]
        if kind == "$tuple":
            return tuple(decode(item, tensors) for item in content)
        return {decode(k, tensors): decode(v, tensors) for k, v in content}
    return tree


class Checkpoints:
    """The checkpoints of one training in one directory."""

    def __init__(self, policy: CheckpointPolicy, fingerprint: str, device: str) -> None:
        self.policy = policy
        self.directory = Path(policy.directory)
        self.fingerprint, self.device = fingerprint, device
        self._good: list[Path] = []
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            writable = os.access(self.directory, os.W_OK | os.X_OK)
        except OSError:
            writable = False
        if not writable:
            raise UsageError(f"checkpoints cannot be written to {self.directory}: choose another directory")

    @property
    def last(self) -> Path | None:
        """The newest checkpoint known to be good."""
        return self._good[-1] if self._good else None

    def save(self, step: int, state: Mapping[str, Any]) -> bool:
        """Write the state after `step` steps; False, with a warning, if the disk refuses (the old ones stay).

        The file appears under its name only when it is whole and on the disk: it is written beside it,
        flushed, and renamed.
        """
        tensors: dict[str, Tensor] = {}
        head = {"fingerprint": self.fingerprint, "device": self.device, "torch": str(torch.__version__)}
        meta = {"head": json.dumps(head), "state": json.dumps(encode(state, tensors))}
        payload = safetensors.torch.save(tensors, metadata=meta)
        line = MAGIC + f"sha256={hashlib.sha256(payload).hexdigest()} bytes={len(payload)}\n".encode()
        target = self.directory / f"step-{step:012d}.dpot"
        part = target.with_suffix(".part")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(line)
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, target)
            _sync_directory(self.directory)
        except OSError as error:
            part.unlink(missing_ok=True)
            kept = f"{self.last.name} is kept" if self.last else "there is none yet"
            log.warning(
                "checkpoint of step %d not written to %s (%s): free some space; training goes on, %s",
                step,
                self.directory,
                error.strerror or error,
                kept,
            )
            return False
        self._good = [path for path in self._good if path != target][-(GENERATIONS - 1) :] + [target]
        for path in self._files():
            if path not in self._good:
                path.unlink(missing_ok=True)
        return True

    def load(self) -> tuple[Path, Any] | None:
        """The newest whole checkpoint of this training, or None where there is none.

        Damaged files and files of another kind are passed over by name, with a warning. A checkpoint of
        another configuration is an error: going on would mix two trainings' checkpoints in one directory.
        """
        found: tuple[Path, Any] | None = None
        for path in sorted(self._files(), reverse=True):
            try:
                state = self._read(path)
            except Foreign as refusal:
                raise UsageError(
                    f"checkpoint {path} {refusal}: delete it, or give this training a directory of its own"
                ) from refusal
            except Refused as refusal:
                log.warning("checkpoint %s refused: it %s", path, refusal)
            else:
                found = found or (path, state)
        if found and not self.policy.resume:
            self.discard()
            return None
        self._good = [found[0]] if found else []
        return found

    def discard(self) -> None:
        """Delete this training's checkpoints (they hold generator states), half-written ones included."""
        for path in [*self._files(), *self.directory.glob("step-*.part")]:
            path.unlink(missing_ok=True)
        self._good = []
        if self.directory.is_dir() and not any(self.directory.iterdir()):
            self.directory.rmdir()

    def _files(self) -> list[Path]:
        if not self.directory.is_dir():
            return []
        return [path for path in self.directory.iterdir() if _NAME.fullmatch(path.name)]

    def _read(self, path: Path) -> Any:
        try:
            blob = path.read_bytes()
        except OSError as error:
            raise Refused(f"cannot be read ({error.strerror})") from error
        line, _, payload = blob.partition(b"\n")
        if not line.startswith(MAGIC):
            raise Refused("is not a checkpoint of this program")
        stated = dict(part.split(b"=", 1) for part in line[len(MAGIC) :].split() if b"=" in part)
        if stated.get(b"bytes") != str(len(payload)).encode():
            raise Refused(f"is truncated ({len(payload)} bytes of {stated.get(b'bytes', b'?').decode()})")
        if stated.get(b"sha256") != hashlib.sha256(payload).hexdigest().encode():
            raise Refused("is corrupt (its checksum does not match)")
        meta = _metadata(payload)
        head = json.loads(meta["head"])
        if head["fingerprint"] != self.fingerprint:
            raise Foreign("was written by another configuration")
        if head["device"] != self.device:
            raise Foreign(f"was written on {head['device']}, and this training runs on {self.device}")
        if head["torch"] != str(torch.__version__):
            log.warning("checkpoint %s was written by torch %s: the last bits may differ", path, head["torch"])
        return decode(json.loads(meta["state"]), safetensors.torch.load(payload))


def _metadata(payload: bytes) -> dict[str, str]:
    """The metadata of a safetensors block: 8 bytes of length, then a JSON header."""
    length = int.from_bytes(payload[:8], "little")
    metadata: dict[str, str] = json.loads(payload[8 : 8 + length])["__metadata__"]
    return metadata


def _sync_directory(directory: Path) -> None:
    """Make a rename survive a power failure, where the file system lets a directory be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
