"""The statement: everything from the ledger, honest about what is no proof."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from dpot.privacy.accountants import ACCOUNTANTS
from dpot.privacy.events import (
    Adjacency,
    Composed,
    CountGaussian,
    DiscreteGaussian,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    ProjectionGaussian,
    StratifiedSampled,
)
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.statement import Statement

LABEL = Adjacency.REPLACE_KEEPING_LABEL
PRIVATE = NoiseSource().record()
FAST = ["dpot_rdp", "dpot_rdp_tight", "dp_accounting_rdp"]


def projections() -> Ledger:
    ledger = Ledger(delta=1e-5, epsilon=10.0)
    event = StratifiedSampled(ProjectionGaussian(784, 1000, 0.9, 1.0, LABEL), (10, 10), (5421, 6742))
    ledger.charge(event, count=30_000, source="noisy projections", sampler="stratified")
    return ledger


def test_a_rigorous_statement() -> None:
    ledger = projections()
    statement = Statement.of(ledger, PRIVATE)
    assert statement.rigorous
    assert statement.epsilon == ledger.epsilon()
    assert statement.releases == 30_000
    assert statement.adjacency == "replace-keeping-label"
    assert statement.bound == "exact"
    assert set(statement.accountants) == set(ACCOUNTANTS)
    assert statement.accountants["dpot_rdp_tight"]["epsilon"] == pytest.approx(ledger.epsilon())
    assert "without replacement" in statement.accountants["dp_accounting_pld"]["reason"]
    assert any("labels" in item for item in statement.not_covered)
    assert any("hyper-parameters" in item for item in statement.not_covered)
    assert statement.entries[0]["drawn"].startswith("a fresh uniform subset of each class")
    assert "σ 0.9" in statement.entries[0]["released"]


@pytest.mark.parametrize(
    ("event", "sampler", "accountant", "grounds"),
    [
        (PoissonSampled(Gaussian(2.0, Adjacency.ADD_REMOVE), 0.01), "poisson", "dpot_rdp_tight", ["Rényi curves"]),
        (Gaussian(2.0), "full", "analytic_gaussian", ["one Gaussian release"]),
        (CountGaussian(2.0), "full", "analytic_gaussian", ["one Gaussian release", "counts.py"]),
        (DiscreteGaussian(9.0, 1, 2), "full", "dp_accounting_pld", ["convolved"]),
        (Laplace(3.0), "full", "dp_accounting_pld", ["convolved"]),
    ],
)
def test_the_grounds_are_those_of_the_accountant_whose_epsilon_it_states(
    event: Event, sampler: str, accountant: str, grounds: list[str]
) -> None:
    ledger = Ledger(delta=1e-5, epsilon=10.0, conversion="tight")
    ledger.charge(event, count=3, source="test", sampler=sampler)
    statement = Statement.of(ledger, PRIVATE, accountants=[accountant])
    assert statement.epsilon == pytest.approx(statement.accountants[accountant]["epsilon"])
    words = ("Rényi curves", "one Gaussian release", "convolved", "counts.py")
    assert [word for word in words if any(word in reason for reason in statement.reasons)] == grounds


def test_it_is_data_a_text_and_a_page() -> None:
    statement = Statement.of(projections(), PRIVATE, accountants=FAST)
    assert json.loads(json.dumps(statement.to_dict(), allow_nan=False))["delta"] == 1e-5
    text = statement.to_markdown()
    assert statement.headline() in text
    assert "| dpot_rdp |" in text
    page = statement.to_html()
    seen: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list) -> None:
            seen.append(tag)
            assert not {"src", "href"} & {name for name, _ in attrs}  # nothing is loaded from elsewhere

        def handle_endtag(self, tag: str) -> None:
            if tag not in ("meta",):
                while seen.pop() != tag:
                    pass

    Reader().feed(page)
    assert all(tag == "meta" for tag in seen)
    assert "0.9" in page


def test_it_is_read_back_from_a_record() -> None:
    statement = replace(Statement.of(projections(), PRIVATE, accountants=FAST), other_budgets=["W <= 3, which is no ε"])
    kept = json.loads(json.dumps(statement.to_dict() | {"headline": "beside it", "parties": {"mu": 1.0}}))
    again = Statement.from_dict(kept)
    assert again == statement
    assert (again.to_markdown(), again.to_html()) == (statement.to_markdown(), statement.to_html())
    assert statement.to_markdown().endswith("## Other budgets, which are no ε\n\n- W <= 3, which is no ε\n")
    assert "W &lt;= 3, which is no ε" in statement.to_html()
    del kept["other_budgets"]  # as earlier versions wrote it
    assert Statement.from_dict(kept) == replace(statement, other_budgets=[])


def test_text_from_outside_is_escaped() -> None:
    ledger = Ledger(delta=1e-5)
    ledger.charge(Gaussian(1.0), source="<script>alert(1)</script> | x", sampler="full")
    statement = Statement.of(ledger, PRIVATE, accountants=FAST)
    assert "<script>" not in statement.to_html()
    row = next(line for line in statement.to_markdown().splitlines() if "alert" in line)
    assert row.replace("\\|", "").count("|") == 5


def test_paper_mode_names_every_unsound_step() -> None:
    ledger = Ledger(delta=1e-5, epsilon=10.0, bound="coded", mode="paper")
    event = FixedSizeSampled(ProjectionGaussian(784, 200, 6.0), 128, 7438)
    ledger.charge(event, 5000, source="alignment", sampler="shuffled")
    ledger.note_unsound("rows were divided by the largest norm of their batch")
    statement = Statement.of(ledger, PRIVATE, accountants=FAST)
    assert not statement.rigorous
    assert sum(any(w in r for r in statement.reasons) for w in ("Lemma 2", "shuffled", "largest norm")) == 3
    assert "without a complete proof" in statement.headline()


@pytest.mark.parametrize("noise", [None, NoiseSource(0).record()])
def test_unknown_or_fixed_noise_is_no_proof(noise: dict | None) -> None:
    statement = Statement.of(projections(), noise, accountants=FAST)
    assert not statement.rigorous
    assert len(statement.reasons) == 1


def test_no_noise_no_epsilon() -> None:
    ledger = Ledger(delta=1e-5)
    ledger.charge(NonPrivate("raw pixels"), source="SWD", sampler="full")
    ledger.charge(Composed((Gaussian(1.0), DiscreteGaussian(3.0))), source="sketch", sampler="full")
    statement = Statement.of(ledger, PRIVATE)
    assert statement.epsilon is None
    assert not statement.rigorous
    assert all("reason" in account for account in statement.accountants.values())
    assert "No differential privacy" in statement.headline()
    json.dumps(statement.to_dict(), allow_nan=False)


def test_nothing_released() -> None:
    statement = Statement.of(Ledger(delta=1e-5))
    assert statement.epsilon == 0.0
    assert "Nothing" in statement.headline()
    assert statement.to_html()


def test_disclosures_and_adjacency_come_from_the_ledger() -> None:
    ledger = Ledger(delta=1e-5)
    ledger.charge(PoissonSampled(Gaussian(1.1, Adjacency.ADD_REMOVE), 0.01), 10, source="step", sampler="poisson")
    ledger.note_uncovered("a search over 12 learning rates")
    statement = Statement.of(ledger, PRIVATE, accountants=FAST)
    assert "a search over 12 learning rates" in statement.not_covered
    # neighbours differ in it, and the sampling rate, which is a batch divided by it, stands in the statement
    assert any("number of records" in item for item in statement.not_covered)
    assert any("other runs on the same records" in item for item in statement.not_covered)
    assert statement.bound == "none needed"
