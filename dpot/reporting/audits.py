"""What audits found, in words and as a table; an audit of other code than the present is shown as stale."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpot.disk import write_atomically
from dpot.fingerprint import audited_code

HEAD = (
    *("method", "claimed ε", "ε at least (95%)", "a perfect record", "if Gaussian", "planted faults"),
    *("null", "repetitions", "code", "date", "verdict"),
)
NAMES = {
    "adapt-dp_dann": "DP-DANN",
    "adapt-dp_swd": "DP-SWD, adaptation",
    "adapt-sketch": "Sketch alignment",
    "classify-dp_sgd": "DP-SGD",
    "distance-noisy_records": "Noisy records",
    "distance-sketch": "Sketch distance",
    "dp_cgan": "DP-CGAN",
    "dp_merf": "DP-MERF",
    "dp_sinkhorn": "DP-Sinkhorn",
    "dp_swd": "DP-SWD",
    "dpdm": "DPDM",
    "gaussian_floor": "Gaussian floor",
    "sketch": "Sliced sketch",
    "sketch_diffusion": "Diffusion from the sketch",
    "sketch-add-remove": "Sliced sketch, one record more or less",
}
SAID = {"batch": "decides alone what comes to the gate", "directions": "unknown beforehand"}


def called(audit: dict[str, Any]) -> str:
    """What was audited."""
    name = str(audit["name"]).removesuffix("-paper")
    return NAMES.get(name, name) + (" as in the paper" if audit["unsound"] else "")


def is_stale(audit: dict[str, Any]) -> bool:
    """Whether the method, or what its releases pass through, has changed since."""
    return bool(audit.get("code") != audited_code(str(audit.get("target", ""))))


def verdict(audit: dict[str, Any]) -> str:
    """What came of it, in a word or two."""
    broken = [name for name, part in audit["parts"].items() if not part["holds"]]
    if audit["refuted"]:
        return "refuted"
    if broken:
        return f"{' and '.join(broken)} not as stated"
    return "not refuted" if audit["passed"] else "a control failed"


def caught(audit: dict[str, Any]) -> str:
    """How many of the planted faults were caught."""
    faults = [fault for fault in audit["controls"]["planted"].values() if not fault["harmless"]]
    return f"{sum(bool(fault['caught_by']) for fault in faults)} of {len(faults)} caught"


def _caught_by(fault: dict[str, Any]) -> str:
    if fault["caught_by"]:
        return f"caught by {' and '.join(fault['caught_by'])}"
    return "harmless: it moves nothing by more than was stated" if fault["harmless"] else "NOT CAUGHT"


def in_words(audit: dict[str, Any]) -> list[str]:
    """The lines that task=audit prints."""
    null, reach = audit["controls"]["null"], audit["reach"]
    lines = [
        f"{audit['name']}: claimed ({audit['claimed_epsilon']:.4g}, {audit['delta']:g}); ε ≥ "
        f"{audit['lower_bound']:.3g} with confidence {audit['confidence']:g} ({audit['repetitions']:,} repetitions of "
        f"{audit['releases']} releases on each of two neighbours): {verdict(audit)}",
        f"a record that moves every release as far as was stated: ε ≥ {reach['lower_bound']:.3g}; "
        f"were the trade-off a Gaussian's: ε ≥ {audit['if_gaussian']:.3g}",
    ]
    for name, part in audit["parts"].items():
        numbers = ", ".join(f"{key} {part[key]:.4g}" for key in ("stated", "actual", "measured") if key in part)
        lines.append(f"{name}: {numbers or SAID[name]}: {'holds' if part['holds'] else 'VIOLATED'}")
    for name, fault in audit["controls"]["planted"].items():
        bound = f"ε ≥ {fault['lower_bound']:.3g}, " if "lower_bound" in fault else ""
        lines.append(f"planted, {name}: {bound}{_caught_by(fault)}")
    lines.append(
        f"no difference: ε ≥ {null['lower_bound']:.3g} at most, {100 * null['false_alarms']:.0f}% false alarms, "
        f"{'' if null['passed'] else 'NOT '}as stated"
    )
    return [*lines, *(f"unsound: {reason}" for reason in audit["unsound"])]


def cells(audit: dict[str, Any]) -> list[str]:
    """A row of the table whose head is HEAD."""
    return [
        called(audit),
        f"{audit['claimed_epsilon']:.3g}",
        f"{audit['lower_bound']:.2f}",
        f"{audit['reach']['lower_bound']:.2f}",
        f"{audit['if_gaussian']:.2f}",
        caught(audit),
        f"{audit['controls']['null']['lower_bound']:.2g}",
        f"{audit['repetitions']:,} × {audit['releases']}",
        f"{audit['code']}{' (stale)' if is_stale(audit) else ''}",
        str(audit["provenance"]["finished"])[:10],
        verdict(audit),
    ]


def write_page(folder: Path) -> Path:
    """README.md of a folder of audits."""
    audits = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    write_atomically(folder / "README.md", page(audits))
    return folder / "README.md"


def page(audits: Sequence[dict[str, Any]]) -> str:
    """The table of all audits, and what became of the planted faults."""
    lines = [
        "# Audits",
        "",
        "Written by `make audits`, which runs all of them again. [docs/audit.md](../../docs/audit.md) says what the "
        "columns mean. *Stale* means that the code of the method, or of what its releases pass through, has changed "
        "since: the audit then speaks for the earlier code.",
        "",
        f"| {' | '.join(HEAD)} |",
        f"|{'---|' * len(HEAD)}",
        *(f"| {' | '.join(cells(one))} |" for one in audits),
        "",
        "## Planted faults",
        "",
        "| method | fault | ε at least | outcome |",
        "|---|---|---|---|",
    ]
    for one in audits:
        for fault, found in one["controls"]["planted"].items():
            bound = f"{found['lower_bound']:.2f}" if "lower_bound" in found else "–"
            lines.append(f"| {called(one)} | {fault} | {bound} | {_caught_by(found)} |")
    return "\n".join([*lines, ""])
