"""task=audit: sound methods stand, with the noise off they are caught, and broken ones are found out."""

import json

import pytest

from dpot.composing import compose_config
from dpot.launch import run
from dpot.methods.generate import dp_merf, dp_sinkhorn

SMALL = ["task=audit", "task.canaries=200", "task.guesses=100", "task.replays=3", "privacy.epsilon=2", "device=cpu"]
METHODS = {
    "dp_swd": ["loss=dp_swd", "loss.projections=200", "loss.batch=50"],
    "dp_merf": ["loss=dp_merf", "loss.features=2000", "loss.batch=50"],
    "dp_sinkhorn": ["loss=dp_sinkhorn", "loss.batch=20"],
    "sketch": ["loss=sketch", "loss.rounds=1"],
}


def audited(tmp_path, *overrides):
    return run(compose_config([*SMALL, f"output_root={tmp_path}", *overrides]))


@pytest.mark.parametrize(("method", "seed"), [("dp_swd", 0), ("dp_merf", 1), ("dp_sinkhorn", 2), ("sketch", 3)])
def test_sound_methods_stand_and_their_controls_behave(tmp_path, method, seed):
    answer = audited(tmp_path, *METHODS[method], f"seed={seed}")
    data = answer.data
    assert data["method"] == method
    assert data["lower_bound"] <= data["claimed_epsilon"] <= 2
    assert data["controls"]["positive"]["lower_bound"] > data["claimed_epsilon"]
    assert data["controls"]["null"]["lower_bound"] == 0
    assert data["controls"]["sensitivity"]["actual"] <= data["controls"]["sensitivity"]["declared"] * 1.02
    assert data["passed"]
    assert answer.exit_code == 0
    kept = json.loads((tmp_path / "audit" / f"{method}.json").read_text())
    assert kept["provenance"]["seed"] == seed


def test_a_claim_beyond_reach_is_audited_and_said_to_be_so(tmp_path, caplog):
    data = audited(tmp_path, *METHODS["dp_swd"], "privacy.epsilon=10", "task.replays=1").data
    assert "can refute no more than" in caplog.text
    assert data["controls"]["positive"]["reach"] < 10
    assert data["controls"]["positive"]["caught"]
    assert data["lower_bound"] <= data["claimed_epsilon"] == pytest.approx(10, rel=1e-3)
    assert data["passed"]


def test_what_the_paper_ran_is_refuted(tmp_path):
    """Raw rows move by up to 32 and are priced as 1: the guesses alone refute the ε."""
    paper = ["loss=dp_swd_paper", "privacy.mode=paper", "privacy.bound=clt"]
    answer = audited(tmp_path, *paper)
    assert answer.data["refuted"]
    assert answer.data["controls"]["sensitivity"]["actual"] == pytest.approx(32, rel=1e-3)
    assert not answer.data["controls"]["sensitivity"]["holds"]
    assert answer.exit_code == 1


def test_too_little_noise_is_found_by_the_replay(tmp_path, monkeypatch):
    """A factor of 3 between the noise that is entered and the noise that is drawn."""
    monkeypatch.setattr(dp_merf, "ROUNDING", 1 / 3)
    data = audited(tmp_path, *METHODS["dp_merf"]).data
    assert not data["controls"]["sensitivity"]["holds"]
    assert not data["passed"]


def test_a_gradient_that_is_not_clipped_is_found_by_the_replay(tmp_path, monkeypatch):
    original = dp_sinkhorn.sanitise_images

    def careless(images, clip, *others):
        return original(images, 1e6, *others)

    monkeypatch.setattr(dp_sinkhorn, "sanitise_images", careless)
    data = audited(tmp_path, *METHODS["dp_sinkhorn"]).data
    assert not data["controls"]["sensitivity"]["holds"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["loss=swd"], "cannot be audited"),
        (["privacy.epsilon=null"], "needs a claim"),
        (["task.guesses=300"], "only 200 canaries"),
        (["task.canaries=2000"], "at most 1023"),
    ],
)
def test_what_cannot_be_audited_is_said(tmp_path, overrides, words):
    with pytest.raises(Exception, match=words):
        audited(tmp_path, *overrides)
