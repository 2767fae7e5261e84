"""Take back a proof that committed records claim.

    python scripts/mark_records.py dp_sinkhorn table 1 "the noise was ..." --losses DPSinkhorn --before COMMIT

Every record of the sheet that says "rigorous: yes", whose loss is among the classes named, and whose training was done
by code that is older than COMMIT, if only in part, says "rigorous: no" afterwards, for the reason given. Nothing else
of a record changes. The comparison of the sheet and the README files are written anew. DPOT_DATA must be set.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from typing import Any

from keep_results import write_comparison

from dpot.disk import write_atomically
from dpot.privacy.statement import Statement
from dpot.reporting import readme, sheets, store


def main() -> None:
    """Rewrite the lines of one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper")
    parser.add_argument("kind", choices=["table", "figure"])
    parser.add_argument("name")
    parser.add_argument("reason")
    parser.add_argument("--losses", required=True)
    parser.add_argument("--before", required=True)
    options = parser.parse_args()
    sheet = sheets.load(options.paper, options.name, options.kind)
    path = store.folder_of(sheet) / store.RECORDS
    lines, marked = [], 0
    for line in path.read_text().splitlines():
        record = json.loads(line)
        loss = record["config"]["loss"]["_target_"].rpartition(".")[2]
        training = record["metrics"].get("training") or {}
        codes = [record["provenance"]["commit"], *(part["code"] for part in training.get("earlier") or [])]
        older = not all(code and _has(code, options.before) for code in codes)
        if loss in options.losses.split(",") and record["privacy"].get("rigorous") and older:
            record["privacy"] = without_proof(record["privacy"], options.reason)
            line, marked = json.dumps(record, ensure_ascii=False), marked + 1
        lines.append(line)
    write_atomically(path, "\n".join(lines) + "\n")
    write_comparison(sheet)
    readme.update()
    print(f"{marked} records marked")


def without_proof(privacy: dict[str, Any], reason: str) -> dict[str, Any]:
    """The statement of a record whose proof does not hold, for this reason."""
    changed = privacy | {"rigorous": False, "reasons": [reason]}
    return changed | {"headline": Statement.from_dict(changed).headline()}


def _has(commit: str, ancestor: str) -> bool:
    command = ["git", "merge-base", "--is-ancestor", ancestor, commit]
    return subprocess.run(command, cwd=store.RESULTS, check=False).returncode == 0


if __name__ == "__main__":
    main()
