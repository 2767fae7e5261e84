"""The Inception weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpot.data import weights
from dpot.data.weights import FULL, HALF, fetch_weights, inception_weights, weights_status
from dpot.errors import DataError


def test_what_to_put_where(tmp_path: Path) -> None:
    assert not weights_status(tmp_path).present
    for download in (False, True):
        with pytest.raises(DataError, match=rf"put {FULL} .* or {HALF} in {tmp_path}/inception/"):
            inception_weights(tmp_path, download=download)
    with pytest.raises(DataError, match="DPOT_OFFLINE"):
        fetch_weights(tmp_path)


@pytest.mark.parametrize("name", [FULL, HALF])
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "inception").mkdir()
    (tmp_path / "inception" / name).write_bytes(b"not the weights")
    with pytest.raises(DataError, match=f"{name}: corrupt"):
        inception_weights(tmp_path)


def test_full_precision_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hashlib

    monkeypatch.setattr(weights, "FULL_PREFIX", hashlib.sha256(b"full").hexdigest()[:8])
    monkeypatch.setattr(weights, "HALF_SHA256", hashlib.sha256(b"half").hexdigest())
    (tmp_path / "inception").mkdir()
    (tmp_path / "inception" / HALF).write_bytes(b"half")
    assert inception_weights(tmp_path).kind == "half"
    assert weights_status(tmp_path).note == "half precision"
    hub = tmp_path / "torch" / "hub" / "checkpoints"  # where pytorch-fid would have put it
    hub.mkdir(parents=True)
    (hub / FULL).write_bytes(b"full")
    assert inception_weights(tmp_path).path == hub / FULL
    (tmp_path / "inception" / FULL).write_bytes(b"full")
    found = inception_weights(tmp_path)
    assert found.kind == "full"
    assert found.path == tmp_path / "inception" / FULL
    assert fetch_weights(tmp_path) == []


def test_real_weights(real: Callable[[str], Path]) -> None:
    found = inception_weights(real("inception"), download=False)
    if found.kind == "half":
        from safetensors import safe_open

        with safe_open(str(found.path), "pt") as tensors:
            assert tensors.get_tensor("Conv2d_1a_3x3.conv.weight").shape == (32, 3, 3, 3)
