"""Releases that are made once, on the disk: found again by every run that would release the same.

A release is named by its owner, which stands for the data, the budget and what is released, and by the events that it
consists of. How the result is shown is no part of this, so a run that only shows it otherwise finds it and spends
nothing. One process at a time makes a release; another one that wants the same waits for it.

The order of things, so that whatever is on the disk is in the data set's spending file (dpot/privacy/spending.py):

    begin      the charge is on the disk
    make       the noise is drawn, in memory
    made       from here on it counts even if the file is deleted
    write      a temporary file that only its owner can read, flushed
    rename

A run that is killed leaves no file, a part of the temporary one, or all of it. The next run deletes a part, and takes a
whole one for what it is: the release that was made.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from torch import Tensor

from dpot.disk import flush_folder
from dpot.errors import DataError
from dpot.methods.sealed import read_sealed, seal
from dpot.privacy.ledger import Entry
from dpot.privacy.spending import Account

log = logging.getLogger("dpot")


@dataclass(frozen=True)
class Kept:
    """Where the releases of one owner lie, and the account that they are entered in (none: the data are public)."""

    folder: Path
    owner: str
    account: Account | None = None

    @contextmanager
    def place(self, name: str, entries: Sequence[Entry]) -> Iterator[Place]:
        """The place of one release, for one process at a time."""
        what = json.dumps([self.owner, name, [entry.to_dict() for entry in entries]], sort_keys=True)
        path = self.folder / f"release-{name}-{hashlib.sha256(what.encode()).hexdigest()[:16]}.safetensors"
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(path.with_suffix(".lock"), timeout=0, mode=0o600)
        try:
            lock.acquire()
        except Timeout:
            log.info("waiting for another process that makes this very release: %s", path.name)
            lock.acquire(timeout=-1)
        try:
            yield Place(path, name, list(entries), self.account)
        finally:
            lock.release()

    def forget(self) -> None:
        """Begin anew: what is kept is deleted. It stays counted."""
        for path in self.folder.glob("release-*.safetensors*"):
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Place:
    """One release, locked."""

    path: Path
    name: str
    entries: list[Entry]
    account: Account | None

    @property
    def begun(self) -> Path:
        """The temporary file; its name is fixed, so that the next run finds it."""
        return self.path.with_suffix(".safetensors.tmp")

    def find(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What is kept here, with the facts beside it. What a killed run left is put in order first."""
        if not self.path.exists() and self.begun.exists():
            try:
                read_sealed(self.begun)
            except DataError:
                self.begun.unlink()  # a part
            else:
                os.replace(self.begun, self.path)
        self.begun.unlink(missing_ok=True)
        if not self.path.exists():
            return None
        tensors, facts, _ = read_sealed(self.path)
        if self.account:
            self.account.found(self.name, self.entries)
        return tensors, facts

    def begin(self) -> None:
        """Before the noise is drawn."""
        if self.account:
            self.account.begin(self.name, self.entries)

    def put(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Keep what was made."""
        if self.account:
            self.account.made(self.name)
        content = seal(tensors, facts)
        try:
            with open(os.open(self.begun, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self.begun, self.path)
        except OSError:  # the disk is full: nothing is left, and the next run may draw it again
            self.begun.unlink(missing_ok=True)
            if self.account:
                self.account.lost(self.name)
            raise
        flush_folder(self.path.parent)
