"""`dpot task=data`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from dpot import config
from dpot.errors import DataError, UsageError
from dpot.tasks.base import Answer
from dpot.tasks.data import Data, catalogue

NAMES = {
    "mnist", "fashion_mnist", "usps", "cifar10", "svhn", "celeba32", "celeba64", "digits", "gaussians", "folder",
    "table", "bbc", "mnist_to_usps", "usps_to_mnist", "dslr_to_webcam", "dslr_to_amazon", "amazon_to_webcam",
    "amazon_to_dslr", "webcam_to_amazon", "webcam_to_dslr", "visda", "bench_mnist", "bench_fashion_mnist",
    "bench_cifar10", "bench_celeba32",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DPOT_OFFLINE", "1")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.delenv("DPOT_DATA", raising=False)


def run(root: Path | None, **options: Any) -> Answer:
    return Data(**options).run(OmegaConf.create({"data_root": str(root) if root else None}))


def rows(answer: Answer) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in answer.data["datasets"]}


def printed(answer: Answer) -> str:
    console = Console(file=io.StringIO(), width=200)
    answer.show(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def write_visda(root: Path, part: str, bad_label: bool = False) -> Path:
    y = np.arange(24) % 12
    y[5] = 99 if bad_label else y[5]
    path = root / "visda" / f"{part}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=np.ones((24, 4), np.float32), y=y)
    return path


def test_every_data_set_is_listed(tmp_path: Path) -> None:
    answer = run(tmp_path)
    found = rows(answer)
    assert set(found) == NAMES | {"inception"}
    assert found["digits"]["built_in"]
    assert not found["mnist"]["present"]
    assert "mnist/train-images-idx3-ubyte.gz" in found["mnist"]["missing"]
    assert all(row["licence"] and row["source"] for row in found.values())
    assert answer.exit_code == 0
    assert json.loads(json.dumps(answer.data)) == answer.data
    text = printed(answer)
    assert all(name in text for name in NAMES)
    assert "dpot task=data task.fetch=svhn" in text
    assert not (tmp_path / "cache").exists()  # listing writes nothing


def test_every_node_passes_the_checks_of_the_launcher() -> None:
    for name in NAMES:
        node = OmegaConf.load(config.CONF_DIR / "dataset" / f"{name}.yaml")
        cfg = OmegaConf.create({"dataset": node})
        assert isinstance(cfg, DictConfig)
        config.check(cfg)
    assert set(catalogue()) == NAMES


@pytest.mark.parametrize("bounds", [None, [0, 1], [[0, 1], [-2.5, 3]]])
def test_bounds_pass_the_checks_of_the_launcher(bounds: Any) -> None:
    node = OmegaConf.load(config.CONF_DIR / "dataset" / "table.yaml")
    node["bounds"] = bounds
    cfg = OmegaConf.create({"dataset": node})
    assert isinstance(cfg, DictConfig)
    config.check(cfg)
    assert config.instantiate(cfg.dataset, "dataset").bounds == bounds


@pytest.mark.parametrize(
    ("name", "key", "value", "why"),
    [
        ("mnist", "limit", 0, "dataset.limit=0: must be at least 1"),
        ("usps", "split", "mine", "dataset.split=mine: choose from papers, standard"),
        ("folder", "test_fraction", 1.0, "dataset.test_fraction=1.0: must be"),
        ("table", "bounds", "wide", "dataset.bounds=wide: must be a list"),
        ("gaussians", "scale", -1, "dataset.scale=-1.0: must be more than 0"),
    ],
)
def test_impossible_values_are_refused(name: str, key: str, value: Any, why: str) -> None:
    node = OmegaConf.load(config.CONF_DIR / "dataset" / f"{name}.yaml")
    node[key] = value
    cfg = OmegaConf.create({"dataset": node})
    assert isinstance(cfg, DictConfig)
    with pytest.raises(UsageError, match=why):
        config.check(cfg)


def test_what_is_at_hand(tmp_path: Path) -> None:
    paths = [write_visda(tmp_path, part) for part in ("train", "validation")]
    row = rows(run(tmp_path))["visda"]
    assert row["present"]
    assert row["files"] == [str(p) for p in paths]
    assert row["bytes"] == sum(p.stat().st_size for p in paths)
    assert row["verified"] is None


def test_verify(tmp_path: Path) -> None:
    write_visda(tmp_path, "train")
    path = write_visda(tmp_path, "validation")
    sound = run(tmp_path, verify=True)
    assert rows(sound)["visda"]["verified"] is True
    assert rows(sound)["mnist"]["verified"] is None
    assert sound.exit_code == 0
    write_visda(tmp_path, "validation", bad_label=True)
    damaged = run(tmp_path, verify=True)
    assert damaged.exit_code == 1
    assert rows(damaged)["visda"]["verified"] is False
    assert str(path) in rows(damaged)["visda"]["problem"]
    assert str(path) in printed(damaged).replace("\n", "")


def test_fetch_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"task\.fetch=minst: no such task\.fetch; did you mean mnist"):
        run(tmp_path, fetch="minst")
    with pytest.raises(UsageError, match="nothing to fetch"):
        run(tmp_path, fetch="digits")
    with pytest.raises(DataError, match=r"svhn: .*DPOT_OFFLINE.*; visda.*cannot be downloaded"):
        run(tmp_path, fetch=["svhn", "visda"])


def test_fetch_what_is_there_already(tmp_path: Path) -> None:
    for part in ("train", "validation"):
        write_visda(tmp_path, part)
    assert run(tmp_path, fetch="visda").data["fetched"] == []
