"""Whether two checkouts show the same results: cells of sheets, what was computed, claims and audits.

    python scripts/same_results.py OLD_CHECKOUT NEW_CHECKOUT [--tolerance 1e-5]

Each checkout answers for itself, with its own code and its own committed results: cells are those of `dpot task=compare
... output=json`; what is computed rather than trained is compared as it is committed, value by value. Prints a line per
sheet and exits with 1 on a difference. With --tolerance numbers are equal up to this share of them: what is found by
searching for a root depends in its last digits on the libraries. These are those of the Python that runs this script.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# run inside a checkout; what it imports is there in every version
CELLS = """
import functools, json, sys
from dpot.launch import compose_config, run
from dpot.reporting import sheets, store
store.records = functools.cache(store.records)  # read once, not once a sheet
found = {}
for sheet in sheets.all_sheets():
    if sheet.columns:
        chosen = ["task=compare", f"paper={sheet.paper}", f'{sheet.kind}="{sheet.name}"', f"output_root={sys.argv[1]}"]
        cells = run(compose_config(chosen)).data["cells"]
        found[f"{sheet.paper} {sheet.kind} {sheet.name}"] = {f"{c['row']} | {c['column']}": c for c in cells}
print(json.dumps(found))
"""
NOT_NUMBERS = ("files", "provenance", "made_by")  # where and when it was made


def cells(checkout: Path) -> dict[str, dict[str, Any]]:
    """Sheet → cell → what task=compare says of it."""
    with tempfile.TemporaryDirectory() as nothing:  # no runs but the committed ones
        done = subprocess.run(
            [sys.executable, "-c", CELLS, nothing],
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout)},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def computed(checkout: Path) -> dict[str, dict[str, Any]]:
    """Table, figure, claims or audit → place → value. Earlier versions called table_4/computed.json table4.json."""
    results = checkout / "results"
    paths = {(path.parts[-3], path.parent.name): path for path in results.glob("*/*/computed.json")}
    beside = [path for folder in ("claims", "audit", "reproduced/*") for path in results.glob(f"{folder}/*.json")]
    for path in beside:
        named = re.match(r"(table|figure)(\d+\w?)$|(table|figure)(\d+_\w+)$|()(accounting)$", path.stem)
        name = "_".join(filter(None, named.groups())) if named else path.stem
        paths[path.parent.name, "table_accounting" if name == "accounting" else name] = path
    return {f"{paper} {name}, computed": dict(leaves(json.loads(p.read_text()))) for (paper, name), p in paths.items()}


def leaves(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every value inside, with the keys that lead to it."""
    inside = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    if not inside:
        yield place, content
    for key, value in inside:
        if place or key not in NOT_NUMBERS:
            yield from leaves(value, f"{place}/{key}")


def is_same(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two values are equal; numbers up to the tolerance."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=tolerance)
    return bool(one == other)


def main() -> None:
    """Compare and say so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.0)
    options = parser.parse_args()
    old, new = ({**cells(path), **computed(path)} for path in (options.old.resolve(), options.new.resolve()))
    print("| sheet | values | equal | different |\n|---|---|---|---|")
    wrong, total = [], 0
    for sheet in sorted({*old, *new}):
        before, after = old.get(sheet, {}), new.get(sheet, {})
        keys = {*before, *after}
        both = before.keys() & after.keys()
        different = sorted(k for k in keys if k not in both or not is_same(before[k], after[k], options.tolerance))
        print(f"| {sheet} | {len(keys)} | {len(keys) - len(different)} | {len(different)} |")
        wrong += [f"{sheet}: {key}: {before.get(key)} and {after.get(key)}" for key in different]
        total += len(keys)
    print(f"\n{total} compared, {len(wrong)} different")
    for line in wrong[:50]:
        print(f"different: {line}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
