"""Stored statements and facts, held to what they should be before anybody relies on them.

A statement is computed from its ledger's entries, so it can be computed again: whoever lowers the ε of a stored one, or
empties its entries, is found out. Entries themselves are believed; a signature says whose they are.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar, cast

from dpot.config import coerce
from dpot.errors import DataError, DpotError, PrivacyError
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.statement import Statement
from dpot.ranges import Count

Fields = TypeVar("Fields")
LIBRARIES = 1e-2  # relative: other accountants change with their versions
SAME = 1e-6  # relative: an ε is found by bisection, on machines that round differently


@dataclass(frozen=True)
class _Entry:
    """An entry as a statement has it."""

    event: dict[str, Any]
    source: str
    sampler: str
    count: Count
    released: str = ""
    drawn: str = ""


@dataclass(frozen=True)
class _Account:
    """What one accountant says."""

    epsilon: float | None = None
    reason: str | None = None
    paper: bool = False


@dataclass(frozen=True)
class _Noise:
    """Where the noise came from."""

    generator: str
    seeded_by: str
    reproducible: bool


def conform(kind: type[Fields], data: object, where: str) -> Fields:
    """The data as one of these (a dataclass): all fields that it needs, none that it lacks, each of its type."""
    if not isinstance(data, Mapping):
        raise DataError(f"{where} is {type(data).__name__}, not names with values")
    fields = {one.name: one for one in dataclasses.fields(cast(Any, kind))}
    unknown, given = set(data) - set(fields), dict(data)
    if unknown:
        raise DataError(f"{where}.{min(map(str, unknown))[:100]} is not known")
    hints = typing.get_type_hints(kind, include_extras=True)
    for name, one in fields.items():
        if name in given:
            hint = hints[name]
            nested = dataclasses.is_dataclass(hint) and isinstance(hint, type)
            try:
                given[name] = (
                    conform(hint, given[name], f"{where}.{name}")
                    if nested
                    else coerce(given[name], hint, f"{where}.{name}")
                )
            except Exception as error:  # whatever it is, it is not what it should be
                what = str(error) if isinstance(error, DpotError) else f"{where}.{name}: {type(error).__name__}"
                raise DataError(" ".join(what.split())[:300]) from None
        elif one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING:
            raise DataError(f"{where}.{name} is missing")
    return kind(**given)


def verified(stored: object, accountants: bool = False) -> Statement:
    """A stored statement whose ε and neighbouring data sets follow from its entries, or an error that says why not.

    What entries and neighbours are in words is written anew; the other words are the stored ones. `accountants`: each
    of them is asked again, which may take seconds.
    """
    if isinstance(stored, Mapping):  # what follows from the fields is stored along with them, for other readers
        stored = {name: value for name, value in stored.items() if not isinstance(_of_statement(name), property)}
    told = conform(Statement, stored, "statement")
    if not told.entries:
        raise PrivacyError("the statement has no entries: what was released is not accounted for")
    bound: Any = "exact" if told.bound == "none needed" else told.bound
    if not 0 <= told.set_aside < told.delta:
        raise PrivacyError(f"the statement sets {told.set_aside:.3g} aside of δ = {told.delta:.3g}")
    left = told.delta - told.set_aside
    budget = conform(
        Budget,
        {"epsilon": None, "delta": left, "bound": bound, "conversion": told.conversion, "mode": told.mode}
        | {"unit": told.unit, "most": told.most},
        "statement",
    )
    ledger = Ledger.of(budget)
    entries = [asdict(conform(_Entry, entry, f"statement.entries[{i}]")) for i, entry in enumerate(told.entries)]
    ledger.load_state_dict(ledger.state_dict() | {"entries": entries})
    for name, account in told.accountants.items():
        said = conform(_Account, account, f"statement.accountants.{name}")
        if (said.epsilon is None) == (said.reason is None):
            raise DataError(f"statement.accountants.{name}: either an ε, or a reason why there is none")
    noise = None if told.noise is None else asdict(conform(_Noise, told.noise, "statement.noise"))
    again = Statement.of(ledger, noise, list(told.accountants) if accountants and told.accountants else ["dpot_rdp"])
    for name in ("releases", "adjacency", "bound"):
        if getattr(told, name) != getattr(again, name):
            raise PrivacyError(
                f"the statement says {name} = {getattr(told, name)}, its entries say {getattr(again, name)}"
            )
    stated, found = (math.inf if epsilon is None else epsilon for epsilon in (told.epsilon, again.epsilon))
    if stated < found * (1 - SAME) or math.isinf(stated) != math.isinf(found):
        raise PrivacyError(f"the statement says ε = {stated:.6g}, its entries come to {found:.6g}")
    if told.mode == "sound" and told.budget is not None and found > told.budget * (1 + SAME):
        raise PrivacyError(f"the statement has a budget of ε = {told.budget:.6g}, its entries come to {found:.6g}")
    if told.verdict != "no" and not again.rigorous:
        raise PrivacyError(f"the statement calls itself proved, and is not: {again.reasons[0]}")
    for name, account in again.accountants.items() if accountants else ():
        claimed = told.accountants.get(name, {}).get("epsilon")
        if claimed is not None and not claimed >= account.get("epsilon", math.inf) * (1 - LIBRARIES):
            now = f"{account['epsilon']:.6g}" if "epsilon" in account else "none"
            raise PrivacyError(f"the statement says that {name} computes ε = {claimed:.6g}, now it is {now}")
    return replace(told, entries=again.entries, adjacency_meaning=again.adjacency_meaning)


def _of_statement(name: object) -> Any:
    return getattr(Statement, str(name), None)
