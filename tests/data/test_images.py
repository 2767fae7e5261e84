"""Encoded images to tensors."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dpot.data.images import decode_image, open_image, resize_array
from dpot.errors import DataError


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def test_same_size_is_the_identity() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    decoded = decode_image(encode(Image.fromarray(pixels)), "a.png", 8, grey=False)
    assert (decoded == pixels.transpose(2, 0, 1)).all()


def test_halving_averages() -> None:
    """A constant stays constant and the mean is kept by the antialiased filter."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    decoded = decode_image(encode(Image.fromarray(pixels)), "a.png", 16, grey=True)
    assert decoded.shape == (1, 16, 16)
    assert abs(decoded.mean() - pixels.mean()) < 1.5
    assert decoded.std() < pixels.std() / 2


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("grey", [True, False])
def test_every_mode_of_png(mode: str, grey: bool) -> None:
    image = Image.new("RGB", (5, 7), (255, 255, 255)).convert(mode)
    decoded = decode_image(encode(image), "a.png", 4, grey)
    assert decoded.shape == (1 if grey else 3, 4, 4)
    assert (decoded == 255).all()


def test_sixteen_bits_keep_the_upper_byte() -> None:
    image = Image.fromarray(np.full((4, 4), 0x8040, np.uint16))
    assert (decode_image(encode(image), "a.png", 4, grey=True) == 0x80).all()


def test_turned_photographs_stand_upright() -> None:
    image = Image.new("RGB", (16, 8), (0, 0, 0))
    image.paste((255, 255, 255), (0, 0, 8, 8))  # left half white
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90° clockwise: the left becomes the top
    decoded = decode_image(encode(image, "JPEG", exif=exif, quality=95), "a.jpg", 8, grey=True)[0]
    assert decoded[:3].min() > 200
    assert decoded[5:].max() < 55


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_cut_anywhere_is_refused_by_name(kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    whole = encode(Image.fromarray(pixels), kind)
    for cut in range(0, len(whole) * 9 // 10, 13):
        with pytest.raises(DataError, match="photo"):
            decode_image(whole[:cut], "photo", 8, grey=False)


def test_other_formats_are_refused() -> None:
    with pytest.raises(DataError, match="not a readable image"):
        decode_image(encode(Image.new("L", (4, 4)), "PCX"), "a.png", 4, grey=True)


def test_an_image_bomb_is_refused_by_its_header() -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 12_000, 12_000, 8, 0, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    with pytest.raises(DataError, match="12000×12000 pixels"):
        open_image(bomb, "bomb.png")


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_resize_array(dtype: Any) -> None:
    level = 200 if dtype == np.uint8 else 0.75
    x = np.full((3, 2, 10, 6), level, dtype)
    y = resize_array(x, 4)
    assert y.shape == (3, 2, 4, 4)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, level, rtol=1e-6)
    assert resize_array(y, 4) is y
