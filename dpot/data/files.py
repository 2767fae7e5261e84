"""Files on disk: where they may lie, what they hash to, and who may write at a time.

Hashing tens of megabytes at every start would cost more than everything else, so a hash is remembered with
the file's stamp (size, modification time, change time, inode). That is safe against everything that goes
through the file system: a write changes the change time, which no ordinary program can set back; a copied or
replaced file has another inode. Two things it cannot see: a write within the clock's granularity of the
hashing, which is why a file younger than two seconds is never remembered, and bits that rot beneath the file
system, for which `dpot task=data task.verify=true` hashes every byte again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from dpot.data.base import KEYED
from dpot.errors import DataError
from dpot.regular import open_regular, printable, unreadable

log = logging.getLogger("dpot.data")

YOUNG_SECONDS = 2.0  # coarser than the time stamps of any file system in use
KEY_BYTES = 32
SOURCE_AT_MOST = 8 << 30  # bytes of one source file; full CelebA takes 1.4 GB. A sparse file may claim any size
LEDGER_AT_MOST = 1 << 30  # a folder of a million images has one of 200 MB
UNPACKED_FREELY = 32 << 20  # a small archive may unpack to this much, whatever its ratio
EXPANSION_AT_MOST = 100  # beyond that: images and tables shrink by 2 to 30, an archive made to fill memory by 1,000
LOCK_SECONDS = 3600.0  # full CelebA decodes in minutes; an hour means that something is stuck


@dataclass(frozen=True)
class Wanted:
    """A file a data set needs: `places` under a data root where it may lie, most usual first."""

    key: str
    places: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """One way in which a data set comes: the files that make it complete."""

    name: str
    files: tuple[Wanted, ...]


def cache_root() -> Path:
    """Where downloads (if the data root cannot take them), decoded tensors and checksums are kept."""
    given = os.environ.get("DPOT_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "dpot"
    except RuntimeError:
        raise DataError("this user has no home folder: set DPOT_CACHE to a folder that you may write in") from None


def given_root(data_root: str | Path | None) -> Path | None:
    """The user's data root: the argument, else DPOT_DATA, else none."""
    place = data_root or os.environ.get("DPOT_DATA")
    return Path(place).expanduser().absolute() if place else None


def search_roots(data_root: str | Path | None) -> list[Path]:
    """The folders to look in, in this order: the user's data root, then what was downloaded before."""
    given = given_root(data_root)
    return ([given] if given else []) + [cache_root() / "downloads"]


def download_root(data_root: str | Path | None) -> Path:
    """Where a download goes: into the user's data root if it can be written, else into the cache."""
    given = given_root(data_root)
    if given is None:
        return cache_root() / "downloads"
    try:
        # A folder whose mode lets nobody write is meant to stay as it is, also where root could write.
        existing = next(p for p in (given, *given.parents) if p.exists())
        if not existing.stat().st_mode & 0o222:
            return cache_root() / "downloads"
        # Beyond that, ask the file system itself: permission bits do not know read-only mounts.
        with tempfile.TemporaryFile(dir=existing):
            return given
    except OSError:
        return cache_root() / "downloads"


def find(layout: Layout, roots: Sequence[Path]) -> dict[str, Path]:
    """The files of a layout that exist, by key; the first root that has one wins."""
    found = {}
    for wanted in layout.files:
        places = (root / place for root in roots for place in wanted.places)
        first = next((p for p in places if os.path.isfile(p)), None)
        if first is not None:
            found[wanted.key] = first
    return found


def refuse(path: Path | str, why: str) -> DataError:
    """The error for a file that is not what it should be: named, with what to do."""
    return DataError(f"{printable(path)}: {printable(why)}; replace the file")


def first_line(error: Exception) -> str:
    """The beginning of what a library says, or the kind of its error if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def read_regular(path: Path, at_most: int) -> bytes:
    """The bytes of a regular file; one of more than at_most bytes is refused, not read."""
    with open_regular(path) as f:
        size = os.fstat(f.fileno()).st_size
        if size > at_most:
            raise refuse(path, f"has {size:,} bytes, more than the {at_most:,} expected")
        try:
            return f.read(size)
        except OSError as error:
            raise unreadable(path, error) from None


def unpacked_at_most(size: int) -> int:
    """The number of bytes that `size` compressed ones may unpack to."""
    return max(UNPACKED_FREELY, EXPANSION_AT_MOST * size)


def inflated(path: Path, size: int) -> DataError:
    """The error for a compressed file that would fill the memory."""
    return DataError(
        f"{printable(path)}: its {size:,} bytes unpack to more than {unpacked_at_most(size):,}, as if made to fill the "
        "memory; save it uncompressed if it is sound"
    )


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """The hex digest of a file's bytes."""
    with open_regular(path) as f:
        try:
            return hashlib.file_digest(f, algorithm).hexdigest()
        except OSError as error:
            raise unreadable(path, error) from None


def check_file(path: Path, checksum: str) -> None:
    """Compare a file with a published checksum, written 'md5:…' or 'sha256:…'.

    MD5 is what most of these archives were published with: it finds accidents, not forgeries.
    """
    algorithm, _, wanted = checksum.partition(":")
    got = hash_file(path, algorithm)
    if got != wanted:
        raise refuse(path, f"corrupt ({algorithm} {got}, published {wanted})")


def digests(paths: Mapping[str, Path], *, rehash: bool = False) -> dict[str, str]:
    """The SHA-256 of each file, remembered by stamp unless `rehash`."""
    resolved = {key: path.absolute() for key, path in paths.items()}
    set_id = hashlib.sha256(b"\0".join(os.fsencode(p) for p in sorted(resolved.values()))).hexdigest()
    ledger = cache_root() / "stamps" / f"{set_id[:32]}.json"
    known = {} if rehash else _read_ledger(ledger)
    now = time.time()
    found: dict[str, str] = {}
    kept: dict[str, list[object]] = {}
    changed = False
    for key, path in resolved.items():
        stamp = stamp_of(path)
        if stamp[0] > SOURCE_AT_MOST:
            raise refuse(path, f"has {stamp[0]:,} bytes, more than the {SOURCE_AT_MOST:,} that are read")
        entry = known.get(str(path))
        if isinstance(entry, list) and len(entry) == 2 and entry[0] == stamp:
            found[key] = str(entry[1])
        else:
            found[key] = hash_file(path)
            changed = True
        if now - max(stamp[1], stamp[2]) / 1e9 > YOUNG_SECONDS and stamp_of(path) == stamp:
            kept[str(path)] = [stamp, found[key]]
    if changed and kept:
        # Only speed is lost if this cannot be written; the decoded cache says what is wrong with the folder.
        with suppress(OSError):
            write_text(ledger, json.dumps(kept))
    return found


def stamp_of(path: Path) -> list[int]:
    """What changes whenever a file is written or replaced."""
    try:
        s = path.stat()
    except OSError as error:
        raise unreadable(path, error) from None
    return [s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino]


def _read_ledger(ledger: Path) -> dict[str, object]:
    try:
        known = json.loads(read_regular(ledger, LEDGER_AT_MOST))
    except (DataError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def write_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def keyed_digest(content: bytes) -> str:
    """A checksum that tells whether private data have changed, and nobody without this cache's key what they are.

    A plain hash in a record would let everyone who knows all records but one try what the last one is.
    """
    place = cache_root() / "key"
    with locked(place.name, "making the key of this cache"), writable(place.parent):
        try:
            key = bytes.fromhex(read_regular(place, 1 << 20).decode()) if place.exists() else b""
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            key = os.urandom(KEY_BYTES)
            write_text(place, key.hex())  # readable by its owner alone
    return f"{KEYED}{hmac.new(key, content, hashlib.sha256).hexdigest()}"


@contextmanager
def locked(name: str, what: str) -> Iterator[None]:
    """One process at a time; the others wait. The system frees the lock of a killed process."""
    place = cache_root() / "locks" / f"{name}.lock"
    with writable(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(str(place))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.info("waiting for another process that is %s", what)
            try:
                lock.acquire(timeout=LOCK_SECONDS)
            except Timeout:
                raise DataError(f"another process has been {what} for an hour; stop it and start again") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Turn 'cannot write here' into a line that says what to set."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write in {printable(folder)} ({error.strerror or error}): "
            "set DPOT_CACHE to a folder with space that you may write in"
        ) from None
