"""What each method says one record can change, against what it does change."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpot.methods import gate, work
from dpot.methods.generate.base import Problem
from dpot.methods.generate.dp_merf import DPMERF
from dpot.methods.generate.dp_sinkhorn import DPSinkhorn
from dpot.methods.generate.dp_swd import DPSWD, SWD
from dpot.methods.kept import Kept
from dpot.models.merf_conv import MerfConv
from dpot.privacy.budget import Budget
from dpot.privacy.events import Gaussian, NonPrivate
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.training.sanitise import sanitise_images
from dpot.transport.mmd import fourier_frequencies, mean_embedding

SIDE, CLASSES = 8, 3
scales = st.sampled_from([0.0, 1e-3, 0.1, 1.0])


def images(seed, scale, count=2):
    """Anything an image may be: faint, full, sparse."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(count, 1, SIDE, SIDE, generator=generator) * scale
    mask = torch.rand(count, 1, SIDE, SIDE, generator=generator) < torch.rand(count, 1, 1, 1, generator=generator)
    return drawn * mask


def problem(count=60, epsilon=10.0, calibrated=None):
    x = images(0, 1.0, count)
    return Problem(
        images=x,
        labels=torch.arange(count) % CLASSES,
        classes=CLASSES,
        generator=MerfConv(classes=CLASSES, shape=(1, SIDE, SIDE)),
        budget=Budget(epsilon or calibrated, 1e-5),
        ledger=Ledger(1e-5, epsilon),
        noise=NoiseSource(),
        random=torch.Generator().manual_seed(0),
        max_steps=3,
    )


def released(own):
    release = own.release(Gaussian(2.0))
    return own.keep_release("x", [release], lambda: {"y": release(torch.zeros(5), 1.0)})["y"]


@settings(deadline=None)
@given(st.integers(0, 10**6), scales, scales, st.sampled_from(["public", "joint"]), st.floats(0.5, 20))
def test_clipped_rows_are_never_further_apart_than_one(seed, first, second, labels, bound):
    method = SWD(labels=labels, norm_bound=bound, label_weight=3.0)
    pair = torch.cat([images(seed, first, 1), images(seed + 1, second, 1)])
    classes = torch.tensor([0, 2]) if labels == "joint" else torch.tensor([1, 1])
    rows = method.vectors(pair, classes, CLASSES)
    assert float((rows[0].double() - rows[1].double()).norm()) <= 1.0
    assert method.diameter(SIDE * SIDE) == 1.0


def test_the_diameter_is_attained():
    white = torch.zeros(2, 1, SIDE, SIDE)
    white[0, 0, : SIDE // 2], white[1, 0, SIDE // 2 :] = 1, 1  # nothing in common, both above the norm bound
    rows = SWD(norm_bound=2.0).vectors(white, torch.zeros(2, dtype=torch.long), CLASSES)
    assert float((rows[0] - rows[1]).norm()) == pytest.approx(1.0, abs=1e-4)


@given(st.integers(0, 10**6))
def test_raw_rows_stay_inside_their_stated_diameter(seed):
    method = SWD(rows="raw")
    rows = method.vectors(images(seed, 1.0), torch.zeros(2, dtype=torch.long), CLASSES)
    assert float((rows[0] - rows[1]).norm()) <= method.diameter(SIDE * SIDE) == SIDE


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 2), st.integers(0, 2))
def test_one_record_moves_the_embedding_by_at_most_two_over_n(seed, before, after):
    frequencies = fourier_frequencies(64, SIDE * SIDE, 3.0, torch.Generator().manual_seed(seed))
    x, y = images(seed, 1.0, 20).flatten(1), torch.arange(20) % CLASSES
    other, y_other = x.clone(), y.clone()
    other[7], y[7], y_other[7] = images(seed + 1, 1.0, 1).flatten(1), before, after
    move = mean_embedding(x, frequencies, y, CLASSES) - mean_embedding(other, frequencies, y_other, CLASSES)
    assert float(move.norm()) <= 2 / 20 * (1 + 1e-5)


@pytest.mark.parametrize("per", ["row", "block"])
def test_clipped_gradients_lie_in_the_ball_the_noise_is_for(per):
    method = DPSinkhorn(clip=0.5, clip_per=per, batch=6)
    moved = []
    for seed in (0, 1):  # two data sets: whatever gradient they give, even a huge or broken one
        x = torch.zeros(6, 10, requires_grad=True)
        slope = torch.randn(6, 10, generator=torch.Generator().manual_seed(seed)) * 1e6
        slope[seed] = math.nan
        (sanitise_images(x, method.clip, problem(epsilon=None).release(NonPrivate()), per) * slope).sum().backward()
        moved.append(x.grad)
    assert float((moved[0] - moved[1]).norm()) <= method.sensitivity


@pytest.mark.parametrize("method", [DPSWD(batch=6, projections=20), DPMERF(features=64, batch=6)])
def test_the_ledger_holds_what_was_released(method):
    own = problem()
    outcome = method.fit(own)
    assert own.ledger.releases == (outcome.steps if isinstance(method, DPSWD) else 1)
    assert 0 < own.ledger.epsilon() <= 10


def test_a_step_beyond_the_budget_is_refused_before_it_happens():
    own = problem()
    method = DPSWD(batch=6, projections=20)
    own.max_steps = 3
    method.fit(own)
    calls = own.ledger.releases
    with pytest.raises(Exception, match="exceed the budget"):
        method.fit(own)
    assert own.ledger.releases == calls


def test_noise_and_batches_do_not_follow_the_experiment_seed():
    losses = []
    for _ in range(2):
        torch.manual_seed(0)
        losses.append(DPSWD(batch=6, projections=20).fit(problem()).history[-1]["loss"])
    assert losses[0] != losses[1]


def test_a_statement_does_not_speak_for_what_other_code_did(tmp_path, monkeypatch):
    """Steps and releases that a resumed run finds there are named with their code; its own are not."""

    def run(code: str) -> list[str]:
        for module in (work, gate):
            monkeypatch.setattr(module, "name_of_code", lambda: code)
        own = problem(epsilon=None, calibrated=10.0)
        own.checkpoints, own.max_steps = tmp_path / "run" / "checkpoints", 3
        own.kept = Kept(tmp_path / "kept", "these data")
        DPSWD(batch=6, projections=20, labels="none").fit(own)
        released(own)
        return [line for line in own.statement().not_covered if "other code" in line]

    assert run("first") == []
    release, steps = run("second")
    assert "up to 3, made by other code (first)" in steps
    assert "the release x, made by other code (first)" in release


def test_a_training_resumed_often_has_one_line_per_code():
    parts = [(2, "old"), (5, "old"), (9, "older"), (11, work.name_of_code())]
    earlier = [{"until": until, "code": code} for until, code in parts]
    own, engine = problem(epsilon=None), SimpleNamespace(name="training", outcome=SimpleNamespace(earlier=earlier))
    statement = work.statement_of(own.ledger, own.noise, [engine])
    lines = [line for line in statement.not_covered if "other code" in line]
    assert [line.split(", made by ")[0] for line in lines] == [f"the steps of training up to {n}" for n in (5, 9)]


def test_a_resumed_release_is_the_same_release(tmp_path):
    own = problem(epsilon=None)
    own.kept = Kept(tmp_path, "these data")
    first, again = released(own), released(own)
    assert torch.equal(first, again)
    assert own.ledger.releases == 2  # it is entered each time: a resumed run has a ledger of its own
    own.kept = Kept(tmp_path, "other data")
    assert not torch.equal(released(own), first)
