"""The Inception weights that the Fréchet inception distance is defined with (TensorFlow's of 2015-12-05)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dpot.data.base import Status
from dpot.data.download import Remote, fetch
from dpot.data.files import Layout, Wanted, digests, download_root, find, given_root, printable, refuse, search_roots
from dpot.errors import DataError

HALF = "fid_inception_2015_fp16.safetensors"
HALF_SHA256 = "f1065fffc778440460d48a115bf280b81113268a0188ed538c4438e786a06456"
FULL = "pt_inception-2015-12-05-6726825d.pth"
FULL_PREFIX = "6726825d"  # of its SHA-256: PyTorch's hub writes it into the name
URL = f"https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/{FULL}"
LICENCE = "Apache 2.0"
SOURCE = "https://github.com/mseitzer/pytorch-fid"


@dataclass(frozen=True)
class InceptionWeights:
    """`half`: a safetensors file in half precision without the classifier. `full`: a .pth file in single
    precision, to be read by torch.load(weights_only=True) and in no other way."""

    path: Path
    kind: Literal["half", "full"]
    checksum: str


def inception_weights(
    data_root: str | Path | None = None, *, download: bool = True, verify: bool = False
) -> InceptionWeights:
    """The weights at hand, verified: single precision if there is one, else half, else downloaded."""
    full, half = _find(data_root)
    if full is None and half is None:
        reason = ""
        if download:
            try:
                full = _fetch_full(data_root)
            except DataError as error:
                reason = f"{error}; "
        if full is None:
            raise DataError(f"the Inception weights for FID are not at hand: {reason}{_place(data_root)}")
    path = full or half
    assert path is not None
    sha256 = digests({"weights": path}, rehash=verify)["weights"]
    if path == full:
        if not sha256.startswith(FULL_PREFIX):
            raise refuse(path, f"corrupt (sha256 {sha256[:8]}…, published {FULL_PREFIX}…)")
        return InceptionWeights(path, "full", f"sha256:{sha256}")
    if sha256 != HALF_SHA256:
        raise refuse(path, f"corrupt (sha256 {sha256}, expected {HALF_SHA256})")
    return InceptionWeights(path, "half", f"sha256:{sha256}")


def weights_status(data_root: str | Path | None = None) -> Status:
    """What is at hand, without reading it."""
    full, half = _find(data_root)
    path = full or half
    if path is None:
        return Status(False, place=_place(data_root))
    return Status(True, (path,), note="" if path == full else "half precision")


def fetch_weights(data_root: str | Path | None = None) -> list[Path]:
    """Download the single-precision weights unless they are at hand."""
    return [] if _find(data_root)[0] else [_fetch_full(data_root)]


def _find(data_root: str | Path | None) -> tuple[Path | None, Path | None]:
    layout = Layout(
        "weights",
        (
            Wanted("full", (f"inception/{FULL}",)),
            Wanted("half", (f"inception/{HALF}",)),
        ),
    )
    found = find(layout, search_roots(data_root))
    hub = _hub_folder() / FULL  # where pytorch-fid keeps what it downloads
    full = found.get("full") or (hub if hub.is_file() else None)
    return full, found.get("half")


def _hub_folder() -> Path:
    home = os.environ.get("TORCH_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "torch"
    return Path(home).expanduser() / "hub" / "checkpoints"


def _fetch_full(data_root: str | Path | None) -> Path:
    remote = Remote((URL,), f"sha256:{FULL_PREFIX}", 128 << 20)
    return fetch(remote, download_root(data_root) / "inception" / FULL)


def _place(data_root: str | Path | None) -> str:
    given = given_root(data_root)
    where = f"in {printable(given)}/inception/" if given else "in inception/ under a folder named by DPOT_DATA"
    return f"put {FULL} (from {URL}) or {HALF} {where}"
