"""The ledger: refusals before anything happens, resuming, samplers held to their word."""

import json
import math

import pytest

from dpot.errors import PrivacyError
from dpot.privacy.budget import Budget
from dpot.privacy.calibration import find_sigma
from dpot.privacy.errors import (
    AdjacencyMismatch,
    BudgetExceeded,
    InvalidParameter,
    LedgerMismatch,
    SamplerMismatch,
    UnknownEvent,
)
from dpot.privacy.events import (
    Adjacency,
    DiscreteGaussian,
    FixedSizeSampled,
    Gaussian,
    NonPrivate,
    PoissonSampled,
    ProjectionGaussian,
    Sampler,
    SelfComposed,
)
from dpot.privacy.gaussian import gaussian_epsilon, gaussian_noise_multiplier
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.statement import Statement

ADD = Adjacency.ADD_REMOVE
STEP = PoissonSampled(Gaussian(1.1, ADD), 1 / 1200)


def test_spending_is_what_the_accountant_says() -> None:
    ledger = Ledger(delta=1e-5)
    assert ledger.epsilon() == 0.0
    assert ledger.adjacency is None
    ledger.charge(Gaussian(2.0), source="mean", sampler="full")
    ledger.charge(Gaussian(4.0), count=4, source="histogram", sampler="full")
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(1 / (1 / 4 + 4 / 16) ** 0.5, 1e-5), rel=1e-9)
    assert ledger.releases == 5
    assert [entry.count for entry in ledger.entries] == [1, 4]


def test_a_charge_over_the_budget_changes_nothing() -> None:
    ledger = Ledger(delta=1e-5, epsilon=10.0)
    ledger.charge(STEP, count=3_000_000, source="gradient", sampler="poisson")
    before = json.dumps(ledger.state_dict())
    with pytest.raises(BudgetExceeded, match=r"privacy\.epsilon"):
        ledger.charge(STEP, count=1_000_000, source="gradient", sampler="poisson")
    assert json.dumps(ledger.state_dict()) == before
    left = ledger.affordable(STEP)
    ledger.charge(STEP, count=left, source="gradient", sampler="poisson")
    assert 9.99 < ledger.epsilon() <= 10.0
    with pytest.raises(BudgetExceeded):
        ledger.charge(STEP, source="gradient", sampler="poisson")


def test_charged_epoch_by_epoch_it_stops_before_the_budget() -> None:
    ledger = Ledger(delta=1e-5, epsilon=2.0)
    epochs = ledger.affordable(STEP) // 1200
    for _ in range(epochs):
        ledger.charge(STEP, count=1200, source="gradient", sampler="poisson")
    with pytest.raises(BudgetExceeded):
        ledger.charge(STEP, count=1200, source="gradient", sampler="poisson")
    assert epochs > 10
    assert ledger.releases == 1200 * epochs
    assert ledger.epsilon() <= 2.0


def test_resuming_continues() -> None:
    whole, first = (Ledger(delta=1e-5, epsilon=10.0) for _ in range(2))
    events = [
        FixedSizeSampled(ProjectionGaussian(784, 200, 0.9), 128, 10_000),
        FixedSizeSampled(ProjectionGaussian(784, 200, 1.0), 64, 10_000),
    ]
    for ledger in (whole, first):
        ledger.charge(events[0], 1000, source="a", sampler="fixed-size")
        ledger.note_uncovered("a search over learning rates")
    second = Ledger(delta=1e-5, epsilon=10.0)
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    for ledger in (whole, second):
        ledger.charge(events[0], 500, source="a", sampler="fixed-size")
        ledger.charge(events[1], 7, source="b", sampler="fixed-size")
    assert second.state_dict() == whole.state_dict()
    assert second.epsilon() == whole.epsilon()
    assert second.affordable(events[1]) == whole.affordable(events[1])


def test_a_ledger_under_other_terms_is_not_continued() -> None:
    state = Ledger(delta=1e-5, epsilon=10.0).state_dict()
    for other in (
        Ledger(delta=1e-6, epsilon=10.0),
        Ledger(delta=1e-5, epsilon=10.0, conversion="mironov"),
        Ledger(delta=1e-5, epsilon=10.0, bound="worst"),
        Ledger(delta=1e-5, epsilon=10.0, mode="paper"),
    ):
        with pytest.raises(LedgerMismatch):
            other.load_state_dict(state)
    Ledger(delta=1e-5, epsilon=20.0).load_state_dict(state)  # a raised budget goes on
    for broken in ({}, {**state, "version": 99}, {**state, "entries": [{}]}, {**state, "entries": 3}):
        with pytest.raises((UnknownEvent, LedgerMismatch)):
            Ledger(delta=1e-5).load_state_dict(broken)


def test_the_sampler_that_runs_is_the_sampler_that_is_priced() -> None:
    event = FixedSizeSampled(ProjectionGaussian(784, 200, 4.0), 128, 10_000)
    ledger = Ledger(delta=1e-5)
    for wrong in ("shuffled", "poisson", "full", "stratified"):
        with pytest.raises(SamplerMismatch):
            ledger.charge(event, source="loader", sampler=wrong)
    with pytest.raises(InvalidParameter):
        ledger.charge(event, source="loader", sampler="bootstrap")
    assert not ledger.entries
    paper = Ledger(delta=1e-5, mode="paper", bound="coded")
    paper.charge(event, source="loader", sampler=Sampler.SHUFFLED)
    assert any("shuffled" in reason for reason in paper.unsound)


def test_relations_do_not_mix() -> None:
    ledger = Ledger(delta=1e-5)
    ledger.charge(Gaussian(1.0, ADD), source="a", sampler="full")
    with pytest.raises(AdjacencyMismatch):
        ledger.charge(Gaussian(1.0), source="b", sampler="full")
    assert ledger.adjacency is ADD
    assert ledger.releases == 1


def test_unprivate_access() -> None:
    counting = Ledger(delta=1e-5)
    counting.charge(NonPrivate("raw pixels"), source="swd", sampler="full")
    assert counting.epsilon() == float("inf")
    with pytest.raises(BudgetExceeded):
        Ledger(delta=1e-5, epsilon=1e9).charge(NonPrivate(), source="swd", sampler="full")


def test_counts_are_priced_tightly() -> None:
    """A discrete Gaussian release fits a budget that the Rényi conversion alone would refuse."""
    release = DiscreteGaussian(25.0, 1, 2000)
    ledger = Ledger(delta=1e-5, epsilon=9.0)
    ledger.charge(release, source="sketch", sampler="full")
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(25 / 2000**0.5, 1e-5), rel=2e-3)


def test_composed_events_count_their_releases() -> None:
    ledger = Ledger(delta=1e-5)
    ledger.charge(SelfComposed(STEP, 12), count=5, source="gradient", sampler="poisson")
    assert ledger.releases == 60
    again = Ledger(delta=1e-5)
    again.charge(STEP, count=60, source="gradient", sampler="poisson")
    assert ledger.epsilon() == pytest.approx(again.epsilon(), rel=1e-12)


def test_sound_mode_takes_sound_bounds_only() -> None:
    for bound in ("bernstein", "clt", "coded"):
        with pytest.raises(InvalidParameter, match="mode=paper"):
            Ledger(delta=1e-5, bound=bound)  # type: ignore[arg-type]
        Ledger(delta=1e-5, bound=bound, mode="paper")  # type: ignore[arg-type]
    assert Ledger.of(Budget(3.0, 1e-6, "sharp", "tight")).budget.epsilon == 3.0
    with pytest.raises(InvalidParameter):
        Ledger.of(Budget(3.0, None))
    for count in (0, -1, 1.5):
        with pytest.raises(InvalidParameter):
            Ledger(delta=1e-5).charge(STEP, count, source="x", sampler="poisson")  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [None, 4.0])
def test_what_samplers_may_fail_by_comes_off_delta(epsilon: float | None) -> None:
    """100 draws of 1e-8 leave 9e-6 of δ = 1e-5."""
    ledger = Ledger(delta=1e-5, epsilon=epsilon)
    ledger.charge(Gaussian(20.0), count=100, source="mean", sampler="full", failure=1e-8)
    assert ledger.delta == pytest.approx(9e-6)
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(2.0, 9e-6), rel=1e-9)
    again = Ledger(delta=1e-5, epsilon=epsilon)
    again.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
    assert again.epsilon() == ledger.epsilon()


def test_noise_calibrated_beside_the_failures_lasts_for_all_steps_and_not_for_one_more() -> None:
    budget, each = Budget(2.0, 1e-5), 1e-10
    sigma = find_sigma(Gaussian, 1000, budget.less(1000 * each))
    assert sigma == pytest.approx(math.sqrt(1000) * gaussian_noise_multiplier(2.0, 1e-5 - 1e-7))
    ledger = Ledger.of(budget)
    assert ledger.affordable(Gaussian(sigma), each) == 1000
    ledger.charge(Gaussian(sigma), count=1000, source="mean", sampler="full", failure=each)
    with pytest.raises(BudgetExceeded):
        ledger.charge(Gaussian(sigma), source="mean", sampler="full", failure=each)
    with pytest.raises(InvalidParameter, match="may fail by"):
        budget.less(1e-5)
    paper = Budget(2.0, 1e-5, mode="paper")
    assert paper.less(each) is paper


def test_a_method_that_takes_nothing_off_keeps_its_budget_all_the_same() -> None:
    """3.4 million draws that fail with probability 2^-63: the hair of noise that a calibration adds is worth more."""
    budget = Budget(10.0, 1e-5)
    sigma = find_sigma(lambda z: PoissonSampled(Gaussian(z, ADD), 1 / 1200), 3_446_400, budget)
    assert Ledger.of(budget).affordable(PoissonSampled(Gaussian(sigma, ADD), 1 / 1200), 2.0**-63) >= 3_446_400


def test_notes_of_a_resumed_run_join_those_it_was_stored_with() -> None:
    stored = Ledger(delta=1e-5)
    stored.note_uncovered("the classes")
    resumed = Ledger(delta=1e-5)
    resumed.note_uncovered("a release that other code made")
    resumed.note_unsound("a liberty")
    resumed.load_state_dict(stored.state_dict())
    assert resumed.uncovered == ["the classes", "a release that other code made"]
    assert resumed.unsound == ["a liberty"]


def test_a_delta_that_would_allow_a_record_to_be_published_is_refused_or_said_first() -> None:
    with pytest.raises(PrivacyError, match=r"delta=0.001 with 1000 records.*below 1/records"):
        Ledger(delta=1e-3, epsilon=1.0).guard(1000)
    Ledger(delta=1e-3, epsilon=1.0).guard(999)
    for terms, asked in (({"epsilon": 1.0}, True), ({"epsilon": 1.0, "mode": "paper"}, False), ({}, False)):
        ledger = Ledger(delta=1e-3, **terms)
        ledger.guard(2817, large_delta=asked)
        ledger.charge(Gaussian(9.0), source="mean", sampler="full")
        statement = Statement.of(ledger, NoiseSource().record(), accountants=())
        for shown in (statement.headline(), statement.to_markdown(), statement.to_html()):
            assert "WARNING: δ = 0.001 is not below 1/2817" in shown
