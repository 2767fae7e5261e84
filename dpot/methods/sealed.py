"""Tensors and facts in one file that says whether it is whole: safetensors with a digest of all its bytes.

The digest is computed over the file with 64 zeros in its place, so that it covers every other byte: tensors, names,
shapes, facts, and the order of everything. It tells accidents and careless changes. Somebody who changes a file on
purpose can compute it anew; against that there are signatures (dpot/privacy/signing.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from dpot.errors import DataError

BLANK = "0" * 64
BYTES_AT_MOST = 4 << 30
NAME = "dpot"  # of the one entry of the file's metadata


def seal(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bytes:
    """The content of a sealed file."""
    text = json.dumps({"digest": BLANK, "facts": facts}, allow_nan=False)
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = save(plain, {NAME: text})
    return content.replace(BLANK.encode(), hashlib.sha256(content).hexdigest().encode(), 1)


def read_sealed(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any], str]:
    """(tensors, facts, digest) of a sealed file; anything that is not exactly as it was written is refused."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > BYTES_AT_MOST:
                raise DataError(f"{path}: not a released file (a regular file of at most 4 GiB is expected)")
            content = file.read()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        told = json.loads(header["__metadata__"][NAME], parse_constant=_refuse)
        digest, facts = told["digest"], told["facts"]
        if not isinstance(digest, str) or len(digest) != len(BLANK) or not isinstance(facts, dict):
            raise ValueError("its digest or its facts are missing")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise DataError(f"{path}: not a released file ({_line(error)})") from None
    # The digest is the first thing in the metadata: its first occurrence is where it was written.
    blank = content.replace(digest.encode("utf-8", "replace"), BLANK.encode(), 1)
    if hashlib.sha256(blank).hexdigest() != digest:
        raise DataError(f"{path}: was changed or damaged after it was written (its digest does not match)")
    try:
        tensors = load(content)
    except (SafetensorError, ValueError, TypeError, RuntimeError, KeyError) as error:
        raise DataError(f"{path}: not a released file ({_line(error)})") from None
    return {name: tensor.to(device) for name, tensor in tensors.items()}, facts, digest


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
