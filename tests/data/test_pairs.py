"""Domain-adaptation pairs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from dpot import config
from dpot.data.features import Office31, VisDA
from dpot.data.gaussians import Gaussians
from dpot.data.pairs import Adaptation
from dpot.errors import DataError


def from_config(name: str) -> Adaptation:
    node = OmegaConf.load(config.CONF_DIR / "dataset" / f"{name}.yaml")
    built = config.instantiate(node, "dataset")  # type: ignore[arg-type]
    assert isinstance(built, Adaptation)
    return built


@pytest.mark.parametrize(("align", "evaluate"), [("train", "train"), ("train", "test"), ("test", "test")])
def test_what_is_aligned_and_what_is_measured(align: str, evaluate: str) -> None:
    target = Gaussians(n=50, n_test=40, seed=1)
    pair = Adaptation("toy", Gaussians(n=30), target, align, evaluate).load()  # type: ignore[arg-type]
    whole = target.load()
    assert len(pair.source.train) == 30
    assert pair.target.train.x.equal(getattr(whole, align).x)
    assert pair.target.test.x.equal(getattr(whole, evaluate).x)
    assert ("as published" in pair.note) == (align == evaluate)


def test_domains_must_fit() -> None:
    with pytest.raises(DataError, match="cannot be adapted"):
        Adaptation("toy", Gaussians(d=3), Gaussians(d=4)).load()


def test_visda_as_configured(tmp_path: Path) -> None:
    (tmp_path / "visda").mkdir()
    for part, count in (("train", 48), ("validation", 24)):
        x = np.random.default_rng(count).random((count, 8), np.float32)
        np.savez(tmp_path / "visda" / f"{part}.npz", x=x, y=np.arange(count) % 12)
    pair = from_config("visda").load(tmp_path)
    assert (len(pair.source.train), len(pair.target.train), len(pair.target.test)) == (48, 24, 24)
    assert pair.source.classes == 12
    assert not pair.comparable


def test_status_names_what_either_side_lacks(tmp_path: Path) -> None:
    pair = Adaptation("toy", Office31("amazon"), VisDA("train"))
    status = pair.status(tmp_path)
    assert not status.present
    assert "amazon_resnet50.npz" in status.place
    assert "visda/train.npz" in status.place
    with pytest.raises(DataError, match="cannot be downloaded"):
        pair.fetch(tmp_path)


def test_real_digits(real: Callable[[str], Path]) -> None:
    """DP-SWD, Table 1: M-U aligns 60,000 MNIST with 7438 USPS images, U-M 7438 USPS with 10,000 MNIST ones."""
    root = real("mnist")
    real("usps")
    there = from_config("mnist_to_usps").load(root)
    back = from_config("usps_to_mnist").load(root)
    assert (len(there.source.train), len(there.target.train), len(there.target.test)) == (60_000, 7438, 7438)
    assert (len(back.source.train), len(back.target.train), len(back.target.test)) == (7438, 10_000, 10_000)
    assert there.source.shape == there.target.shape == (1, 28, 28)
    assert there.comparable


@pytest.mark.parametrize("name", [n for n in config.options("dataset") if n.split("_")[0] in Office31.counts])
def test_real_office31(real: Callable[[str], Path], name: str) -> None:
    source, _, target = name.split("_")
    pair = from_config(name).load(real("office31"))
    assert pair.name == name
    assert len(pair.source.train) == Office31.counts[source]
    assert len(pair.target.test) == Office31.counts[target]
    assert pair.comparable
