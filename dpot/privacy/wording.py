"""Events in words, and the page a statement is shown on."""

from __future__ import annotations

import html
from collections.abc import Sequence

from dpot.privacy.events import (
    AdaptiveSequence,
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
    Sampler,
    SelfComposed,
    StratifiedSampled,
)

_ADJACENCY = {
    Adjacency.REPLACE_ONE: "one record is replaced by any other; the number of records is public",
    Adjacency.ADD_REMOVE: "one record is added or removed",
    Adjacency.REPLACE_KEEPING_LABEL: "one record is replaced by any other of the same class; labels are public",
    None: "no private release was made",
}
_SAMPLER = {
    Sampler.FULL: "all records",
    Sampler.POISSON: "Poisson sampling, afresh each time",
    Sampler.FIXED_SIZE: "a fresh uniform subset of fixed size each time",
    Sampler.STRATIFIED: "a fresh uniform subset of each class each time",
    Sampler.SHUFFLED: "the next batch of a shuffled epoch",
    Sampler.MIXED: "several samplers",
}


def adjacency_words(adjacency: Adjacency | None) -> str:
    """What neighbouring data sets are."""
    return _ADJACENCY[adjacency]


def sampler_words(sampler: Sampler) -> str:
    """How records are drawn."""
    return _SAMPLER[sampler]


def event_words(event: Event) -> str:
    """What was released, with every parameter that matters for ε."""
    if isinstance(event, CountGaussian):
        return f"whole numbers with discrete Gaussian noise, noise/sensitivity {event.noise_multiplier:.6g}"
    if isinstance(event, Gaussian):
        return f"Gaussian noise, noise/sensitivity {event.noise_multiplier:.6g}"
    if isinstance(event, Laplace):
        return f"Laplace noise, scale/sensitivity {event.noise_multiplier:.6g}"
    if isinstance(event, DiscreteGaussian):
        return (
            f"counts with discrete Gaussian noise, σ {event.sigma:.6g}; one record moves {event.coordinates} of them "
            f"by at most {event.sensitivity}"
        )
    if isinstance(event, ProjectionGaussian):
        return (
            f"rows of dimension {event.dimension} and diameter {event.diameter:g} on {event.projections} random "
            f"directions, Gaussian noise σ {event.sigma:.6g}"
        )
    if isinstance(event, NonPrivate):
        return f"an access without noise{f': {event.reason}' if event.reason else ''}"
    if isinstance(event, PoissonSampled):
        return f"{event_words(event.event)}; each record takes part with probability {event.rate:.6g}"
    if isinstance(event, FixedSizeSampled):
        return f"{event_words(event.event)}; on {event.batch} of {event.population} records"
    if isinstance(event, StratifiedSampled):
        return f"{event_words(event.event)}; on at most 1 in {1 / event.rate:.6g} of a class's records"
    if isinstance(event, SelfComposed):
        return f"{event.count} × ({event_words(event.event)})"
    if isinstance(event, Composed | AdaptiveSequence):
        words = ", then ".join(f"({event_words(inner)})" for inner in event.events)
        if isinstance(event, AdaptiveSequence):
            words += f", within a filter of {event.budget:g} at order {event.order:g}"
        return words
    return type(event).__name__


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; color: #1c2024; }}
.headline {{ font-size: 1.25rem; border-left: .4rem solid {colour}; padding: .6rem 1rem; background: #f4f6f8; }}
table {{ border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }}
th, td {{ text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid #d8dee4; }}
th {{ font-weight: 600; width: 14rem; }} ul {{ margin: 0; padding-left: 1.1rem; }}
</style></head><body>
<h1>{title}</h1><p class="headline">{headline}</p>
{body}
</body></html>
"""

Fact = tuple[str, str | Sequence[str]]
Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def page(title: str, headline: str, good: bool, facts: Sequence[Fact], tables: Sequence[Table]) -> str:
    """A self-contained HTML page; everything shown is escaped."""
    rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{_cell(value)}</td></tr>" for name, value in facts)
    body = f"<table>{rows}</table>"
    for caption, columns, content in tables:
        head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
        lines = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in content)
        body += f"<h2>{html.escape(caption)}</h2><table><tr>{head}</tr>{lines}</table>"
    colour = "#1a7f37" if good else "#bc4c00"
    return _PAGE.format(title=html.escape(title), headline=html.escape(headline), colour=colour, body=body)


def _cell(value: str | Sequence[str]) -> str:
    if isinstance(value, str):
        return html.escape(value)
    return "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in value) + "</ul>"
