"""Cells of the benchmark of private tables, one process each, added to a file of JSON lines.

    python scripts/table_cells.py cells.jsonl --methods sketch mst --sets adult --epsilons 1 10 --seeds 5

Cells that the file has already are left out, so that a stopped run can go on. The table is then written by
dpot task=compute paper=tables table=1 'task.options={cells:cells.jsonl}'.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import product
from pathlib import Path

ONE = """
import json, sys
from dpot.papers.tables.benchmark import cell
print(json.dumps(cell(**json.loads(sys.argv[1]))))
"""


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--methods", nargs="+", default=["real", "independent", "sketch", "mst", "aim"])
    parser.add_argument("--sets", nargs="+", default=["adult", "breast_cancer", "digits", "wine", "diabetes"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.3, 1.0, 3.0, 10.0])
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    for seed, name, method, epsilon in product(range(given.seeds), given.sets, given.methods, given.epsilons):
        private = method not in ("real", "independent")
        if not private and (seed or epsilon != given.epsilons[0]):
            continue
        wanted = {"set": name, "method": method, "epsilon": epsilon if private else 0.0, "seed": seed}
        lines = given.file.read_text().splitlines() if given.file.exists() else []
        if any(wanted.items() <= json.loads(line).items() for line in lines):
            continue
        run = subprocess.run(
            [sys.executable, "-c", ONE, json.dumps(wanted)], capture_output=True, text=True, check=False
        )
        if run.returncode:
            print(wanted, run.stderr.strip().splitlines()[-1], file=sys.stderr)
            continue
        with given.file.open("a") as file:
            file.write(run.stdout.splitlines()[-1] + "\n")
        print(run.stdout.splitlines()[-1][:300], flush=True)


if __name__ == "__main__":
    main()
