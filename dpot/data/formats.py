"""Readers for the containers data come in. Each bounds what it reads by what the header may claim, checks
every checksum the container has, names the file when something is wrong, and never unpickles."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import IO, cast

import numpy as np

from dpot.data.files import first_line, inflated, open_regular, refuse, unpacked_at_most

GIB = 1 << 30
NPZ_AT_MOST = 8 * GIB  # full VisDA features in single precision take 1.2 GiB
ARRAYS_AT_MOST = 1000  # in one .npz; four are usual
# What the standard library's readers raise on damaged archives; RuntimeError and ValueError come from header
# bytes that turned into an unknown compression, an encryption flag or an impossible offset.
BROKEN = (EOFError, OSError, ValueError, RuntimeError, OverflowError, zlib.error, zipfile.BadZipFile, struct.error)


def read_plain(path: Path, at_most: int) -> bytes:
    """The bytes of a file, through gzip if it is compressed (by its first bytes, not by its name).

    More than at_most, or a disproportionate number of decompressed ones, are refused, not read.
    """
    try:
        with open_regular(path) as raw:
            size = os.fstat(raw.fileno()).st_size
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            bound = min(at_most, unpacked_at_most(size) if packed else size)
            data = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if packed else raw).read(bound + 1)
    except BROKEN as error:
        raise refuse(path, f"truncated or corrupt ({error})") from None
    if len(data) > at_most:
        raise refuse(path, f"holds more than the {at_most:,} bytes expected")
    if len(data) > bound:
        raise inflated(path, size)
    return data


@contextmanager
def open_zip(path: Path, members: int, at_most: int) -> Iterator[zipfile.ZipFile]:
    """A zip archive for reading, once its directory is found sound.

    At most so many members, each named once and with bytes of its own, plainly stored or deflated, which do not unpack
    to more than at_most bytes nor to a disproportionate number of them. What is wrong while it is read names the file.
    """
    try:
        with open_regular(path) as raw, zipfile.ZipFile(raw) as archive:
            infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
            if len(infos) > members:
                raise refuse(path, f"holds {len(infos):,} files, more than the {members:,} expected")
            if len(infos) != (promised := _members_promised(raw, len(archive.comment))):
                raise refuse(path, f"truncated or corrupt (its directory lists {len(infos):,} of {promised:,} files)")
            names: set[str] = set()
            end = 0
            for info in infos:
                if not info.filename:
                    raise refuse(path, "has an unexpected member without a name")
                if "\0" in info.orig_filename or (info.is_dir() and info.file_size):
                    raise refuse(
                        path, f"has an unexpected member '{info.filename[:80]}': a folder, or a name cut short"
                    )
                if info.filename in names or info.header_offset < end:
                    raise refuse(path, f"has an unexpected member '{info.filename[:80]}': it or its bytes come twice")
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise refuse(path, f"truncated or corrupt (compression {info.compress_type} is not read)")
                names.add(info.filename)
                end = info.header_offset + info.compress_size
            size, unpacked = os.fstat(raw.fileno()).st_size, sum(info.file_size for info in infos)
            if unpacked > at_most:
                raise refuse(path, f"promises {unpacked:,} bytes, more than the {at_most:,} expected")
            if unpacked > unpacked_at_most(size):
                raise inflated(path, size)
            yield archive
    except BROKEN as error:
        raise refuse(path, f"truncated or corrupt ({error})") from None


def _members_promised(raw: IO[bytes], comment: int) -> int:
    """The number of members by the archive's last record, which Python's reader does not compare with its directory."""
    end = raw.seek(-22 - comment, os.SEEK_END)
    (promised,) = struct.unpack("<10xH10x", raw.read(22))
    if promised == 0xFFFF:  # more than 16 bits hold: the 64-bit record stands before its locator of 20 bytes
        raw.seek(end - 20 - 56)
        (promised,) = struct.unpack("<32xQ16x", raw.read(56))
    return int(promised)


def read_idx(path: Path, shape: Sequence[int]) -> tuple[np.ndarray, str]:
    """An idx file of bytes with this very shape, compressed or not, and the SHA-256 of its content.

    idx (LeCun): two zero bytes, the type (8: unsigned byte), the number of dimensions, each dimension as a
    big-endian 32-bit integer, then the values.
    """
    header = 4 + 4 * len(shape)
    data = read_plain(path, header + math.prod(shape))
    try:
        array = parse_idx(data)
    except ValueError as error:
        raise refuse(path, str(error)) from None
    if array.shape != tuple(shape):
        raise refuse(path, f"holds {'×'.join(map(str, array.shape))} values, not {'×'.join(map(str, shape))}")
    return array, hashlib.sha256(data).hexdigest()


def parse_idx(data: bytes) -> np.ndarray:
    """The array in the bytes of an idx file; ValueError says what is wrong."""
    if len(data) < 4:
        raise ValueError("truncated idx header")
    zero, kind, dimensions = struct.unpack(">HBB", data[:4])
    if zero != 0 or kind != 8 or dimensions == 0:
        raise ValueError("not an idx file of unsigned bytes")
    start = 4 + 4 * dimensions
    if len(data) < start:
        raise ValueError("truncated idx header")
    shape = struct.unpack(f">{dimensions}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise ValueError(f"idx header promises {math.prod(shape):,} values, {len(data) - start:,} follow")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The arrays of an .npz file and their shapes, from the headers alone. It may hold nothing else."""
    with open_zip(path, ARRAYS_AT_MOST, NPZ_AT_MOST) as archive:
        other = next((info.filename for info in archive.infolist() if not info.filename.endswith(".npy")), None)
        if other is not None:
            raise refuse(path, f"holds '{other}', which is not the name of an array")
        return {_array_name(info): _npy_header(archive, info, path)[0] for info in archive.infolist()}


def read_npz(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The named arrays of an .npz file, their CRC-32 checked. Object arrays (pickles) are refused."""
    with open_zip(path, ARRAYS_AT_MOST, NPZ_AT_MOST) as archive:
        members = {_array_name(info): info for info in archive.infolist() if info.filename.endswith(".npy")}
        missing = [name for name in names if name not in members]
        if missing:
            raise refuse(path, f"has no array '{missing[0]}' (it has {', '.join(sorted(members)) or 'none'})")
        return {name: _read_member(archive, members[name], path) for name in names}


def _array_name(info: zipfile.ZipInfo) -> str:
    return info.filename.removesuffix(".npy")


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> np.ndarray:
    shape, fortran, dtype, start = _npy_header(archive, info, path)
    size = math.prod(shape) * dtype.itemsize
    if info.file_size != start + size:
        raise refuse(path, f"array '{_array_name(info)}' promises {size:,} bytes, {info.file_size - start:,} follow")
    with archive.open(info) as f:
        f.read(start)
        data = f.read(size)
        f.read(1)  # the end of the member must be seen for its CRC to be compared
    if len(data) != size:
        raise refuse(path, f"array '{_array_name(info)}' is truncated")
    if dtype.kind == "U" and (np.frombuffer(data, f"{dtype.byteorder}u4") > sys.maxunicode).any():
        raise refuse(path, f"array '{_array_name(info)}' is corrupt: it holds characters that do not exist")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _npy_header(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path
) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """(shape, Fortran order, dtype, length of the header) of an .npy member."""
    name = _array_name(info)
    with archive.open(info) as f:
        head = io.BytesIO(f.read(16384))  # numpy itself refuses headers above 10,000 bytes
    try:
        version = np.lib.format.read_magic(head)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(head)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(head)
        else:
            raise ValueError(f"npy version {version} is not supported")
    except (ValueError, EOFError, SyntaxError, TypeError, TokenError, RecursionError, MemoryError) as error:
        raise refuse(path, f"array '{name}' has no valid header ({first_line(error)})") from None
    if dtype.hasobject:
        raise refuse(path, f"array '{name}' holds pickled objects, which are never loaded")
    return shape, fortran, dtype, head.tell()


def check_labels(labels: np.ndarray, count: int, classes: int, path: Path) -> np.ndarray:
    """Labels as int64; refused unless there is one per record and all lie in 0..classes-1."""
    if labels.shape != (count,):
        raise refuse(path, f"mislabelled: {count:,} records, labels of shape {labels.shape}")
    if labels.dtype.kind not in "iu":
        raise refuse(path, f"mislabelled: labels are {labels.dtype}, not whole numbers")
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        first = wrong[0]
        raise refuse(path, f"mislabelled: record {first} has label {labels[first]}, not in 0..{classes - 1}")
    return labels.astype(np.int64)


def check_features(values: np.ndarray, path: Path) -> np.ndarray:
    """Features as float32 N×d; refused unless numeric and finite."""
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "fiu":
        raise refuse(path, f"features must be numbers of shape N×d, not {values.dtype} {values.shape}")
    with np.errstate(over="ignore"):
        values = values.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if len(bad):
        raise refuse(path, f"record {bad[0]} holds a value that is not a finite number")
    return values


def check_image_values(images: np.ndarray, path: Path) -> np.ndarray:
    """Images as uint8 or as float32 in [0, 1]; anything else is refused."""
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f":
        raise refuse(path, f"images must be uint8 or floats in [0, 1], not {images.dtype}")
    images = images.astype(np.float32, copy=False)
    if not images.size:
        return images
    sound = np.isfinite(images).reshape(len(images), -1).all(1)
    if not sound.all():
        raise refuse(path, f"record {int(sound.argmin())} holds a pixel that is not a finite number")
    if images.min() < 0 or images.max() > 1:
        raise refuse(path, "float images must lie in [0, 1] (divide by 255?)")
    return images
