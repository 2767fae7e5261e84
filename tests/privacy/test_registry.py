"""The registry's record: every statement gives one that passes its checks, and each trap is found."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpot.privacy import registry
from dpot.privacy.events import (
    Adjacency,
    CountGaussian,
    Event,
    FixedSizeSampled,
    Gaussian,
    NonPrivate,
    PoissonSampled,
    ProjectionGaussian,
)
from dpot.privacy.ledger import Ledger
from dpot.privacy.limitations import LIMITATIONS, applying
from dpot.privacy.noise import NoiseSource
from dpot.privacy.questions import layers
from dpot.privacy.statement import Statement

ABOUT = registry.About("synthesize", 'people: a "table" #1, ε & more\'s', 50_000, datetime.date(2026, 3, 1))
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "limitations.md"
EVENTS: dict[str, tuple[Event, str]] = {
    "counts": (CountGaussian(4.0), "full"),
    "projections": (FixedSizeSampled(ProjectionGaussian(784, 100, 3.0), 10, 1000), "fixed-size"),
    "gradients": (PoissonSampled(Gaussian(2.0, Adjacency.ADD_REMOVE), 0.01), "poisson"),
    "nothing": (NonPrivate("raw | pixels"), "full"),
}


def told(name: str, count: int = 2) -> Statement:
    ledger = Ledger(delta=1e-9)
    event, sampler = EVENTS[name]
    ledger.charge(event, count, source="a: b, 'c' \"d\"", sampler=sampler)
    ledger.note_uncovered("1e-9: # what\nlooks like YAML >")
    return Statement.of(ledger, NoiseSource().record(), ["dpot_rdp", "analytic_gaussian"])


@pytest.mark.parametrize("name", EVENTS)
def test_every_statement_passes_the_checks(name: str) -> None:
    content = registry.record(told(name), ABOUT)
    text = registry.write(content)
    assert registry.problems(text, "people.yaml") == []
    assert yaml.safe_load(text) == content
    assert isinstance(yaml.safe_load(text)["deployment"]["basic"]["publication_date"], str)
    parameters = content["deployment"]["privacy_loss"].get("privacy_parameters")
    assert (parameters is None) == (name == "nothing")
    if parameters:
        assert isinstance(yaml.safe_load(text)["deployment"]["privacy_loss"]["privacy_parameters"]["delta"], float)


def test_mu_of_gaussian_releases_stands_in_the_details() -> None:
    """Two releases with noise multiplier 4 are one with 4/√2: μ = √2/4."""
    content = registry.record(told("counts"), ABOUT)
    assert "μ = 0.353553 " in content["deployment"]["privacy_loss"]["privacy_parameters_details"]
    assert "replace-one" in content["deployment"]["privacy_loss"]["privacy_unit_details"]
    assert "people" in content["url_slug"]
    assert content["url_slug"].endswith("-2026")


def test_a_record_without_a_statement_is_said_to_be_none() -> None:
    empty = Statement.of(Ledger(delta=1e-5), None, ["dpot_rdp"])
    assert registry.problems(registry.write(registry.record(empty, ABOUT))) == []


def broken(text: str, old: str, new: str) -> str:
    assert re.search(old, text)
    return re.sub(old, new, text, count=1)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("'2026-03-01'", "2026-03-01", "is not string"),
        ("'2026-03-01'", "'2026-13-01'", "is not a date"),
        (r"epsilon: [\d.]+", "epsilon: 1e-9", "is not number"),
        (r"epsilon: [\d.]+", "epsilon: true", "is not number"),
        (r"tier: 3", "tier: 4", "is not one of"),
        (r"tier: 3", "tier: true", "is not one of"),
        ("status: Draft", "status: Done", "is not one of"),
        ("status: Draft", "status: Draft\nmore: 1", "record.more is not known"),
        ("  accounting:", "  accounts:", "is not known"),
        (r"url_slug: people", "url_slug: persons", "url_slug must be"),
        (r"(?s)(url_slug: [^\n]*\n)(status: Draft\n)", r"\2\1", "first line"),
        (r"intended_use: [^\n]*", "intended_use: >\n        folded", "folded"),
        (r"intended_use: [^\n]*", r"intended_use: '\\\\\\\\alpha'", "double backslash"),
        (r"data_curators:\n *- [^\n]*", "data_curators: []", "at least 1"),
        (r" *intended_use: [^\n]*\n", "", "intended_use is missing"),
        ("url_slug", "{", "not YAML"),
    ],
)
def test_the_traps(old: str, new: str, why: str) -> None:
    text = broken(registry.write(registry.record(told("counts"), ABOUT)), old, new)
    assert any(why in problem for problem in registry.problems(text)), registry.problems(text)


def test_the_file_name_is_held_to_the_registry() -> None:
    text = registry.write(registry.record(told("counts"), ABOUT))
    assert registry.problems(text, "privacy.registry.yaml") == ["the file name privacy.registry.yaml"]


def test_the_page_answers_in_three_layers() -> None:
    statement = told("gradients")
    assert len(layers(statement)) == 3
    text, page = statement.to_markdown(), statement.to_html()
    for title, answers in layers(statement):
        assert f"### {title}" in text
        assert title in page
        assert all(answer and question.endswith("?") for question, answer in answers)
    assert "Unbounded" in text
    assert "Bounded (replace-one)" in told("counts").to_markdown()
    for epsilon, word in ((0.5, "strong (at most 1)."), (3.0, "between strong"), (12.0, "doubtful (10 or more);")):
        assert word in replace(statement, epsilon=epsilon).to_markdown()
    assert "suspicious" in replace(statement, delta=1e-3).to_markdown()


def test_each_statement_names_the_limitations_it_has() -> None:
    def names(name: str) -> set[str]:
        return {one.name for one in applying(told(name))}

    assert "Noise in floating point" in names("gradients")
    assert "Noise in floating point" not in names("counts")
    assert "Generators that are not cryptographic" not in names("counts")
    assert "docs/limitations.md" in told("counts").to_markdown()
    assert "docs/limitations.md" in told("counts").to_html()


def test_every_limitation_has_its_place_on_the_page() -> None:
    sections: dict[str, Any] = dict(re.findall(r"^## (.+)\n\n((?:(?!## ).*\n?)*)", DOCUMENT.read_text(), re.MULTILINE))
    for one in LIMITATIONS:
        assert f"- Severity: {one.severity}" in sections[one.name]
    for name, text in sections.items():
        assert all(f"- {word}: " in text for word in ("Severity", "Affected", "What to do")), name
