"""Adaptation methods: how many releases, what one record can move, what may flow back, what the paper's runs cost."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpot.errors import PrivacyError, UsageError
from dpot.methods.adapt import dp_swd as dp_swd_adaptation
from dpot.methods.adapt.base import AdaptationProblem
from dpot.methods.adapt.dann import DANN
from dpot.methods.adapt.dp_dann import DPDANN
from dpot.methods.adapt.dp_swd import DPSWDAdaptation
from dpot.methods.adapt.sketch import Sketch, SketchAlignment
from dpot.methods.adapt.source_only import SourceOnly, TargetTrained
from dpot.methods.adapt.swd import SWDAdaptation
from dpot.methods.gate import Gate, Release
from dpot.methods.kept import Kept
from dpot.models.adaptation import digit_network, feature_network
from dpot.privacy.budget import Budget
from dpot.privacy.events import Adjacency, FixedSizeSampled, Gaussian, PoissonSampled, ProjectionGaussian
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.statement import Statement
from dpot.training.samplers import FixedSize
from dpot.transport.directions import uniform_directions

PAPER = {"rows": "batch_max", "gradients": "through", "batches": "shuffled"}
SMALL = {"batch": 8, "epochs": 4, "source_epochs": 1}


def problem(budget=None, records=40, target=30, network=None, shape=(12,), seed=0):
    torch.manual_seed(seed)
    budget = budget or Budget()
    free = Budget(None, budget.delta, budget.bound, budget.conversion, budget.mode)
    return AdaptationProblem(
        source=torch.randn(records, *shape) + 1,
        labels=torch.arange(records) % 3,
        target=torch.randn(target, *shape),
        classes=3,
        network=network or feature_network(shape[0], 3, hidden=10, width=6),
        budget=budget,
        ledger=Ledger.of(free if budget.mode == "paper" else budget),
        noise=NoiseSource(seed),
        random=torch.Generator().manual_seed(seed),
    )


def fit(method, task):
    outcomes = {name: make().run() for name, make in method.stages(task)}
    return outcomes, Statement.of(task.ledger, {**task.noise.record(), "reproducible": False})


def paper_budget(**options):
    return Budget(bound="coded", conversion="mironov", mode="paper", **options)


def test_the_published_run_has_11_epochs_of_source_training_and_41652_releases():
    task = problem()
    task.source = torch.empty(60_000, 0)
    assert DPSWDAdaptation().plan(task) == (5148, 41652)
    task.max_steps = 300
    assert sum(DPSWDAdaptation().plan(task)) == 300
    task.max_steps = 2
    assert DPSWDAdaptation().plan(task) == (1, 1)


def test_sound_releases_are_counted_in_the_dimension_projected():
    task = problem()
    outcomes, statement = fit(DPSWDAdaptation(**SMALL, projections=7), task)
    (entry,) = task.ledger.entries
    assert entry.count == outcomes["alignment"].steps == 3 * 5
    assert isinstance(entry.event, FixedSizeSampled)
    assert (entry.event.batch, entry.event.population, str(entry.sampler)) == (8, 30, "fixed-size")
    assert isinstance(entry.event.event, ProjectionGaussian)
    assert (entry.event.event.dimension, entry.event.event.projections, entry.event.event.diameter) == (6, 7, 1.0)
    assert statement.rigorous
    assert 9.9 < statement.epsilon <= 10


def test_the_papers_own_m_u_run_cost_40_by_its_formula_and_6_6_exactly():
    task = problem(paper_budget(), target=7438, shape=(1, 2, 2), network=digit_network())
    method = DPSWDAdaptation(**PAPER, accounted_dimension=784, accounted_releases="target_epochs")
    sampler = FixedSize(7438, 128, task.noise.generator)
    release = method._mechanism(task, sampler, 41652)
    event = release.event
    assert release.deviation() == pytest.approx(5.34, rel=0.01)  # as printed in Table 4
    assert event.event.dimension == 320
    task.ledger.charge(event, 41652, source="test", sampler="shuffled")
    statement = Statement.of(task.ledger, None, accountants=["dpot_rdp"])
    assert statement.epsilon == pytest.approx(40.3, abs=0.1)
    assert not statement.rigorous
    assert any("41652" in r and "5900 releases" in r and "ε = 6.6" in r for r in statement.reasons)


@pytest.mark.parametrize(
    "option", [*PAPER.items(), ("accounted_dimension", 784), ("accounted_releases", "target_epochs")]
)
def test_sound_mode_refuses_each_liberty_of_the_paper(option):
    task = problem()
    with pytest.raises(UsageError, match="no proof covers"):
        fit(DPSWDAdaptation(**SMALL, **dict([option])), task)
    assert task.ledger.releases == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-6, 1.0, 1e6, math.inf]), st.integers(0, 7))
def test_one_record_moves_one_row_by_at_most_1_and_the_public_scale_not_at_all(seed, size, place):
    rng = torch.Generator().manual_seed(seed)
    source, target = torch.randn(8, 5, generator=rng) * 3 + 2, torch.randn(8, 5, generator=rng) * 4
    other = target.clone()
    other[place] = torch.randn(5, generator=rng) * size
    method = DPSWDAdaptation()
    public, rows, radius = method.bounded(source, target)
    same, moved, again = method.bounded(source, other)
    assert torch.equal(public, same)
    assert torch.equal(radius, again)
    apart = (rows - moved).double().norm(dim=1)
    assert apart[place] <= 1
    assert apart.sum() == apart[place]
    assert public.norm(dim=1).max() <= 0.5


def test_the_papers_normalisation_lets_one_record_move_every_row():
    source, target = torch.rand(8, 5), torch.rand(8, 5)
    other = target.clone()
    other[0] *= 1000
    method = DPSWDAdaptation(**PAPER)
    _, rows, _ = method.bounded(source, target)
    _, moved, _ = method.bounded(source, other)
    assert ((rows - moved).norm(dim=1)[1:] > 0.1).all()


@pytest.mark.parametrize("sound", [True, False])
def test_only_the_paper_sends_gradients_through_the_target(sound, monkeypatch):
    seen = []
    plain = dp_swd_adaptation.wasserstein_1d
    monkeypatch.setattr(dp_swd_adaptation, "wasserstein_1d", lambda x, y, q: seen.append(y) or plain(x, y, q))
    task = problem() if sound else problem(paper_budget())
    task.max_steps = 2
    fit(DPSWDAdaptation(**SMALL, **({} if sound else PAPER)), task)
    assert all(real.requires_grad is not sound for real in seen)


def test_the_two_loss_scales_are_root_n_and_half_of_it_apart():
    def first_distance(method, budget=None):
        task = problem(budget, seed=3)
        outcomes, _ = fit(method, task)
        return outcomes["alignment"].history[-1]["distance"]

    one = {"batch": 16, "epochs": 1, "source_epochs": 0}
    plain = [
        first_distance(SWDAdaptation(**one, weight=0, loss_scale=scale), Budget(None)) for scale in ("sum", "mean")
    ]
    assert plain[0] / plain[1] == pytest.approx(4, rel=1e-5)
    noisy = [first_distance(DPSWDAdaptation(**one, weight=0, loss_scale=scale)) for scale in ("sum", "mean")]
    assert noisy[0] / noisy[1] == pytest.approx(2, rel=1e-5)


def test_non_private_methods_say_that_nothing_is_proved():
    for method in (SWDAdaptation(**SMALL), DANN(**SMALL)):
        _, statement = fit(method, problem(Budget(None)))
        assert statement.epsilon is None
        assert not statement.rigorous


def test_the_floor_touches_no_private_record():
    task = problem(Budget(None))
    task.target = torch.full_like(task.target, float("nan"))
    outcomes, statement = fit(SourceOnly(batch=8, epochs=2), task)
    assert outcomes["source"].steps == 10
    assert statement.entries == []


def test_the_ceiling_needs_the_labels():
    with pytest.raises(UsageError, match="no labels"):
        fit(TargetTrained(batch=8, epochs=2), problem(Budget(None)))


def test_the_ceiling_hands_its_rows_to_the_gate(monkeypatch):
    task = problem(Budget(None))
    task.target_labels = torch.arange(30) % 3
    passed = []
    monkeypatch.setattr(Release, "bare", lambda self, rows: passed.append(rows) or rows)
    fit(TargetTrained(batch=8, epochs=2), task)
    assert task.ledger.releases == len(passed) == 10
    assert all((rows[:, None] == task.target).all(2).any(1).all() for rows, _ in passed)


def test_a_delta_above_one_over_the_targets_records_is_refused_before_anything_runs():
    with pytest.raises(PrivacyError, match="30 records"):
        problem(Budget(delta=0.04))


def test_what_samplers_may_fail_by_is_set_aside_before_the_noise_is_calibrated():
    task = problem()
    outcomes, statement = fit(DPSWDAdaptation(**SMALL), task)
    assert statement.set_aside == pytest.approx(outcomes["alignment"].steps * 2.0**-64, rel=0.01)
    assert any("set aside" in reason for reason in statement.reasons)


# DP-DANN


def test_dp_dann_is_charged_as_poisson_sampled_gaussian_noise():
    task = problem()
    outcomes, statement = fit(DPDANN(**SMALL), task)
    (entry,) = task.ledger.entries
    assert entry.event == PoissonSampled(Gaussian(entry.event.event.noise_multiplier, Adjacency.ADD_REMOVE), 8 / 30)
    assert entry.count == outcomes["alignment"].steps
    assert statement.rigorous
    assert statement.epsilon <= 10


def test_the_coded_variant_erases_the_signal():
    total = {"a": torch.full((2000,), 64 / math.sqrt(2000)), "b": torch.zeros(3)}
    wanted = total["a"] / total["a"].norm()

    def alignment(**options):
        gate = Gate(ledger=Ledger(1e-5), noise=NoiseSource(1))
        noisy = DPDANN(**options)._noisy(total, gate.release(Gaussian(1.0)))["a"]
        return float(noisy @ wanted / noisy.norm())

    once, again = alignment(), alignment(clipping="coded")
    assert once > 0.7
    assert abs(again) < 0.1


def test_the_coded_variant_is_for_paper_mode():
    with pytest.raises(UsageError, match="paper"):
        fit(DPDANN(**SMALL, clipping="coded", noise_multiplier=17.0), problem())
    _, statement = fit(DPDANN(**SMALL, clipping="coded", noise_multiplier=17.0), problem(paper_budget()))
    assert not statement.rigorous
    assert any("clipped by itself" in reason for reason in statement.reasons)


# the one-shot sketch


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 1e4]))
def test_one_record_moves_the_moments_by_at_most_2_and_root_2_over_n(seed, size):
    rng = torch.Generator().manual_seed(seed)
    basis = uniform_directions(4, 7, rng)
    records = torch.randn(9, 7, generator=rng) * 3
    public = Sketch.of(basis, torch.randn(20, 7, generator=rng), 1.5)
    other = records.clone()
    other[2] = torch.randn(7, generator=rng) * size
    (mean, second), (mean_other, second_other) = public.moments(records), public.moments(other)
    assert (mean - mean_other).norm() <= 2 / 9 * (1 + 1e-6)
    assert (second - second_other).norm() <= math.sqrt(2) / 9 * (1 + 1e-6)


def test_the_sketch_is_two_releases_whatever_the_training():
    task = problem()
    _, statement = fit(SketchAlignment(**SMALL), task)
    assert statement.releases == 2
    assert statement.rigorous
    assert 9.9 < statement.epsilon <= 10
    assert {str(entry.sampler) for entry in task.ledger.entries} == {"full"}


def test_with_hardly_any_noise_the_moved_source_has_the_targets_moments():
    rng = np.random.default_rng(0)
    mixing = np.eye(5) + 0.4 * rng.standard_normal((5, 5))
    task = problem(Budget(epsilon=300), records=4000, target=4000, shape=(5,))
    task.target = (task.source[:, [1, 0, 2, 3, 4]] @ torch.from_numpy(mixing).float()) * 0.8 + 0.5
    moved = SketchAlignment(dimension=5, radius=3.0)._moved_features(task)
    torch.testing.assert_close(moved.mean(0), task.target.mean(0), atol=0.02, rtol=0)
    torch.testing.assert_close(moved.T.cov(), task.target.T.cov(), atol=0.05, rtol=0)


def test_images_are_moved_to_where_the_target_is():
    torch.manual_seed(0)
    task = problem(records=200, target=2000, shape=(1, 28, 28), network=digit_network())
    spots = torch.full((200, 1, 28, 28), -1.0)
    spots[:, :, 11:17, 11:17] = torch.rand(200, 1, 1, 1) * 2 - 1
    task.source = spots
    task.target = torch.roll(spots, (2, -2), (2, 3)).repeat(10, 1, 1, 1)
    task.max_steps = 80
    method = SketchAlignment(batch=50, epochs=40, source_epochs=1, transport_rate=0.03, transport_batch=40)
    stages = dict(method.stages(task))
    history = stages["transport"]().run().history
    shift = method._map.theta[:, 2] * 14  # in pixels, where samples are taken
    assert shift.tolist() == pytest.approx([2, -2], abs=0.4)
    assert history[-1]["loss"] < 1


def test_a_killed_run_does_not_ask_the_target_again(tmp_path):
    def begin(seed):
        task = problem(seed=0)
        task.noise, task.checkpoints, task.fingerprint = NoiseSource(seed), tmp_path / "checkpoints", "this run"
        task.kept = Kept(tmp_path, "this run")
        return task, dict(SketchAlignment(**SMALL).stages(task))

    killed, stages = begin(seed=1)
    stages["source"]().run()
    stages["alignment"]()  # the release is made when the stage is built; then the run ends
    (file,) = tmp_path.glob("release-moments-*.safetensors")
    kept = file.read_bytes()
    again, stages = begin(seed=2)
    for make in stages.values():
        make().run()
    assert file.read_bytes() == kept
    assert killed.ledger.releases == again.ledger.releases == 2


def test_a_resumed_alignment_goes_on_with_its_ledger(tmp_path):
    def begin(steps=None):
        task = problem(seed=0)
        task.checkpoints, task.fingerprint = tmp_path / "checkpoints", "this run"
        return task, dict(DPSWDAdaptation(**SMALL, projections=5).stages(task))

    first, stages = begin()
    stages["source"]().run()
    engine = stages["alignment"]()
    charge, spent = engine._before, []

    def refuse_after_ten(count):
        if sum(spent) + count > 10:
            raise RuntimeError("killed")
        spent.append(count)
        charge(count)

    engine._before = refuse_after_ten
    with pytest.raises(RuntimeError, match="killed"):
        engine.run()
    assert first.ledger.releases == sum(spent) < 15
    again, stages = begin()
    outcomes = {name: make().run() for name, make in stages.items()}
    assert outcomes["alignment"].resumed_at == sum(spent)
    assert again.ledger.releases == 15
