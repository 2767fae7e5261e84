"""Decoded tensors on disk: decode once, then map the file into memory.

An entry is a folder of .npy files and a meta.json, built under another name and renamed into place when
complete, so that a killed process leaves nothing that can be mistaken for an entry. Its key is a hash of the
source files' checksums and of every option that changes the tensors: an entry can become useless, never
wrong. A damaged entry (sizes, stamps and, where a stamp changed, hashes) is thrown away and rebuilt.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpot.data.files import cache_root, hash_file, locked, read_regular, stamp_of, writable, write_text
from dpot.errors import DataError

log = logging.getLogger("dpot.data")

META_AT_MOST = 1 << 30
FORMAT = 1  # raise it when the layout of an entry changes


@dataclass(frozen=True)
class Entry:
    """What the cache gives back: arrays mapped copy-on-write, and the facts their decoder left."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]


class Builder:
    """Takes the arrays of an entry while it is being decoded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []

    def empty(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array on disk to be filled piece by piece: a data set need not fit in memory."""
        self.names.append(name)
        place = self.folder / f"{name}.npy"
        with writable(self.folder.parent):
            # Made readable by its owner alone, whatever the umask; numpy then opens what is there.
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            if 0 in shape:  # an empty file cannot be mapped
                array = np.empty(shape, dtype)
                np.save(place, array)
                return array
            array = np.lib.format.open_memmap(place, mode="w+", dtype=np.dtype(dtype), shape=shape)
            if hasattr(os, "posix_fallocate"):  # on a full disk an error now, not a bus error at some later write
                with place.open("rb+") as f:
                    os.posix_fallocate(f.fileno(), 0, place.stat().st_size)
            return array

    def put(self, name: str, array: np.ndarray) -> None:
        """An array that is already complete."""
        self.empty(name, array.shape, array.dtype)[...] = array


def cached(
    label: str,
    key_parts: Mapping[str, Any],
    decode: Callable[[Builder], dict[str, Any]],
    *,
    verify: bool = False,
    keep: bool = True,
) -> Entry:
    """The entry for key_parts, decoded now if there is none; a second process waits for the first.

    keep=False: its files are deleted as soon as they are mapped, and what is mapped stays until the process ends.
    """
    text = json.dumps({"format": FORMAT, **key_parts}, sort_keys=True)
    key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    folder = cache_root() / "decoded" / f"{label}-{key[:24]}"
    entry = _open(folder, key, verify)
    if entry is None:
        with locked(folder.name, f"decoding {label}"):
            entry = _open(folder, key, verify)
            if entry is None:
                _build(folder, key, label, decode)
                entry = _open(folder, key, verify)
    if entry is None:
        raise DataError(f"{folder} cannot be read back: set DPOT_CACHE to a folder on a sound disk")
    if not keep:
        _remove(folder)
    return entry


def forget(labels: Collection[str] | None = None) -> list[str]:
    """Delete the entries of these data sets, or all of them; the names of what is gone."""
    gone = []
    for folder in sorted((cache_root() / "decoded").glob("*")):
        label = folder.name.removeprefix(".").removesuffix(".building").rpartition("-")[0]
        if labels is None or label in labels:
            with writable(folder.parent):
                _remove(folder)
            gone.append(folder.name)
    return gone


def _build(folder: Path, key: str, label: str, decode: Callable[[Builder], dict[str, Any]]) -> None:
    """Decode into a folder beside the final one, then rename. Called with the lock held."""
    log.info("decoding %s once into %s", label, folder)
    building = folder.with_name(f".{folder.name}.building")
    with writable(folder.parent):
        _remove(building)  # what a killed process left; the lock says that nobody is writing there now
        if folder.exists():
            log.warning("%s was damaged: decoding it again", folder)
            _remove(folder)
        building.parent.mkdir(parents=True, exist_ok=True)
        building.mkdir(mode=0o700)  # private records may be inside
    try:
        builder = Builder(building)
        facts = decode(builder)
        meta: dict[str, Any] = {"format": FORMAT, "key": key, "facts": facts, "arrays": {}}
        with writable(folder.parent):
            for name in builder.names:
                place = building / f"{name}.npy"
                _flush(place)
                meta["arrays"][name] = {"stamp": stamp_of(place), "sha256": hash_file(place)}
            meta["checksum"] = _checksum(meta)
            write_text(building / "meta.json", json.dumps(meta))
            os.rename(building, folder)
    except BaseException:
        _remove(building)
        raise


def _open(folder: Path, key: str, verify: bool) -> Entry | None:
    """The entry if it is whole, else None."""
    try:
        meta = json.loads(read_regular(folder / "meta.json", META_AT_MOST))
        if meta.get("key") != key or meta.pop("checksum", None) != _checksum(meta):
            return None
        arrays = {}
        for name, said in meta["arrays"].items():
            place = folder / f"{name}.npy"
            stamp = stamp_of(place)
            if stamp[0] != said["stamp"][0]:
                return None
            if (verify or stamp != said["stamp"]) and hash_file(place) != said["sha256"]:
                return None
            arrays[name] = _map(place)
        return Entry(arrays, meta["facts"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DataError):
        return None  # whatever is wrong with it, it is rebuilt from the source


def _map(place: Path) -> np.ndarray:
    """Copy-on-write: torch gets a writable view, the file stays as it is."""
    try:
        return np.load(place, mmap_mode="c", allow_pickle=False)
    except ValueError:
        return np.load(place, allow_pickle=False)  # an array without elements cannot be mapped


def _checksum(meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def _flush(place: Path) -> None:
    """To the disk before the rename: after a power cut an entry is whole or absent."""
    with place.open("rb+") as f:
        os.fsync(f.fileno())


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=False)


def cache_size() -> int:
    """Bytes that the decoded entries take."""
    folder = cache_root() / "decoded"
    return sum(f.stat().st_size for f in folder.rglob("*.npy")) if folder.is_dir() else 0
