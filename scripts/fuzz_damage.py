"""What scripts/fuzz.py does to files: accidents to bytes, edits inside a container, hostile entries in a folder."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zipfile
import zlib
from pathlib import Path
from random import Random

import numpy as np

# --- damage to bytes ---------------------------------------------------------------------------------------------


def place(rng: Random, data: bytes) -> int:
    """A position, more often near the ends, where headers and directories are."""
    near = rng.random()
    if near < 0.25:
        return rng.randrange(min(len(data), 64))
    return rng.randrange(max(0, len(data) - 600), len(data)) if near < 0.5 else rng.randrange(len(data))


def damaged(rng: Random, data: bytes) -> bytes:
    """The bytes with one to three accidents."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not data:
            return rng.randbytes(rng.randrange(64))
        changed = bytearray(data)
        at, length = place(rng, data), rng.choice((1, 2, 4, 16, 100, 1000))
        match rng.randrange(8):
            case 0 | 1:
                changed[at] ^= 1 << rng.randrange(8)
            case 2:
                changed[at : at + length] = rng.randbytes(min(length, len(data) - at))
            case 3:
                del changed[at:]
            case 4:
                del changed[at : at + length]
            case 5:  # a piece comes twice, in another place
                other = place(rng, data)
                changed[other:other] = data[at : at + length]
            case 6:  # a piece lies over another
                other = place(rng, data)
                piece = data[at : at + length]
                changed[other : other + len(piece)] = piece
            case 7:  # a size or a count that is not true
                number = rng.choice(
                    (0, 1, 0x7F, 0xFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
                )
                width = rng.choice((2, 4, 8))
                kept = (number % 256**width).to_bytes(width, rng.choice(("little", "big")))
                changed[at : at + width] = kept
        data = bytes(changed)
    return data


# --- damage inside a container, whose checksums are then made anew ------------------------------------------------


def in_gzip(rng: Random, data: bytes) -> bytes:
    """Other content, compressed anew."""
    return gzip.compress(damaged(rng, gzip.decompress(data)), mtime=0)


def in_zip(rng: Random, data: bytes) -> bytes:
    """An archive written anew: a member damaged, renamed, there twice, of another shape or type, or inflated."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at = rng.randrange(len(members))
    name, content = members[at]
    match rng.randrange(6):
        case 0 | 1:
            members[at] = (name, damaged(rng, content))
        case 2:
            renamed = damaged(rng, name.encode()).decode("utf-8", "replace").replace("\0", "0")
            members[at] = (renamed or "_", content)
        case 3:
            members.append((name, rng.choice(members)[1]))
        case 4:  # an array that claims another shape or type
            header = {
                "descr": rng.choice(("<f8", "|u1", "<U9", "|V0", "|S0", "|b1", "<c16", "<M8[s]")),
                "fortran_order": False,
            }
            sizes = (0, 1, 3, 40, -1, 2**31, 2**62)
            header["shape"] = tuple(rng.choice(sizes) for _ in range(rng.randrange(5)))
            buffer = io.BytesIO()
            np.lib.format.write_array_header_1_0(buffer, header)
            members[at] = (name, buffer.getvalue() + content[128:])
        case 5:
            members[at] = (name, content[:200] + bytes(64 << 20))
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return written.getvalue()


def in_png(rng: Random, data: bytes) -> bytes:
    """Chunks damaged, there twice or left out, with sound checksums; or a header that promises another image."""
    chunks, at = [], 8
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    chosen = rng.randrange(len(chunks))
    match rng.randrange(4):
        case 0:
            chunks[chosen] = (chunks[chosen][0], damaged(rng, chunks[chosen][1]))
        case 1:
            chunks.insert(rng.randrange(len(chunks)), chunks[chosen])
        case 2:
            del chunks[chosen]
        case 3:
            sides = (0, 1, 5000, 9999, 31_000, 2**31 - 1)
            depth = (rng.choice((1, 8, 16)), rng.choice((0, 2, 3, 4, 6)), 0, 0, rng.randrange(2))
            chunks[0] = (b"IHDR", struct.pack(">IIBBBBB", rng.choice(sides), rng.choice(sides), *depth))
    parts = [struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks]
    return data[:8] + b"".join(parts)


# --- damage to a folder -------------------------------------------------------------------------------------------


def in_folder(rng: Random, root: Path) -> None:
    """Pipes, devices and links in the place of images."""
    victim = rng.choice(sorted(root.glob("*/*.*")))
    new = rng.choice((victim, victim.with_name(f"z{victim.name}"), root / victim.name))
    kind = rng.randrange(6)
    if kind != 4:
        new.unlink(missing_ok=True)
    source = rng.choice(sorted(root.glob("*/*.*")))
    match kind:
        case 0:
            os.mkfifo(new)
        case 1:
            new.symlink_to(rng.choice(("/dev/zero", "/dev/tty", "/dev/stdin", "/proc/self/mem", "/nowhere", "/")))
        case 2:
            new.symlink_to(rng.choice((root, source, new, root.parent)))
        case 3:
            new.hardlink_to(source)
        case 4:
            (root / "self").symlink_to(rng.choice((root, source.parent, root.parent, Path("/dev"), Path("/"))))
        case 5:
            with new.open("wb") as f:
                f.truncate(1 << 36)  # takes no room on the disk
