"""Where records are found again: the runs of this machine, and those committed under results/reproduced/.

A record is written once and knows nothing of tables. Which run of which sheet it serves stands in small files
beside it (cell-*.json), so that one run may serve several tables.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from dpot.config import INSTALLED, REPOSITORY
from dpot.errors import DataError
from dpot.record import RECORD, Record, write_atomically

REPRODUCED = REPOSITORY / "results" / "reproduced"
log = logging.getLogger("dpot")


def claim(directory: Path, home: dict[str, Any]) -> None:
    """Note beside a record that it is a run of a sheet."""
    name = hashlib.sha256(json.dumps(home, sort_keys=True).encode()).hexdigest()[:8]
    write_atomically(directory / f"cell-{home['paper']}-{home['name']}-{name}.json", json.dumps(home) + "\n")


def records(output_root: str | Path | None, committed: bool = True) -> list[Record]:
    """Every whole record with the cells it serves; a damaged one is named and passed over.

    A run that was kept for several sheets lies in several folders: it is one record that serves them all.
    output_root=None: the committed ones alone.
    """
    found = [] if output_root is None else sorted((Path(output_root) / "runs").glob(f"*/{RECORD}"))
    if committed and INSTALLED:
        log.info("no committed results here: a clone of the repository has them")
    elif committed:
        found += sorted(REPRODUCED.glob(f"**/{RECORD}"))
    runs: dict[str, Record] = {}
    for path in found:
        try:
            record = Record.load(path.parent)
        except DataError as error:
            log.warning("%s", error)
            continue
        key = json.dumps([record.provenance.get("fingerprint"), record.provenance.get("finished")])
        # known to whoever reads it now, never written
        provenance = runs.setdefault(key, record).provenance
        homes = provenance.setdefault("sheets", [])
        provenance.setdefault("directory", path.parent)
        notes = [json.loads(f.read_text()) for f in sorted(path.parent.glob("cell-*.json"))]
        homes += [note for note in notes if note not in homes]
    return list(runs.values())
