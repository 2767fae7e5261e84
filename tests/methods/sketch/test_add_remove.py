"""The sketch for neighbours that differ in one record more or less: less sensitivity, and a noisy number."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import norm

from dpot.data.base import unit_range
from dpot.data.digits import Digits
from dpot.methods.generate.base import Problem
from dpot.methods.sketch.features import UNIT, Layout
from dpot.methods.sketch.file import Release
from dpot.methods.sketch.method import Sketch
from dpot.methods.sketch.release import class_counts
from dpot.methods.sketch.rules import COUNT_SHARE, plan
from dpot.methods.tape import Tape
from dpot.models.sketch_dcgan import SketchDCGAN
from dpot.privacy.budget import Budget
from dpot.privacy.events import Adjacency, Event
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.statement import Statement

SMALL = {"rounds": 1, "lines": 48, "knots": 4, "planes": 0, "neighbours": "add-remove"}


def problem(records: int = 600, tape: Tape | None = None) -> Problem:
    data, budget = Digits(size=8).load(), Budget(3.0, 1e-5)
    assert data.train.y is not None
    chosen = torch.nonzero(data.train.y < 2).flatten().repeat(3)[:records]
    torch.manual_seed(0)
    return Problem(
        images=unit_range(data.train.x)[chosen],
        labels=data.train.y[chosen],
        classes=2,
        generator=SketchDCGAN(2, (1, 8, 8), code_size=4, width=4),
        budget=budget,
        ledger=Ledger.of(budget),
        noise=NoiseSource(),
        tape=tape,
        random=torch.Generator().manual_seed(0),
        max_steps=2,
    )


def test_all_releases_together_are_one_gaussian_mechanism_of_the_budget(tmp_path):
    task, method = problem(), Sketch(**SMALL)
    method.fit(task)
    statement = Statement.of(task.ledger, task.noise.record(), ["analytic_gaussian", "dp_accounting_pld"])
    assert statement.adjacency == "add-remove"
    assert statement.verdict == "yes"
    assert statement.releases == 5  # number, lengths, mean, second moments, bins
    events = [Event.from_dict(entry["event"]) for entry in statement.entries]
    assert {event.relation for event in events} == {Adjacency.ADD_REMOVE}
    mu = math.sqrt(sum(event.noise_multiplier**-2 for event in events))
    # Balle & Wang 2018: δ(ε) of a Gaussian mechanism with sensitivity/noise μ
    delta = norm.cdf(mu / 2 - 3 / mu) - math.exp(3) * norm.cdf(-mu / 2 - 3 / mu)
    assert 0.999e-5 < delta <= 1e-5
    told = {name: account["epsilon"] for name, account in statement.accountants.items()}
    assert told["analytic_gaussian"] == pytest.approx(3, rel=1e-4)
    assert told["dp_accounting_pld"] == pytest.approx(3, rel=2e-3)
    assert "exact number of records" in statement.to_markdown()

    assert method.release is not None
    assert method.release.records == method.records
    assert method.doubt == pytest.approx(math.sqrt(1 / (mu**2 * COUNT_SHARE) + 4), rel=1e-6)
    method.release.save(tmp_path / "a.sketch")  # and the file agrees with its statement
    assert Release.load(tmp_path / "a.sketch").plan.moved == 1


def test_nothing_but_the_noisy_number_is_known_of_how_many_there_are():
    first = Tape()
    Sketch(**SMALL).fit(problem(tape=first))
    told = [one.noisy.clone() for one in first.passed]
    told[0] = torch.tensor([1234])
    found = []
    for records in (600, 599):
        method = Sketch(**SMALL)
        method.fit(problem(records, Tape(answers=told)))
        found.append(method)
    assert found[0].records == found[1].records == 1234
    assert found[0].release.plan == found[1].release.plan
    assert torch.equal(found[0].release.counts, found[1].release.counts)
    assert found[0].release.deviation == found[1].release.deviation


def test_a_record_more_moves_k_bins_by_one_each():
    layout = Layout(lines=5, knots=4, planes=2, hard=True)
    random = torch.Generator().manual_seed(0)
    positions = 4 * torch.rand(9, layout.positions, generator=random)
    counts = [torch.zeros(2, layout.bins, dtype=torch.int64) for _ in range(2)]
    layout.count(counts[0], positions, torch.arange(9) % 2)
    layout.count(counts[1], positions[1:], torch.arange(1, 9) % 2)
    moved = float((counts[0] - counts[1]).double().norm())
    assert moved == pytest.approx(math.sqrt(7) * UNIT)
    assert layout.reach(1) == pytest.approx(moved)
    assert layout.reach(2) == layout.sensitivity == pytest.approx(math.sqrt(2) * moved)


def test_the_plan_sees_less_noise():
    replaced, removed = plan(50_000, 10, 0.3, True), plan(50_000, 10, 0.3, True, moved=1)
    assert removed.signal == pytest.approx(math.sqrt(2) * replaced.signal)
    shares = removed.count_share + removed.norm_share + removed.moment_share + removed.second_share
    assert shares + removed.first_share == pytest.approx(1)


def test_class_counts_are_drawn_to_the_noisy_number_by_least_squares():
    """x_c = t_c with variance v each, Σx = n with variance s: the normal equations (I/v + 11ᵀ/s) x = t/v + 1·n/s."""
    layout = Layout(lines=3, knots=4)
    noisy = torch.tensor([[900.0, 100, 0, 200] * 3, [300, 400, 100, 0] * 3]).long()
    totals = noisy.double().sum(1) / (UNIT * 3)
    v, s, number = 2.0, 5.0, 9.0
    matrix = torch.eye(2, dtype=torch.float64) / v + 1 / s
    expected = torch.linalg.solve(matrix, totals / v + number / s)
    torch.testing.assert_close(class_counts(noisy, layout, 9, s / v), expected)
