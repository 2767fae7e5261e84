"""The gate: nothing passes that is not in the ledger, with the sampler that runs and the noise that the event names."""

import math
import re
from pathlib import Path

import pytest
import scipy.stats
import torch

from dpot.composing import compose_config
from dpot.errors import PrivacyError
from dpot.launch import run
from dpot.methods import work
from dpot.methods.gate import Gate
from dpot.methods.generate.base import Method, Problem
from dpot.methods.tape import Tape
from dpot.models.linear import Linear
from dpot.privacy.budget import Budget
from dpot.privacy.counts import count_deviation
from dpot.privacy.errors import BudgetExceeded, InvalidParameter, SamplerMismatch
from dpot.privacy.events import (
    Adjacency,
    CountGaussian,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    ProjectionGaussian,
    SelfComposed,
    StratifiedSampled,
)
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.training.samplers import FixedSize, FullBatch, Poisson, ShuffledEpochs, Stratified

METHODS = Path(work.__file__).parent
ADDED = Gaussian(1.1, Adjacency.ADD_REMOVE)
KEEPING = Gaussian(1.1, Adjacency.REPLACE_KEEPING_LABEL)
LABELS = torch.tensor([0] * 30 + [1] * 10)


def gate(epsilon=None, mode="sound", seed=1, tape=None):
    return Gate(ledger=Ledger(1e-5, epsilon, mode=mode), noise=NoiseSource(seed), tape=tape)


def secret():
    return torch.Generator().manual_seed(0)


AGREEING = [
    (PoissonSampled(ADDED, 0.1), lambda: Poisson(40, 0.1, secret())),
    (PoissonSampled(ADDED, 7 / 70), lambda: Poisson(70, 0.1, secret())),
    (FixedSizeSampled(Gaussian(1.1), 8, 40), lambda: FixedSize(40, 8, secret())),
    (StratifiedSampled(KEEPING, (3, 3), (30, 10)), lambda: Stratified(LABELS, 3, secret())),
    (Gaussian(1.1), lambda: FullBatch(40, "cpu")),
    (Gaussian(1.1), lambda: None),
]
DIFFERING = [
    (PoissonSampled(ADDED, 1e-6), lambda: Poisson(40, 0.5, secret()), "rate=0.5 .* rate=1e-06"),
    (FixedSizeSampled(Gaussian(1.1), 4, 40), lambda: FixedSize(40, 8, secret()), "batch=8 .* batch=4"),
    (FixedSizeSampled(Gaussian(1.1), 8, 400), lambda: FixedSize(40, 8, secret()), "population=40 .* population=400"),
    (StratifiedSampled(KEEPING, (3, 2), (30, 10)), lambda: Stratified(LABELS, 3, secret()), r"per_class=\[3, 3\]"),
    (StratifiedSampled(KEEPING, (3, 3), (30, 90)), lambda: Stratified(LABELS, 3, secret()), r"class_sizes=\[30, 10\]"),
    (PoissonSampled(ADDED, 0.2), lambda: FixedSize(40, 8, secret()), "fixed-size sampling .* poisson sampling"),
    (FixedSizeSampled(Gaussian(1.1), 8, 40), lambda: ShuffledEpochs(40, 8, secret()), "shuffled sampling"),
    (PoissonSampled(ADDED, 0.2), lambda: None, "full sampling .* poisson sampling"),
    (Gaussian(1.1), lambda: Poisson(40, 0.5, secret()), "poisson sampling .* full sampling"),
]


@pytest.mark.parametrize(("event", "sampler"), AGREEING)
def test_a_sampler_with_the_events_numbers_passes(event, sampler):
    own = gate()
    release = own.release(event, sampler=sampler(), steps=3)
    release.charge(3)
    assert own.ledger.releases == 3
    assert not own.ledger.unsound


@pytest.mark.parametrize(("event", "sampler", "words"), DIFFERING)
def test_a_sampler_that_differs_from_its_event_is_an_error_or_in_paper_mode_said(event, sampler, words):
    own = gate(epsilon=100.0)
    with pytest.raises(SamplerMismatch, match=words):
        own.release(event, sampler=sampler(), steps=3)
    assert not own.ledger.entries
    paper = gate(mode="paper")
    paper.release(event, sampler=sampler(), steps=3).charge(3)
    (reason,) = paper.ledger.unsound
    assert re.search(words, reason)


def test_steps_pass_only_once_they_are_in_the_ledger():
    own = gate()
    release = own.release(PoissonSampled(ADDED, 0.1), sampler=Poisson(40, 0.1, secret()), steps=5)
    with pytest.raises(PrivacyError, match=r"before=release\.charge"):
        release(torch.zeros(3), 1.0)
    release.charge(2)
    release(torch.zeros(3), 1.0)
    release(torch.zeros(3), 1.0)
    with pytest.raises(PrivacyError, match="3 releases were made and 2 are in the ledger"):
        release(torch.zeros(3), 1.0)
    assert own.ledger.releases == 2


def test_a_release_that_is_made_once_enters_itself_before_its_noise_is_drawn():
    own = gate(epsilon=1.0)
    before = own.noise.generator.get_state()
    with pytest.raises(BudgetExceeded):
        own.release(Gaussian(0.5))(torch.zeros(3), 1.0)
    assert torch.equal(own.noise.generator.get_state(), before)
    release = own.release(Gaussian(5.0))
    release(torch.zeros(3), 1.0)
    assert own.ledger.releases == 1
    with pytest.raises(PrivacyError, match="2 releases were made"):
        release(torch.zeros(3), 1.0)


def test_steps_beyond_the_budget_are_refused_before_the_first():
    own = gate(epsilon=1.0)
    with pytest.raises(PrivacyError, match="100000 steps with this noise exceed the budget"):
        own.release(PoissonSampled(ADDED, 0.1), sampler=Poisson(40, 0.1, secret()), steps=100_000)
    assert not own.ledger.entries


@pytest.mark.parametrize(
    ("event", "sensitivity", "deviation"),
    [
        (Gaussian(2.0), 0.3, 0.6),
        (PoissonSampled(ADDED, 1.0), 2.0, 2.2),
        (ProjectionGaussian(10, 5, 0.7, diameter=3.0), None, 0.7),
        (CountGaussian(2.0), 3.0, math.sqrt(36 + 4)),
    ],
)
def test_the_noise_is_the_events_and_has_the_size_it_states(event, sensitivity, deviation):
    sampler = Poisson(4, 1.0, secret()) if isinstance(event, PoissonSampled) else None
    whole = isinstance(event, CountGaussian)
    value = torch.full((300, 300), 7, dtype=torch.int64 if whole else torch.float32)
    release = gate(seed=None).release(event, sampler=sampler)
    assert release.deviation(sensitivity) == pytest.approx(deviation)
    noisy = release(value, sensitivity)
    assert noisy.dtype == value.dtype
    noise = (noisy - value).double()
    squares = float(noise.square().sum()) / deviation**2
    assert 1e-6 < scipy.stats.chi2.cdf(squares, noise.numel()) < 1 - 1e-6
    if not whole:
        assert scipy.stats.kstest(noise.flatten().numpy(), "norm", args=(0, deviation)).pvalue > 1e-6


def test_all_noise_is_drawn_in_double_precision():
    """In single precision it ends at 5.77 deviations on a CPU, and an output beyond tells two neighbours apart."""
    expected = NoiseSource(seed=4).normal((40, 5), 0.3, torch.float64).float()
    zero = torch.zeros(40, 5)
    assert torch.equal(gate(seed=4).release(Gaussian(0.3))(zero, 1.0), expected)
    together = gate(seed=4).release(Gaussian(0.3))({"first": zero[:1], "rest": zero[1:]}, 1.0)
    assert torch.equal(torch.cat([together["first"], together["rest"]]), expected)
    assert torch.equal(gate(seed=4).release(Gaussian(0.3))(zero, 1.0, by=lambda x, noise: x + noise.float()), expected)


def test_parts_have_noise_by_their_own_sensitivities():
    release = gate(seed=2).release(CountGaussian(1.5))
    parts = {"a": torch.arange(5), "b": torch.arange(7)}
    noisy = release(parts, {"a": 10.0, "b": 100.0})
    source = NoiseSource(2)
    for name, sensitivity in (("a", 10.0), ("b", 100.0)):
        drawn = source.discrete_gaussian(parts[name].shape, count_deviation(sensitivity, 1.5))
        assert torch.equal(noisy[name], parts[name] + drawn)


def test_without_noise_a_value_passes_as_it_is_and_nothing_is_drawn():
    own = gate()
    release, value = own.release(NonPrivate("a test"), sampler=Poisson(40, 0.5, secret()), steps=3), torch.rand(3)
    before = own.noise.generator.get_state()
    with pytest.raises(PrivacyError):
        release(value)
    release.charge(3)
    assert release(value) is value
    assert release.bare("anything") == "anything"
    assert torch.equal(release(value, 2.0, by=lambda x, noise: 2 * x + noise), 2 * value)
    assert torch.equal(own.noise.generator.get_state(), before)
    assert own.ledger.epsilon() == math.inf
    with pytest.raises(PrivacyError, match="does not pass without noise"):
        own.release(Gaussian(1.0)).bare(value)


def test_noise_that_no_epsilon_stands_behind_is_drawn_and_not_priced():
    own = gate(mode="paper")
    noisy = own.release(NonPrivate("a simulation"), unaccounted=2.0)(torch.zeros(50_000), 3.0)
    assert float(noisy.std()) == pytest.approx(6.0, rel=0.02)
    assert own.ledger.epsilon() == math.inf
    with pytest.raises(InvalidParameter, match="event's own"):
        own.release(Gaussian(1.0), unaccounted=2.0)


@pytest.mark.parametrize(
    ("event", "value", "sensitivity", "words"),
    [
        (CountGaussian(1.0), torch.zeros(3), 1.0, "whole numbers"),
        (Gaussian(1.0), torch.zeros(3), None, "sensitivity"),
        (Gaussian(1.0), torch.zeros(3), 0.0, "sensitivity"),
        (Laplace(1.0), torch.zeros(3), 1.0, "no noise for Laplace"),
        (SelfComposed(Gaussian(1.0), 3), torch.zeros(3), 1.0, "no noise for SelfComposed"),
    ],
)
def test_what_has_no_known_noise_is_refused(event, value, sensitivity, words):
    own = gate()
    before = own.noise.generator.get_state()
    with pytest.raises(InvalidParameter, match=words):
        own.release(event)(value, sensitivity)
    assert torch.equal(own.noise.generator.get_state(), before)


def test_the_tape_has_what_passed_and_changes_nothing():
    tape, plain, taped = Tape(), gate(seed=3), gate(seed=3)
    taped.tape = tape
    value, public = torch.rand(4, 6), {"directions": torch.rand(2, 6)}

    def clip(x, noise):
        x = x.clamp(max=0.5)
        return torch.cat([x[:3] + noise, x[3:]])

    for own in (plain, taped):
        own.last = own.release(Gaussian(2.0))(value, 0.5, by=clip, rows=3, public=public, bounded=value[0])
    assert torch.equal(plain.last, taped.last)
    (one,) = tape.passed
    assert torch.equal(one.value, value[:3].clamp(max=0.5))
    assert torch.equal(one.noisy, plain.last[:3])
    assert (one.sensitivity, one.deviation, one.event) == (0.5, 1.0, Gaussian(2.0))
    assert torch.equal(one.bounded, value[0])
    assert torch.equal(one.public["directions"], public["directions"])
    assert one.source == f"{__name__.replace('.', '/')}.py"


def test_a_tape_takes_the_noise_off_and_gives_the_answers_of_another_run():
    first = Tape()
    value = {"a": torch.rand(3, dtype=torch.float64), "b": torch.rand(2, 2, dtype=torch.float64)}
    given = gate(tape=first).release(Gaussian(1.0))(value, 1.0)
    parts = gate(tape=first, seed=8).release(Gaussian(1.0))(value, {"a": 2.0, "b": 3.0})
    off = gate(tape=Tape(strength=0)).release(Gaussian(1.0))(value, 1.0)
    assert all(torch.equal(off[name], value[name]) for name in value)
    second = gate(tape=Tape(answers=[one.noisy for one in first.passed]), seed=9)
    other = {name: part + 1 for name, part in value.items()}
    again, parts_again = (
        second.release(Gaussian(1.0))(other, 1.0),
        second.release(Gaussian(1.0))(other, {"a": 2.0, "b": 3.0}),
    )
    for name in value:
        assert torch.equal(again[name], given[name])
        assert torch.equal(parts_again[name], parts[name])
    assert torch.equal(second.tape.passed[0].value, first.passed[0].value + 1)
    assert first.passed[1].in_units(first.passed[1].value).tolist() == pytest.approx(
        [*(value["a"] / 2).tolist(), *(value["b"] / 3).flatten().tolist()]
    )


class Forgetful(Method):
    """Looks at private records, as private methods do, and tells nobody."""

    def fit(self, problem):
        from dpot.training.engine import Outcome

        with torch.no_grad():
            next(problem.generator.parameters()).add_(problem.images.mean())
        return Outcome(0, 0.0, "none", "nothing is trained")


def test_a_private_method_with_an_empty_ledger_gets_no_statement():
    own = Problem(
        images=torch.rand(4, 1, 2, 2),
        labels=torch.zeros(4, dtype=torch.int64),
        classes=1,
        generator=Linear(1, (1, 2, 2), code_size=1),
        budget=Budget(10.0, 1e-5),
        ledger=Ledger(1e-5, None),
        noise=NoiseSource(),
        random=torch.Generator(),
    )
    Forgetful().fit(own)
    with pytest.raises(PrivacyError, match="nothing in the ledger"):
        own.statement()
    own.release(Gaussian(5.0))(torch.zeros(1), 1.0)
    assert own.statement().rigorous


def test_a_forgetful_method_leaves_no_record(tmp_path, monkeypatch):
    cfg = compose_config(
        ["task=generate", "dataset=digits", "profile=smoke", "loss=dp_merf", "device=cpu", f"output_root={tmp_path}"]
    )
    monkeypatch.setattr("dpot.methods.generate.dp_merf.DPMERF.prepare", lambda self, problem: None)
    monkeypatch.setattr("dpot.methods.generate.dp_merf.DPMERF.fit", Forgetful.fit)
    with pytest.raises(PrivacyError, match="nothing in the ledger"):
        run(cfg)
    assert not list(tmp_path.rglob("record.json"))


@pytest.mark.parametrize("idiom", [r"\.charge\(", r"normal_\(", r"discrete_gaussian\(", r"noise\.normal"])
def test_only_the_gate_charges_and_draws_noise(idiom):
    found = [str(path.relative_to(METHODS)) for path in METHODS.rglob("*.py") if re.search(idiom, path.read_text())]
    assert set(found) <= {"gate.py"}
