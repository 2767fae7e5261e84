"""DPDM and the diffusion model that begins at the sketch: steps against loops, budgets against other accountants."""

import dp_accounting
import pytest
import torch
from dp_accounting import pld

from dpot.errors import UsageError
from dpot.methods.generate.base import Problem
from dpot.methods.generate.dpdm import DPDM
from dpot.methods.generate.sketch_diffusion import SketchDiffusion, labels_of, share_of
from dpot.methods.kept import Kept
from dpot.methods.tape import Tape
from dpot.models.diffusion import Diffusion
from dpot.models.linear import Linear
from dpot.privacy.accountants import accounts, composed
from dpot.privacy.budget import Budget
from dpot.privacy.calibration import least_sigma
from dpot.privacy.errors import BudgetExceeded
from dpot.privacy.events import Adjacency, Gaussian, PoissonSampled
from dpot.privacy.gaussian import gaussian_epsilon
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.training.engine import Engine
from dpot.training.samplers import Draw

SHAPE, CLASSES = (1, 4, 4), 2
SKETCH = {"rounds": 1, "lines": 8, "knots": 4, "planes": 0, "steps": 3, "batch": 8}


def problem(records=40, epsilon=10.0, steps=2, seed=1, folder=None, **more):
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(3)
    model = Diffusion(CLASSES, SHAPE, width=4, multipliers=(1,), blocks=1, steps=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
    budget = Budget(epsilon, 1e-5)
    given = {
        "images": torch.rand(records, *SHAPE, generator=random),
        "labels": torch.arange(records) % CLASSES,
        "classes": CLASSES,
        "generator": model,
        "budget": budget,
        "ledger": Ledger.of(budget),
        "noise": NoiseSource(seed),
        "random": torch.Generator().manual_seed(5),
        "max_steps": steps,
        "checkpoints": folder / "checkpoints" if folder else None,
        "kept": Kept(folder / "releases", "owner") if folder else None,
    }
    return Problem(**given | more)


def released(drawn, counted, **options):
    """What a step brings to the gate when these records are drawn, and the problem it was made in."""
    index = torch.tensor(drawn)
    tape = Tape(draw=Draw(index, torch.arange(len(drawn)) < counted))
    own = problem(tape=tape, steps=1)
    DPDM(batch=3, copies=4, **options).fit(own)
    return tape.passed[0], own


def test_a_step_releases_the_sum_of_clipped_gradients_averaged_over_copies():
    drawn = [7, 0, 30, 12]
    passed, _ = released(drawn, 3, clip=0.05)
    fresh = problem()
    model, random = fresh.generator, torch.Generator().manual_seed(5)
    room = passed.sampler.batch
    chance = model.chance(room, 4, random)
    turn = torch.randint(room, (1,), generator=random)
    expected = 0.0
    for place in drawn[:3]:
        loss = model.losses(
            fresh.images[place, None] * 2 - 1, fresh.labels[place, None], chance.at((turn + place) % room)
        )
        row = torch.cat([g.flatten() for g in torch.autograd.grad(loss.sum(), list(model.parameters()))]).double()
        expected = expected + row * min(1.0, 0.05 / float(row.norm()))
    torch.testing.assert_close(passed.value.double(), expected, rtol=1e-4, atol=1e-6)
    assert passed.sensitivity == 0.05
    assert passed.deviation == pytest.approx(0.05 * passed.event.event.noise_multiplier)


def test_one_image_more_moves_no_other_gradient():
    """The copies of an image are the same whoever else is drawn, and wherever in the batch it lies."""
    with_it, _ = released([30, 7, 0, 0], 3)
    without, _ = released([7, 0, 0, 0], 2)
    alone, _ = released([30, 0, 0, 0], 1)
    torch.testing.assert_close(with_it.value - without.value, alone.value, rtol=1e-3, atol=1e-8)
    assert float(alone.value.norm()) == pytest.approx(1e-3, rel=1e-4)  # every gradient is scaled to the clip


def test_rows_held_at_once_do_not_matter():
    values = [released([7, 0, 30, 12], 4, at_once=size)[0].value for size in (1, 3, 100)]
    torch.testing.assert_close(values[0], values[1], rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(values[0], values[2], rtol=1e-4, atol=1e-8)


def test_the_gradient_of_the_weights_is_the_release_over_the_expected_batch():
    tape = Tape(draw=Draw(torch.tensor([1, 2, 3, 4]), torch.ones(4, dtype=torch.bool)))
    own = problem(tape=tape, steps=1)
    DPDM(batch=3, copies=2).fit(own)
    before = torch.cat([p.flatten() for p in problem().generator.parameters()])
    after = torch.cat([p.flatten() for p in own.generator.parameters()]).detach()
    # Adam's first step is against the sign; with one update the average is a tenth of the way behind it
    gone = (after - before).sign()
    left = tape.passed[0].noisy.sign()
    assert ((gone == -left) | (gone == 0)).float().mean() > 0.99


def test_all_of_the_budget_is_spent_and_two_other_accountants_agree():
    epsilon = 1.0
    own = problem(records=400, epsilon=epsilon, steps=4)
    SketchDiffusion(share=0.3, batch=20, copies=1, warm_steps=2, warm_batch=4, sketch=SKETCH, sketch_width=4).fit(own)
    assert own.ledger.adjacency is Adjacency.ADD_REMOVE
    kinds = {type(event) for event in own.ledger.spending()}
    assert PoissonSampled in kinds
    assert len(kinds) == 2
    assert 0.99 * epsilon < own.ledger.epsilon() <= epsilon
    found = accounts(composed(own.ledger.spending()), 1e-5, names=["dp_accounting_rdp", "dp_accounting_pld"])
    assert found["dp_accounting_pld"].epsilon <= epsilon
    assert found["dp_accounting_rdp"].epsilon <= 1.02 * epsilon  # its orders are coarser


def test_by_the_loss_distribution_less_noise_keeps_the_same_budget():
    """Against Google's accountant, which composes the same releases by itself."""
    noise = {}
    for conversion in ("tight", "pld"):
        budget = Budget(1.0, 1e-5, conversion=conversion)
        own = problem(records=400, steps=20, budget=budget, ledger=Ledger.of(budget))
        method = DPDM(batch=40, copies=1)
        method.private_engine(own)
        noise[conversion] = method.multiplier
    assert 0.8 < noise["pld"] / noise["tight"] < 0.97
    event = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(noise["pld"]))
    found = pld.PLDAccountant(value_discretization_interval=1e-3).compose(event, 20).get_epsilon(1e-5)
    assert found == pytest.approx(1.0, rel=5e-3)
    step = PoissonSampled(Gaussian(noise["pld"], Adjacency.ADD_REMOVE), 0.1)
    own.ledger.charge(step, 20, source="a test", sampler="poisson")
    assert own.ledger.epsilon() <= 1
    with pytest.raises(BudgetExceeded):
        own.ledger.charge(step, 1, source="a test", sampler="poisson")


def test_the_sketch_gets_its_share():
    """1/z² of its releases is the share of 1/z² of a single Gaussian with the whole budget."""
    own = problem(records=400)
    method = SketchDiffusion(share=0.3, batch=20, copies=1, warm_steps=1, warm_batch=4, sketch=SKETCH, sketch_width=4)
    method._sketched(own)
    spent = sum(n / event.noise_multiplier**2 for event, n in own.ledger.spending().items())
    whole = least_sigma(lambda z: gaussian_epsilon(z, 1e-5), 10.0)
    assert spent == pytest.approx(0.3 / whole**2, rel=1e-5)
    assert 0.15 < share_of(1.0) <= 0.25
    assert share_of(10.0) == pytest.approx(0.05, rel=0.02)


def test_a_replacement_is_one_less_and_one_more():
    """(ε/2, δ/(1 + e^(ε/2))) for one image more or less is (ε, δ) for a replacement."""
    own = problem(epsilon=2.0)
    DPDM(batch=3, copies=1, adjacency="replace-one").fit(own)
    one_more = own.ledger.epsilon()
    assert one_more < 1.0  # at the larger δ of the ledger
    assert "replacing an image" in own.ledger.uncovered[0]


def test_labels_have_the_released_shares():
    labels = labels_of(torch.tensor([0.5, 0.125, 0.375, 0.0]), 80, torch.Generator())
    assert torch.bincount(labels, minlength=4).tolist() == [40, 10, 30, 0]
    assert set(labels[:8].tolist()) == {0, 1, 2}
    assert len(labels_of(torch.tensor([1 / 3] * 3), 100, torch.Generator())) == 100


def test_a_generator_that_is_no_diffusion_model_is_refused():
    with pytest.raises(UsageError, match="generator=diffusion"):
        DPDM().fit(problem(generator=Linear(CLASSES, SHAPE)))
    with pytest.raises(UsageError, match="take fewer of them a step"):
        DPDM(batch=40).fit(problem())


def test_a_killed_training_goes_on_with_the_same_noise_and_ledger(tmp_path, monkeypatch):
    options = {"batch": 20, "copies": 1, "warm_steps": 2, "warm_batch": 4, "sketch": SKETCH, "sketch_width": 4}

    def fit(folder, steps=4):
        own = problem(records=400, steps=steps, folder=folder)
        SketchDiffusion(**options, snapshots=2).fit(own)
        return own

    whole = fit(tmp_path / "whole")
    close = Engine.close

    def killed(engine, n):
        close(engine, n)
        engine.keep()
        if engine.name.endswith("private") and engine.step >= 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "close", killed)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "parts")
    monkeypatch.undo()
    own = fit(tmp_path / "parts")
    assert own.engines[-1].outcome.resumed_at == 2
    assert own.ledger.state_dict()["entries"] == whole.ledger.state_dict()["entries"]
    assert {p.name for p in (tmp_path / "parts" / "snapshots").iterdir()} == {
        *("000000.safetensors", "000002.safetensors", "000004.safetensors")
    }
