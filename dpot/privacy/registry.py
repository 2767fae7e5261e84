"""A privacy statement as a record of the OpenDP Deployments Registry (privacy.registry.yaml).

The registry asks for more than a statement knows: who publishes what, where, for which use. Such fields begin with
`TO BE FILLED IN`, and the status of the record is Draft. μ and the neighbouring relation have no field of their own
there, so they stand in the details of the parameters and of the unit.

`problems` makes the registry's own checks: its schema (registry.schema.json, draft 7, written after the registry's),
the slug, and how YAML is written. For a submission the file is copied under a name of lower-case letters, digits and
underscores.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dpot.privacy.events import Event, Gaussian
from dpot.version import __version__

if TYPE_CHECKING:
    from dpot.privacy.statement import Statement

OPEN = "TO BE FILLED IN"
PRODUCTS = {
    "synthesize": "Synthetic data",
    "generate": "Machine learning model",
    "adapt": "Machine learning model",
    "classify": "Machine learning model",
    "distance": "Summary statistics",
}
SEVERAL = (
    " A person with several records loses several times as much; that there is one record per person is not enforced."
)
TYPES: dict[str, Any] = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int}


@dataclass(frozen=True)
class About:
    """What a record says beside the statement."""

    task: str
    data: str
    records: int | Mapping[str, int]
    published: datetime.date
    name: str = ""
    curators: Sequence[str] = (f"{OPEN}: who publishes this",)


def record(told: Statement, about: About) -> dict[str, Any]:
    """The statement in the registry's fields."""
    name = about.name or f"{about.data}, {about.task}"
    size = about.records if isinstance(about.records, int) else ", ".join(f"{n} {k}" for k, n in about.records.items())
    private = told.epsilon is not None and bool(told.entries)
    return {
        "url_slug": slug(name, about.curators, about.published.year),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": name,
                "data_curators": list(about.curators),
                "intended_use": f"{OPEN}: what this may be used for",
                "data_product_type": PRODUCTS.get(about.task, "Machine learning model"),
                "data_product_region": f"{OPEN}: where the data come from",
                "description": told.headline(),
                "publication_date": about.published.isoformat(),
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if private else "Custom",
                "data_domain": _domain(told, size),
                "unprotected_quantities": _listed(told.not_covered),
            },
            "privacy_loss": {
                "privacy_unit": "One record" if told.unit is None else "One person",
                "privacy_unit_details": f"{told.adjacency}: {told.adjacency_meaning}."
                + (SEVERAL if told.unit is None else ""),
                **({"privacy_parameters": {"epsilon": told.epsilon, "delta": told.delta}} if private else {}),
                "privacy_parameters_details": _parameters(told),
            },
            "deployment_model": {
                "model_name": "Central",
                "actors": "The curator holds the records and runs dpot. Recipients get what was released, and no more.",
                "release_type": "One release",
                "release_type_details": told.total or "Other runs on the same records have an ε of their own.",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "Whatever is computed from the releases without the records: fitting, sampling, "
                "rounding, cutting to public ranges.",
                "composition": f"{told.releases} releases. {_listed(told.reasons)}",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": "Ranges, categories and settings are public inputs, except "
                "for what is listed under unprotected_quantities.",
                "mechanisms": _listed(
                    f"{e['count']} × {e['released']} ({e['drawn']}), {e['source']}" for e in told.entries
                )
                or "None.",
                "justification": f"Rigorous: {told.verdict}. {_accounts(told)}",
            },
            "administrative": {
                "sources": "privacy.html beside this file; docs/privacy.md and docs/limitations.md of dpot.",
                "notes": f"Written by dpot {__version__}.",
                "registry_authors": [f"{OPEN}: who submits this"],
            },
        },
    }


def write(content: Mapping[str, Any]) -> str:
    """As YAML: one line per scalar, no folding, dates and words that look like numbers in quotes."""
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=math.inf)


def slug(name: str, curators: Sequence[str], year: int) -> str:
    """Name, curators and year in lower case, with hyphens."""
    return "-".join(re.sub(r"\W+", "-", part.lower()) for part in (name, "-".join(curators), str(year)))


def problems(text: str, filename: str = "record.yaml") -> list[str]:
    """Why the registry would not take the file; nothing if it would."""
    found = [] if re.fullmatch(r"[a-z0-9_]+\.yaml", filename) else [f"the file name {filename}"]
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [*found, f"not YAML: {str(error).splitlines()[0]}"]
    found += _violations(content, schema(), "record")
    if found:
        return found
    basic = content["deployment"]["basic"]
    wanted = slug(basic["name"], basic["data_curators"], int(basic["publication_date"][:4]))
    if content["url_slug"] != wanted or not text.startswith("url_slug:"):
        found.append(f"url_slug must be the first line, and {wanted}")
    if re.search(r"^\s*(?:- )?(?:[\w]+: )?>[+-]?\d*\s*$", text, re.MULTILINE):
        found.append("a folded scalar (>); use | or quotes")
    if re.search(r"\\\\(?![()])", text):
        found.append("a double backslash that is not before a parenthesis")
    return found


@cache
def schema() -> dict[str, Any]:
    """registry.schema.json."""
    return dict(json.loads(Path(__file__).with_name("registry.schema.json").read_text()))


def _violations(value: Any, rule: Mapping[str, Any], where: str) -> Iterator[str]:
    """What a value has against the parts of JSON Schema that the file uses."""
    kinds = rule.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and (isinstance(value, bool) or not isinstance(value, tuple(_flat(TYPES[kind] for kind in kinds)))):
        yield f"{where}: {value!r} is not {' or '.join(kinds)}"
        return
    if "enum" in rule and (value not in rule["enum"] or isinstance(value, bool)):
        yield f"{where}: {value!r} is not one of {rule['enum']}"
    if rule.get("format") == "date" and not _is_date(value):
        yield f"{where}: {value!r} is not a date"
    if isinstance(value, dict) and "properties" in rule:
        yield from (f"{where}.{name} is missing" for name in rule.get("required", ()) if name not in value)
        for name, inner in value.items():
            if name in rule["properties"]:
                yield from _violations(inner, rule["properties"][name], f"{where}.{name}")
            elif not rule.get("additionalProperties", True):
                yield f"{where}.{name} is not known"
    if isinstance(value, list):
        if len(value) < rule.get("minItems", 0):
            yield f"{where}: at least {rule['minItems']}"
        for index, inner in enumerate(value):
            yield from _violations(inner, rule.get("items", {}), f"{where}[{index}]")


def _flat(kinds: Any) -> Iterator[type]:
    for kind in kinds:
        yield from kind if isinstance(kind, tuple) else (kind,)


def _is_date(value: Any) -> bool:
    try:
        return bool(datetime.date.fromisoformat(value).isoformat() == value)
    except (TypeError, ValueError):
        return False


def _domain(told: Statement, size: int | str) -> str:
    fixed = told.adjacency != "add-remove"
    return f"Data sets of {'exactly ' if fixed else ''}{size} records of the published form"


def _parameters(told: Statement) -> str:
    """The native parameters: μ where everything is Gaussian, and how the ε was converted."""
    if told.epsilon is None:
        return "No finite ε covers what was released."
    events = [(Event.from_dict(entry["event"]), entry["count"]) for entry in told.entries]
    way = f"Conversion from Rényi: {told.conversion}; bound on projections: {told.bound}."
    if not events or not all(isinstance(event, Gaussian) for event, _ in events):
        return way
    mu = math.sqrt(sum(count / event.noise_multiplier**2 for event, count in events if isinstance(event, Gaussian)))
    return f"μ = {mu:.6g} of Gaussian differential privacy, all releases together. {way}"


def _accounts(told: Statement) -> str:
    said = [f"{name} {a['epsilon']:.4g}" for name, a in told.accountants.items() if "epsilon" in a]
    return f"ε by each accountant: {', '.join(said)}." if said else "No accountant has an ε for it."


def _listed(items: Any) -> str:
    return " ".join(f"({number}) {item}." for number, item in enumerate(items, 1))
