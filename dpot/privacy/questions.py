"""The questions of NIST SP 800-226 on a differential privacy guarantee, answered from the statement.

The publication orders them as a pyramid: parameters and unit at the top, algorithms and their correctness in the
middle, trust and operation at the bottom. Each layer is only worth what lies below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpot.privacy.statement import Statement

Layer = tuple[str, list[tuple[str, str]]]
USUAL_DELTA = 1e-5  # a larger one is suspicious
PROVED = {
    "yes": "Yes, on the grounds above.",
    "conditional": "Yes, if what was taken from the records is public; the list is above.",
    "no": "No; the reasons are above.",
}


def layers(told: Statement) -> list[Layer]:
    """Top, middle and bottom, each as (question, answer)."""
    if not told.entries:
        return []
    return [_parameters(told), _algorithms(told), _trust(told)]


def _parameters(told: Statement) -> Layer:
    bounded = told.adjacency != "add-remove"
    return "Parameters and unit of privacy", [
        ("How strong is ε?", _strength(told.epsilon)),
        (
            "Is δ small enough?",
            f"δ = {told.delta:g}"
            + (", more than 1e-5: suspicious. " if told.delta > USUAL_DELTA else ". ")
            + "It must lie far below one divided by the number of records.",
        ),
        (
            "What is the unit?",
            "One record. A person with k records has k times this ε at least; k = 1 is not enforced."
            if told.unit is None
            else f"One person, with at most {told.most} records, which were bounded before anything was counted.",
        ),
        (
            "Bounded or unbounded?",
            f"Bounded ({told.adjacency}): the number of records is not protected."
            if bounded
            else "Unbounded (add-remove); the number of records still shows in the sampling rate and the steps.",
        ),
    ]


def _algorithms(told: Statement) -> Layer:
    agreeing = [a["epsilon"] for a in told.accountants.values() if "epsilon" in a and not a.get("paper")]
    second = f"{len(agreeing)} accountants compute {min(agreeing):.4g} to {max(agreeing):.4g}." if agreeing else "None."
    return "Algorithms, correctness, utility and bias", [
        ("Which mechanisms?", f"{told.releases:,} releases in {len(told.entries)} kinds; the table above lists them."),
        ("Is it proved?", PROVED[told.verdict]),
        ("Do others agree?", f"{second} An audit can refute a guarantee and never prove it."),
        ("How large is the error?", "The noise of every release is in the table; utility is not covered by this page."),
        (
            "Who is served badly?",
            "Small groups: what a group of records adds drowns in the noise before what all of them add does. Values "
            "outside public ranges are cut, which biases tails.",
        ),
    ]


def _trust(told: Statement) -> Layer:
    return "Trust, access and side channels", [
        (
            "Who is trusted?",
            "The curator, who holds the records and runs this code (the central model), and this code.",
        ),
        ("Released once, or queried?", told.total or "Once, not interactively. Other runs on the records add up."),
        (
            "Side channels?",
            "Floating point, running time and random generators: see the known limitations. An unfinished run keeps "
            "the state of its noise on the disk, readable by its owner alone, and deletes it with its last act.",
        ),
        ("Was anything tuned on the data?", "Not by this code; what was chosen by looking at results is not covered."),
        (
            "Raw data?",
            "They stay where they are; decoded copies lie in the cache folder, readable by their owner alone.",
        ),
        ("Was less collection possible, and what else was published of these data?", "Only the curator knows."),
    ]


def _strength(epsilon: float | None) -> str:
    if epsilon is None:
        return "There is none: no finite ε covers what was released."
    if epsilon <= 1:
        return f"ε = {epsilon:.4g}: strong (at most 1)."
    if epsilon < 10:
        return f"ε = {epsilon:.4g}: between strong (at most 1) and doubtful (10 or more)."
    return f"ε = {epsilon:.4g}: doubtful (10 or more); audits and attacks may find less than this allows."
