"""What runs on the same private data cost together: a look at a release costs nothing, another release adds up."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dpot.composing import compose_config
from dpot.launch import run
from dpot.privacy import registry
from dpot.privacy.budget import Budget
from dpot.privacy.calibration import find_sigma
from dpot.privacy.events import Gaussian
from dpot.privacy.gaussian import gaussian_epsilon
from dpot.privacy.noise import NoiseSource
from dpot.privacy.statement import Statement

SMALL = ["task=synthesize", "profile=smoke", "profile.steps=2", "device=cpu", "loss.rounds=1", "privacy.epsilon=10"]
SMALL += ["classifier.kinds=[]"]


@pytest.fixture(autouse=True)
def one_accountant(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others take seconds, and are not what is tested."""
    whole = Statement.of
    monkeypatch.setattr(Statement, "of", lambda ledger, noise, _=None: whole(ledger, noise, ["dpot_rdp"]))


@pytest.fixture
def synthesize(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the task on a folder of small images, with a cache of its own."""
    monkeypatch.setenv("DPOT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "photos").mkdir()
    for index in range(40):
        pixels = np.random.default_rng(index).integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{index}.png")

    def once(*overrides: str) -> dict[str, Any]:
        own = [f"dataset.path={tmp_path / 'photos'}", "dataset.size=8", "generator.width=4"]
        return run(compose_config([*SMALL, *own, f"output_root={tmp_path / 'out'}", *overrides])).data

    return once


def test_another_presentation_spends_nothing_and_another_release_adds_up(
    synthesize: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = synthesize("task.count=10")
    z = find_sigma(Gaussian, 1, Budget(10.0, 1e-5))
    assert first["privacy"]["total"] == "This data set has released ε = 10 at δ = 1e-05 in 1 release."
    with monkeypatch.context() as patched:
        patched.setattr(NoiseSource, "discrete_gaussian", lambda *_: pytest.fail("noise was drawn again"))
        other = ["task.count=20", "task.utility=false", "task.format=npz", "generator.smooth=true"]
        again = synthesize(*other, "profile.steps=3", "loss.learning_rate=0.01", "loss.batch=8")
        assert again["privacy"]["total"] == first["privacy"]["total"]
        assert again["privacy"]["entries"] == first["privacy"]["entries"]
    second = synthesize("task.count=10", "seed=1")
    both = gaussian_epsilon(z / 2**0.5, 1e-5)
    told = f"This data set has released ε = {both:.4g} at δ = 1e-05 in 2 releases."
    assert second["privacy"]["total"] == told
    assert told in Path(second["files"]["statement"]).read_text()
    assert told in Path(second["files"]["statement_page"]).read_text()
    assert registry.problems(Path(second["files"]["statement_registry"]).read_text()) == []
    third = synthesize("task.count=10", "seed=1", "rerun=true")  # drawn anew on request: counted anew
    assert f"ε = {gaussian_epsilon(z / 3**0.5, 1e-5):.4g} at δ = 1e-05 in 3 releases" in third["privacy"]["total"]
    (spending,) = (tmp_path / "cache" / "spending").glob("*.json")
    assert stat.S_IMODE(spending.stat().st_mode) == 0o600
    assert not list((tmp_path / "out" / "runs").rglob("release-*"))


def test_another_epsilon_or_other_data_are_another_release(synthesize: Any, tmp_path: Path) -> None:
    synthesize("task.utility=false")
    assert "in 2 releases" in synthesize("task.utility=false", "privacy.epsilon=5")["privacy"]["total"]
    (tmp_path / "photos" / "0.png").unlink()
    assert "in 1 release." in synthesize("task.utility=false")["privacy"]["total"]


def test_trainings_are_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps are entered before the first, and a finished training that is run again counts again."""
    monkeypatch.setenv("DPOT_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", x=rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), y=np.arange(60) % 2)
    own = ["task=generate", "dataset=folder", f"dataset.path={tmp_path / 'a.npz'}", "loss=dp_swd", "profile=smoke"]
    own += ["profile.steps=2", "device=cpu", "classifier.kinds=[]", "loss.batch=6", f"output_root={tmp_path / 'out'}"]
    one = run(compose_config(own)).data["privacy"]
    assert "in 1 release." in one["total"]
    assert f"ε = {one['epsilon']:.4g}" in one["total"]
    again = run(compose_config([*own, "rerun=true"])).data["privacy"]
    assert "in 2 releases." in again["total"]


def test_public_data_have_no_spending_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPOT_CACHE", str(tmp_path / "cache"))
    own = ["dataset=digits", "dataset.size=8", "generator.width=4", f"output_root={tmp_path / 'out'}"]
    record = run(compose_config([*SMALL, *own])).data
    assert record["privacy"]["total"] == ""
    assert not (tmp_path / "cache" / "spending").exists()
