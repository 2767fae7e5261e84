"""The privacy statement: what was released, what ε it costs by each accountant, and what that ε does not cover.

It is computed from the ledger, never from the configuration, and can be read as data, Markdown or a page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dpot.privacy.accountants import PAPER_ACCOUNTANTS, Way, accounts, composed, own_epsilon_and_way
from dpot.privacy.events import (
    Adjacency,
    CountGaussian,
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    ProjectionGaussian,
    Sampled,
)
from dpot.privacy.groups import for_group
from dpot.privacy.ledger import Entry, Ledger
from dpot.privacy.limitations import PAGE, applying
from dpot.privacy.questions import layers
from dpot.privacy.sensitivity import SOUND_BOUNDS, WHY
from dpot.privacy.wording import adjacency_words, event_words, page, sampler_words

WAYS: dict[Way, str] = {
    "rényi": "the Rényi curves of the releases add up, and their conversion to (ε, δ) holds at every order",
    "gaussian": "Gaussian releases of all records are together one Gaussian release, whose ε at δ is known exactly "
    "(Balle & Wang 2018)",
    "loss distribution": "the distributions of the releases' privacy losses were convolved, each rounded to more loss",
}


@dataclass(frozen=True)
class Statement:
    """Everything a data-protection officer or a reviewer needs to judge an ε."""

    epsilon: float | None  # what our accountant proves (or, in paper mode, what the paper would claim)
    delta: float
    budget: float | None
    rigorous: bool
    reasons: list[str]  # why it is rigorous, or every reason why not
    adjacency: str
    adjacency_meaning: str
    mode: str
    bound: str
    bound_reason: str
    conversion: str
    releases: int
    entries: list[dict[str, Any]]
    accountants: dict[str, dict[str, Any]]
    noise: dict[str, Any] | None
    not_covered: list[str]
    other_budgets: list[str] = field(default_factory=list)  # numbers that are called budgets and are no ε, in words
    total: str = ""  # what all runs together have released of these data, in words; empty where they are public
    warnings: list[str] = field(default_factory=list)  # what makes this (ε, δ) say little, however well it is proved
    set_aside: float = 0.0  # of δ, for samplers that may fail
    conditions: list[str] = field(default_factory=list)  # what is proved is proved provided that these are public
    unit: str | None = None  # the column that says whose a record is; None: ε is that of one record
    most: int = 1  # records that were kept of one person

    @property
    def verdict(self) -> str:
        """Whether the ε is proved: yes; conditional, if what was taken from the records is public; or no."""
        return "yes" if self.rigorous else "conditional" if self.conditions else "no"

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Statement:
        """A statement as a record keeps it; what else stands beside it there is left out."""
        return cls(**{one.name: stored[one.name] for one in fields(cls) if one.name in stored})

    @classmethod
    def of(
        cls, ledger: Ledger, noise: Mapping[str, Any] | None = None, accountants: Sequence[str] | None = None
    ) -> Statement:
        """The statement of a ledger; `noise` is NoiseSource.record(), `accountants` restricts who is asked."""
        spending, budget = for_group(ledger.spending(), ledger.budget.most), ledger.budget
        assert budget.delta is not None
        left = ledger.delta
        epsilon, way = own_epsilon_and_way(spending, left or budget.delta, budget.bound, budget.conversion)
        epsilon = epsilon if left else math.inf  # where the samplers' failures leave nothing of δ
        event = composed(spending) if spending else None
        events = [atom for e in spending for atom, _ in e.atoms()]
        has_projections = any(_projects(atom) for atom in events)
        obstacles = _obstacles(ledger, events, noise, has_projections)
        asked = accounts(event, left, budget.bound, accountants) if event and left else {}
        return cls(
            epsilon=epsilon if math.isfinite(epsilon) else None,
            delta=budget.delta,
            budget=budget.epsilon,
            rigorous=not obstacles and not ledger.conditions,
            reasons=obstacles or _grounds(events, way, has_projections, budget.delta - left),
            adjacency=str(ledger.adjacency or "none"),
            adjacency_meaning=adjacency_words(ledger.adjacency) + _group_words(budget.unit, budget.most),
            mode=budget.mode,
            bound=budget.bound if has_projections else "none needed",
            bound_reason=WHY[budget.bound] if has_projections else "no random projections were released",
            conversion=budget.conversion,
            releases=ledger.releases,
            entries=[_entry(entry) for entry in ledger.entries],
            accountants={
                name: account.to_dict() | ({"paper": True} if name in PAPER_ACCOUNTANTS else {})
                for name, account in asked.items()
            },
            noise=_noise(noise, events) if noise is not None else None,
            not_covered=_not_covered(ledger, events),
            warnings=warnings_of(budget.delta, ledger.records),
            set_aside=budget.delta - left,
            conditions=[] if obstacles else ledger.conditions,
            unit=budget.unit,
            most=budget.most,
        )

    def to_dict(self) -> dict[str, Any]:
        """The statement as JSON-able data."""
        return asdict(self) | {"verdict": self.verdict}

    def headline(self) -> str:
        """One sentence."""
        if not self.entries:
            return "Nothing was taken from private data."
        if self.epsilon is None:
            return f"No differential privacy: no finite ε covers what was released (δ = {self.delta:g})."
        kind = "is claimed to be, without a complete proof," if self.verdict == "no" else "is"
        sentence = f"What was released {kind} ({self.epsilon:.4g}, {self.delta:g})-differentially private"
        if self.unit is not None:
            sentence += f" for every person with all records of theirs, of which at most {self.most} were kept"
        if self.conditions:
            sentence += ", on condition that what was taken from the form of the data is public"
        return " ".join([f"{sentence}.", *self.warnings])

    def to_markdown(self) -> str:
        """The statement as a Markdown section."""
        lines = [
            "## Privacy statement",
            "",
            f"**{self.headline()}**",
            "",
            *([self.total, ""] if self.total else []),
            f"- Rigorous: **{self.verdict}**" + (", because" if self.verdict == "no" else ""),
            *[f"  - {reason}" for reason in self.reasons],
            *(["- On condition that these are public; they were taken from the records:"] if self.conditions else []),
            *[f"  - {_text(condition)}" for condition in self.conditions],
            f"- Neighbouring data sets: {self.adjacency}: {self.adjacency_meaning}",
            f"- Bound on the projections: {self.bound}: {self.bound_reason}",
            f"- Mode: {self.mode}; conversion from Rényi: {self.conversion}; budget: {_number(self.budget)}",
            f"- Releases: {self.releases}",
            "",
            "| what was released | by | drawn by | times |",
            "|---|---|---|---|",
            *[f"| {e['released']} | {_cell(e['source'])} | {e['drawn']} | {e['count']} |" for e in self.entries],
            "",
            f"| accountant | ε at δ = {self.delta:g} |",
            "|---|---|",
            *[f"| {name} | {_verdict(account)} |" for name, account in self.accountants.items()],
            "",
            "Not covered by this ε:",
            "",
            *[f"- {_text(item)}" for item in self.not_covered],
        ]
        if self.noise is not None:
            lines += ["", f"Noise: {self.noise['generator']}, seeded by {self.noise['seeded_by']}."]
        for title, answers in layers(self):
            lines += ["", f"### {title}", "", *[f"- *{question}* {answer}" for question, answer in answers]]
        if known := applying(self):
            lines += ["", f"### Known limitations ({PAGE})", "", *[f"- {one.name} ({one.severity})" for one in known]]
        if self.other_budgets:
            lines += ["", "## Other budgets, which are no ε", "", *[f"- {item}" for item in self.other_budgets]]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """The statement as a self-contained page."""
        return page(
            title="Privacy statement",
            headline=self.headline(),
            good=self.rigorous and self.epsilon is not None,
            facts=[
                *([("All runs on these data", self.total)] if self.total else []),
                ("Rigorous", self.verdict),
                ("Because", self.reasons),
                *([("On condition that these are public", self.conditions)] if self.conditions else []),
                ("Neighbouring data sets", f"{self.adjacency}: {self.adjacency_meaning}"),
                ("Bound on the projections", f"{self.bound}: {self.bound_reason}"),
                ("Mode", self.mode),
                ("Conversion from Rényi", self.conversion),
                ("Budget for ε", _number(self.budget)),
                ("Releases", str(self.releases)),
                ("Noise", f"{self.noise['generator']}, seeded by {self.noise['seeded_by']}" if self.noise else "–"),
                ("Not covered by this ε", self.not_covered),
                *([("Other budgets, which are no ε", self.other_budgets)] if self.other_budgets else []),
                (f"Known limitations ({PAGE})", [f"{one.name} ({one.severity})" for one in applying(self)]),
            ],
            tables=[
                (
                    "What was released",
                    ("what", "by", "drawn by", "times"),
                    [(e["released"], e["source"], e["drawn"], str(e["count"])) for e in self.entries],
                ),
                (
                    f"ε at δ = {self.delta:g}, by each accountant",
                    ("accountant", "ε, or why it has none"),
                    [(name, _verdict(account)) for name, account in self.accountants.items()],
                ),
                *[(title, ("question of NIST SP 800-226", "answer"), answers) for title, answers in layers(self)],
            ],
        )


def _group_words(unit: str | None, most: int) -> str:
    if unit is None:
        return ""
    kept = "one record of each person was kept" if most == 1 else f"at most {most} records of each person were kept"
    return f"; so with all records of one person ({unit}) at once: {kept}, and how many each has is public"


def _entry(entry: Entry) -> dict[str, Any]:
    return entry.to_dict() | {"released": event_words(entry.event), "drawn": sampler_words(entry.sampler)}


def _noise(noise: Mapping[str, Any], events: Sequence[Event]) -> dict[str, Any]:
    """Where the noise of these events came from: counts have a generator of their own."""
    told = dict(noise)
    counts = told.pop("counts", None)
    exact = [isinstance(event, CountGaussian | DiscreteGaussian) for event in events]
    if counts and exact and all(exact):
        told["generator"] = counts
    elif counts and any(exact):
        told["generator"] += f"; for counts: {counts}"
    return told


def _projects(atom: Event) -> bool:
    inside = atom.event if isinstance(atom, Sampled) else atom
    return any(isinstance(part, ProjectionGaussian) for part, _ in inside.atoms())


def _obstacles(
    ledger: Ledger, events: Sequence[Event], noise: Mapping[str, Any] | None, has_projections: bool
) -> list[str]:
    """Every reason why the ε is no proof."""
    reasons = [
        f"an access without noise{f' ({e.reason})' if e.reason else ''}" for e in events if isinstance(e, NonPrivate)
    ]
    if has_projections and ledger.budget.bound not in SOUND_BOUNDS:
        reasons.append(f"the bound on the projections is not a proof: {WHY[ledger.budget.bound]}")
    if noise is None and events:
        reasons.append("where the noise came from was not recorded")
    elif noise is not None and noise["reproducible"]:
        reasons.append("the noise was drawn with a fixed seed: whoever knows the seed can subtract the noise")
    return reasons + ledger.unsound


def warnings_of(delta: float, records: int | None) -> list[str]:
    """What a reader must know first: whether δ would allow a record to be published."""
    if not records or delta * records < 1:
        return []
    return [
        f"WARNING: δ = {delta:g} is not below 1/{records}, one over the number of records: publishing one of them, "
        "drawn at random, would satisfy this too."
    ]


def _grounds(events: Sequence[Event], way: Way, has_projections: bool, set_aside: float) -> list[str]:
    grounds = [
        "every release was entered in the ledger before it was made, together with the sampler that drew its records",
        WAYS[way],
        "the noise came from a generator of its own, seeded by the operating system",
    ]
    if any(isinstance(event, CountGaussian) for event in events):
        grounds.append(
            "whole numbers with discrete Gaussian noise are as private as the slightly smaller continuous noise that "
            "is accounted for them (dpot/privacy/counts.py has the proof)"
        )
    if set_aside:
        grounds.append(
            f"of δ, {set_aside:.2g} was set aside for samplers that draw another subset than the accounted one; ε is "
            "what the rest proves"
        )
    if has_projections:
        grounds.append(
            "this assumes three things of the code that released projections: it holds each row to the stated "
            "diameter by itself, it draws fresh directions for each release, and it uses the rows of a batch in "
            "random order or as a set"
        )
    return grounds


def _not_covered(ledger: Ledger, events: Sequence[Event]) -> list[str]:
    items = [
        "hyper-parameters or a stopping time that were chosen by looking at private data or at results on them",
        "normalisation constants, image size and value range, if they were taken from the private data",
        "scores (accuracy, FID) that were computed on private data and shown to somebody",
        "the number of records, which is taken to be public, and the sampling rate, steps and noise it determines",
        "other runs on the same records, including those with another seed: each has its own ε, and they add up",
    ]
    if ledger.adjacency is Adjacency.REPLACE_KEEPING_LABEL:
        items.append(
            "the labels and the class sizes, which are taken to be public: an image is protected, but its label is not"
        )
    insides = [atom.event if isinstance(atom, Sampled) else atom for atom in events]
    parts = [part for e in insides for part, _ in e.atoms() if not isinstance(part, CountGaussian)]
    if any(isinstance(part, Gaussian | Laplace | ProjectionGaussian) for part in parts):
        items.append(
            "attacks on floating-point noise, which stands in for real-valued noise (noise on counts can be exact)"
        )
    return items + ledger.conditions + ledger.uncovered


def _verdict(account: Mapping[str, Any]) -> str:
    if "epsilon" not in account:
        return f"– ({account['reason']})"
    return f"{account['epsilon']:.4g}" + (" (the paper's own claim)" if account.get("paper") else "")


def _text(text: str) -> str:
    """Names of columns may be in it: nothing of it is HTML."""
    return text.replace("<", "&lt;").replace("\n", " ")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"
