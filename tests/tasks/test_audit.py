"""task=audit: sound methods stand, with the noise off they are caught, and broken ones are found out."""

import json
import sys
import types
from functools import cache

import pytest
import torch
from omegaconf import OmegaConf

from dpot import config
from dpot.composing import compose_config
from dpot.launch import run
from dpot.methods.generate import dp_merf, dp_sinkhorn
from dpot.methods.generate.base import Method
from dpot.privacy import calibration
from dpot.privacy.events import Adjacency, Gaussian, PoissonSampled
from dpot.training.samplers import Poisson
from dpot.training.sanitise import clip_rows

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


def step_event(multiplier, rate=0.5):
    return PoissonSampled(Gaussian(multiplier, Adjacency.ADD_REMOVE), rate)


calibrated = cache(lambda steps, budget: calibration.find_sigma(step_event, steps, budget))


class NoisySums(Method):
    """A method that the audit knows nothing of: at each step the noisy sum of a Poisson batch, clipped or not."""

    def __init__(self, clip: float = 10.0, careless: bool = False) -> None:
        self.clip, self.careless = clip, careless

    def prepare(self, problem):
        steps = problem.steps(10)
        sampler = Poisson(len(problem.images), 0.5, problem.noise.generator)
        release = problem.release(step_event(calibrated(steps, problem.budget)), sampler=sampler, steps=steps)
        model, mean = problem.generator, torch.zeros(problem.images[0].numel())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step():
            rows = sampler.draw().rows(problem.images).flatten(1) - 0.5 * mean  # asked after the answers before
            rows = rows if self.careless else clip_rows(rows, self.clip)
            mean.copy_(release(rows.sum(0), self.clip) / (0.5 * len(problem.images)))
            loss = (model(model.code(4, problem.random, "cpu"), torch.arange(4)).flatten(1) - mean).square().mean()
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        return problem.engine(step, steps=steps, optimizer=optimizer, tensors={"mean": mean}, before=release.charge)


@pytest.fixture
def noisy_sums(tmp_path, monkeypatch):
    module = types.ModuleType("dpot.methods.generate.noisy_sums")
    module.NoisySums = NoisySums
    monkeypatch.setattr(NoisySums, "__module__", module.__name__)  # where a method must be
    monkeypatch.setitem(sys.modules, module.__name__, module)
    known = config.known_targets() | {f"{module.__name__}.NoisySums"}
    monkeypatch.setattr(config, "known_targets", lambda: known)  # as if a file of conf/ named it

    def audited(*overrides, **settings):
        cfg = compose_config([*SMALL, *overrides, f"output_root={tmp_path}"])
        OmegaConf.set_struct(cfg, False)
        cfg.loss = OmegaConf.create({"_target_": "dpot.methods.generate.noisy_sums.NoisySums", **settings})
        return run(cfg).data

    return audited


def test_a_method_that_nobody_prepared_is_audited_by_what_passes_the_gate(noisy_sums):
    """Its records are sampled, and what it asks depends on earlier answers."""
    data = noisy_sums("task.canaries=80", "task.guesses=56", "task.steps=6", "task.replays=9")
    assert data["method"] == "noisy_sums"
    assert data["lower_bound"] <= data["claimed_epsilon"] <= 2
    assert data["controls"]["positive"]["lower_bound"] > data["claimed_epsilon"]
    assert data["controls"]["null"]["passed"]
    # halves of an image that have nothing in common, clipped to 10, are √2·10 apart: two neighbours of at most 10
    assert data["controls"]["sensitivity"]["actual"] == pytest.approx(10 / 2**0.5, rel=1e-3)
    assert data["passed"]


def test_a_method_that_nobody_prepared_is_found_out_when_it_does_not_clip(noisy_sums):
    data = noisy_sums("task.canaries=10", "task.guesses=8", "task.steps=1", "task.replays=9", careless=True)
    assert not data["controls"]["sensitivity"]["holds"]
    assert not data["passed"]


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
