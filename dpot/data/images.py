"""Encoded images (PNG, JPEG, GIF, WebP, TIFF, BMP) to tensors of one size; of several frames the first one."""

from __future__ import annotations

import io
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from dpot.data.files import open_regular, printable, read_regular, refuse
from dpot.data.progress import Meter
from dpot.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 256  # images read ahead of the decoders, and
BATCH_BYTES = 64 << 20  # their encoded bytes: both bound the memory
IMAGE_AT_MOST = 256 << 20  # bytes of one encoded image; a photograph takes 2 to 50 million
PIXELS_AT_MOST = 100_000_000  # of one encoded image; a photograph has 10 to 50 million
PIXELS_FREELY = 32_000_000  # however few bytes they are encoded in; beyond that
PIXELS_PER_BYTE = 100  # at most: a photograph has 5 to 20
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")
UNREADABLE = "is not a readable image (PNG, JPEG, GIF, WebP, TIFF or BMP)"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY_MODES = {"1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F"}


def open_image(data: bytes | IO[bytes], where: str) -> Image:
    """An encoded image or its open file, the header read and the size bounded; of these formats only."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own bound is below
            file = io.BytesIO(data) if isinstance(data, bytes) else data
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        raise refuse(where, UNREADABLE) from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise refuse(where, f"{UNREADABLE[:-1]}: {error})") from None
    bound = min(PIXELS_AT_MOST, max(PIXELS_FREELY, PIXELS_PER_BYTE * size))
    if image.width * image.height > bound:
        raise refuse(where, f"has {image.width}×{image.height} pixels, more than {bound:,} in {size:,} bytes")
    return image


def read_image(path: Path) -> bytes:
    """The bytes of an encoded image."""
    return read_regular(path, IMAGE_AT_MOST)


def check_chunks(data: bytes, where: str) -> None:
    """Compare the CRC-32 of every chunk of a PNG image; Pillow skips those of the pixels.

    PNG: a signature, then chunks of a big-endian length, a type of four letters, the content, a CRC of both.
    """
    at = len(PNG_SIGNATURE)
    while at + 12 <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + 8]
        if zlib.crc32(data[at + 4 : end]) != int.from_bytes(data[end : end + 4], "big") or end + 4 > len(data):
            raise refuse(where, "is a truncated or corrupt image (a chunk's checksum differs)")
        if kind == b"IEND":
            return
        at = end + 4
    raise refuse(where, "is a truncated or corrupt image (no end)")


def decode_image(data: bytes, where: str, size: int, grey: bool) -> np.ndarray:
    """uint8 C×size×size: upright, stretched (never cropped) by an antialiased bilinear filter."""
    from PIL import Image, ImageOps

    if data.startswith(PNG_SIGNATURE):
        check_chunks(data, where)
    image = open_image(data, where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd EXIF and palettes do not concern the pixels
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            if image.mode.startswith("I;16") or image.mode == "I":
                # 16-bit grey: keep the upper byte; PIL's own conversion clips at 255
                image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
            mode = "L" if grey else "RGB"
            plain = image if image.mode == mode else image.convert(mode)
            pixels = np.asarray(plain.resize((size, size), Image.Resampling.BILINEAR))
    except (OSError, SyntaxError, ValueError, EOFError, MemoryError) as error:
        raise refuse(where, f"is a truncated or corrupt image ({error})") from None
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def decode_into(target: np.ndarray, names: Sequence[str], reads: Sequence[Callable[[], bytes]], what: str) -> None:
    """Fill target (uint8 N×C×size×size) with the images that reads[0](), reads[1](), ... give.

    Reading stays in this thread, decoding spreads over the cores (Pillow frees the interpreter meanwhile).
    """
    channels, size = target.shape[1], target.shape[2]
    with ThreadPoolExecutor(os.cpu_count()) as pool, Meter(what, len(names)) as meter:
        row = 0
        for blobs in _batches(reads):
            decoded = pool.map(decode_image, blobs, names[row : row + len(blobs)], repeat(size), repeat(channels == 1))
            for pixels in decoded:
                target[row] = pixels
                row += 1
            meter.advance(len(blobs))


def _batches(reads: Sequence[Callable[[], bytes]]) -> Iterator[list[bytes]]:
    """What the reads give, in lists of bounded length and size."""
    blobs: list[bytes] = []
    for read in reads:
        blobs.append(read())
        if len(blobs) == BATCH or sum(map(len, blobs)) > BATCH_BYTES:
            yield blobs
            blobs = []
    if blobs:
        yield blobs


def is_grey(path: Path) -> bool:
    """Whether an image file has no colour, from its header."""
    with open_regular(path) as file, open_image(file, printable(path)) as image:
        return image.mode in GREY_MODES


def resize_array(images: np.ndarray, size: int) -> np.ndarray:
    """N×C×h×w brought to size×size by the antialiased bilinear filter; bytes stay bytes."""
    import torch
    import torch.nn.functional as F

    if images.shape[2:] == (size, size):
        return images
    if 0 in images.shape:
        raise DataError("images without pixels cannot be resized")
    out = np.empty((*images.shape[:2], size, size), images.dtype)
    for start in range(0, len(images), 4096):
        x = torch.from_numpy(images[start : start + 4096].astype(np.float32, order="C"))
        y = F.interpolate(x, (size, size), mode="bilinear", antialias=True)
        y = y.round().clamp(0, 255) if images.dtype == np.uint8 else y.clamp(0, 1)
        out[start : start + 4096] = y.numpy().astype(images.dtype)
    return out
