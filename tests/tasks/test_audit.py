"""task=audit: sound methods stand, planted faults are caught, and what is broken is found out."""

import json
import sys
import types

import pytest
import torch
from omegaconf import OmegaConf

from dpot import config
from dpot.composing import compose_config
from dpot.config import CONF_DIR
from dpot.launch import run
from dpot.methods.classify import dp_sgd
from dpot.methods.generate import dp_merf, dp_swd
from dpot.methods.generate.base import Method
from dpot.privacy import calibration
from dpot.privacy.events import Adjacency, Gaussian, PoissonSampled
from dpot.tasks.rehearsal import batch_of
from dpot.tasks.training import _loss_in
from dpot.training.samplers import FixedSize, Poisson, Stratified
from dpot.training.sanitise import clip_rows

SMALL = ["task=audit", "task.repetitions=2000", "task.pairs=4", "task.nulls=2", "device=cpu"]
SWD = ["loss=dp_swd", "loss.projections=8", "loss.norm_bound=1", "task.steps=1"]
MERF = ["loss=dp_merf", "loss.features=2", "loss.kernel_variance=1"]


def audited(tmp_path, *overrides):
    return run(compose_config([*SMALL, f"output_root={tmp_path}", *overrides]))


@pytest.mark.parametrize(
    ("name", "overrides", "parts"),
    [
        ("dp_swd", SWD, {"sensitivity", "noise", "sampler", "batch", "directions"}),
        ("dp_merf", MERF, {"sensitivity", "noise", "batch"}),
        ("classify-dp_sgd", ["loss=classify/dp_sgd"], {"sensitivity", "noise", "sampler", "batch"}),
        ("adapt-sketch", ["loss=adapt/sketch"], {"sensitivity", "noise", "batch"}),
        ("distance-sketch", ["loss=distance/sketch", "loss.directions=2"], {"sensitivity", "noise", "batch"}),
    ],
)
def test_sound_methods_stand_and_planted_faults_are_caught(tmp_path, name, overrides, parts):
    answer = audited(tmp_path, *overrides)
    data, controls = answer.data, answer.data["controls"]
    assert data["lower_bound"] <= data["claimed_epsilon"] <= 3
    assert data["parts"].keys() == parts
    assert all(part["holds"] for part in data["parts"].values())
    assert all(fault["caught_by"] for fault in controls["planted"].values())
    assert len(controls["planted"]) == 2 + ("sampler" in parts) + ("directions" in parts)
    assert controls["null"]["lower_bound"] < 0.5
    assert data["passed"]
    assert answer.exit_code == 0
    assert json.loads((tmp_path / "audit" / f"{name}.json").read_text())["code"] == data["code"]


def test_with_repetitions_the_bound_reaches_what_the_noise_allows(tmp_path):
    """ε = 3, of which a perfect record shows about 1.5 in so many repetitions; half the noise is refuted."""
    data = audited(tmp_path, "loss=distance/noisy_records", "task.repetitions=40000").data
    assert 1 < data["lower_bound"] < 3
    assert 2.7 < data["if_gaussian"] < 3
    assert "the bound" in data["controls"]["planted"]["noise at half size"]["caught_by"]


def test_what_the_paper_ran_is_found_out(tmp_path):
    """Raw rows move by up to 4, the root of their 16 pixels, and are priced as 1."""
    answer = audited(tmp_path, "loss=dp_swd_paper", "loss.projections=8", "privacy.mode=paper", "task.steps=1")
    assert not answer.data["parts"]["sensitivity"]["holds"]
    assert answer.data["parts"]["sensitivity"]["actual"] == pytest.approx(4, rel=1e-3)
    assert answer.exit_code == 1


def test_too_little_noise_is_found(tmp_path, monkeypatch):
    """A factor of 3 between the sensitivity that is stated and the true one."""
    monkeypatch.setattr(dp_merf, "ROUNDING", 1 / 3)
    data = audited(tmp_path, *MERF).data
    assert not data["parts"]["sensitivity"]["holds"]
    assert not data["passed"]


def test_directions_of_a_published_seed_are_found(tmp_path, monkeypatch):
    original = dp_swd.uniform_directions
    monkeypatch.setattr(
        dp_swd, "uniform_directions", lambda k, d, _, device: original(k, d, torch.Generator().manual_seed(0), device)
    )
    data = audited(tmp_path, *SWD).data
    assert not data["parts"]["directions"]["holds"]
    assert not data["passed"]


def test_a_sampler_that_the_gate_was_not_told_is_found(tmp_path, monkeypatch):
    """The step draws from a sampler of its own: twice the rate, under a tape that thinks it tells it what to draw."""
    real = dp_sgd.Poisson

    class Other(real):
        def __init__(self, population, rate, generator):
            super().__init__(population, rate, generator)
            self.own = real(population, min(2 * rate, 1.0), generator)

        def __setattr__(self, name, value):
            if name != "draw":
                super().__setattr__(name, value)

        def draw(self):
            return self.own.draw()

    monkeypatch.setattr(dp_sgd, "Poisson", Other)
    data = audited(tmp_path, "loss=classify/dp_sgd").data
    assert not data["parts"]["batch"]["holds"]
    assert not data["passed"]


class NoisySums(Method):
    """A method that the audit knows nothing of: at each step the noisy sum of a Poisson batch, clipped or not."""

    def __init__(self, clip: float = 1.0, careless: bool = False) -> None:
        self.clip, self.careless = clip, careless

    def prepare(self, problem):
        steps = problem.steps(10)
        sampler = Poisson(len(problem.images), 0.5, problem.noise.generator)

        def event(multiplier):
            return PoissonSampled(Gaussian(multiplier, Adjacency.ADD_REMOVE), 0.5)

        release = problem.release(
            event(calibration.find_sigma(event, steps, problem.budget)), sampler=sampler, steps=steps
        )
        model, mean = problem.generator, torch.zeros(problem.images[0].numel())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step():
            drawn = sampler.draw()
            rows = drawn.rows(problem.images).flatten(1) - 0.5 * mean  # asked after the answers before
            rows = rows if self.careless else clip_rows(rows, self.clip)
            total = drawn.mask.float() @ rows  # the padding of a batch counts for nothing
            mean.copy_(release(total, self.clip) / (0.5 * len(problem.images)))
            loss = (model(model.code(4, problem.random, "cpu"), torch.arange(4)).flatten(1) - mean).square().mean()
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        return problem.engine(step, steps=steps, optimizer=optimizer, tensors={"mean": mean}, before=release.charge)


@pytest.mark.parametrize("careless", [False, True])
def test_a_method_that_nobody_prepared_is_audited_by_what_passes_the_gate(tmp_path, monkeypatch, careless):
    """Its records are sampled, and what it asks depends on earlier answers; without clipping it is found out."""
    module = types.ModuleType("dpot.methods.generate.noisy_sums")
    module.NoisySums = NoisySums
    monkeypatch.setattr(NoisySums, "__module__", module.__name__)  # where a method must be
    monkeypatch.setitem(sys.modules, module.__name__, module)
    known = config.known_targets() | {f"{module.__name__}.NoisySums"}
    monkeypatch.setattr(config, "known_targets", lambda: known)  # as if a file of conf/ named it
    cfg = compose_config([*SMALL, f"output_root={tmp_path}"])
    OmegaConf.set_struct(cfg, False)
    cfg.loss = OmegaConf.create({"_target_": "dpot.methods.generate.noisy_sums.NoisySums", "careless": careless})
    data = run(cfg).data
    assert data["name"] == "noisy_sums"
    assert data["parts"]["sensitivity"]["holds"] != careless
    assert data["passed"] != careless


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["loss=swd"], "cannot be audited"),
        (["loss=classify/wdp_sgd"], "no claim to test"),
        (["privacy.epsilon=null"], "needs a claim"),
        (["task.repetitions=10"], "800 or more"),
    ],
)
def test_what_cannot_be_audited_is_said(tmp_path, overrides, words):
    with pytest.raises(Exception, match=words):
        audited(tmp_path, *overrides)


@pytest.mark.parametrize(
    "sampler",
    [
        lambda g: FixedSize(4, 2, g),
        lambda g: Poisson(4, 0.3, g),
        lambda g: Stratified(torch.tensor([0, 1, 0, 1, 0]), [2, 1], g),
    ],
)
def test_many_draws_at_once_follow_the_law_of_single_ones(sampler):
    """Each record's frequency is its rate, and no batch holds a record twice."""
    made = sampler(torch.Generator().manual_seed(0))
    batches = [batch_of(one) for one in made.draw_many(4000)]
    rates = [2 / 3, 1 / 2, 2 / 3, 1 / 2, 2 / 3] if isinstance(made, Stratified) else [made.rate] * 4
    for record, rate in enumerate(rates):
        found = sum(record in batch for batch in batches) / len(batches)
        assert found == pytest.approx(rate, abs=0.04)
    assert all(len(set(batch)) == len(batch) for batch in batches)
    lengths = {len(batch) for batch in batches}
    assert lengths == ({0, 1, 2, 3, 4} if isinstance(made, Poisson) else {made.batch})


def test_every_private_loss_with_a_claim_is_in_the_list_of_audits():
    sys.path.insert(0, str(CONF_DIR.parent / "scripts"))
    from audits import AUDITS

    folder = CONF_DIR / "loss"
    known = {_loss_in(folder / f"{name}.yaml") for name in AUDITS}
    losses = {_loss_in(path) for path in folder.rglob("*.yaml")}
    assert {loss for loss in losses if loss.private and loss.keeps_epsilon} == known
