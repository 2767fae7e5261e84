"""Encoded images (PNG, JPEG) to tensors of one size."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpot.data.files import refuse
from dpot.data.progress import Meter
from dpot.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 256  # images read ahead of the decoders: bounds the memory
PIXELS_AT_MOST = 100_000_000  # of one encoded image; a photograph has 10 to 50 million
GREY_MODES = {"1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F"}


def open_image(data: bytes | Path, where: str) -> Image:
    """An encoded image or its file, the header read and the size bounded; PNG and JPEG only."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own bound is below
            image = Image.open(io.BytesIO(data) if isinstance(data, bytes) else data, formats=("PNG", "JPEG"))
    except UnidentifiedImageError:
        raise refuse(where, "is not a readable PNG or JPEG image") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise refuse(where, f"is not a readable PNG or JPEG image ({error})") from None
    if image.width * image.height > PIXELS_AT_MOST:
        raise refuse(where, f"has {image.width}×{image.height} pixels, more than {PIXELS_AT_MOST:,}")
    return image


def decode_image(data: bytes, where: str, size: int, grey: bool) -> np.ndarray:
    """uint8 C×size×size: upright, stretched (never cropped) by an antialiased bilinear filter."""
    from PIL import Image, ImageOps

    image = open_image(data, where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd EXIF and palettes do not concern the pixels
            image.load()
            upright = ImageOps.exif_transpose(image)
            if upright.mode.startswith("I;16") or upright.mode == "I":
                # 16-bit grey: keep the upper byte; PIL's own conversion clips at 255
                upright = Image.fromarray((np.asarray(upright).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
            plain = upright.convert("L" if grey else "RGB")
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
        for start in range(0, len(names), BATCH):
            rows = range(start, min(start + BATCH, len(names)))
            blobs = [reads[i]() for i in rows]
            decoded = pool.map(decode_image, blobs, [names[i] for i in rows], repeat(size), repeat(channels == 1))
            for i, pixels in zip(rows, decoded, strict=True):
                target[i] = pixels
            meter.advance(len(rows))


def is_grey(path: Path) -> bool:
    """Whether an image file has no colour, from its header."""
    with open_image(path, str(path)) as image:
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
