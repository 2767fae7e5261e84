"""Renew constraints.txt: the newest versions that pyproject.toml admits, as pip finds them without installing any.

requirements-hashed.txt, which pins the files as well, is written from it (scripts/materials.py).

make lock
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
HEAD = """\
# The versions that the tests run with, so that a release of a dependency cannot break a clone.
# Only `make setup` and CI install with `-c constraints.txt`; pyproject.toml says which versions dpot can work with.
# Found with Python {python}; later versions of Python use the same ones. `make lock` writes this file anew.
"""


def resolved(extras: str) -> dict[str, str]:
    """Name → version of every package that an empty environment would get."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--report", str(report)]
        subprocess.run([*pip, f"{REPOSITORY}[{extras}]"], check=True)
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return {item["name"]: item["version"] for item in found if item["name"] != "dpot"}


def main() -> None:
    """Write the file; the argument is the extras to include."""
    versions = resolved(sys.argv[1] if len(sys.argv) > 1 else "dev,sweep")
    lines = [f"{name}=={versions[name]}\n" for name in sorted(versions, key=str.lower)]
    head = HEAD.format(python=".".join(platform.python_version_tuple()[:2]))
    (REPOSITORY / "constraints.txt").write_text(head + "".join(lines))
    print(f"constraints.txt: {len(lines)} packages")
    subprocess.run([sys.executable, str(REPOSITORY / "scripts" / "materials.py"), "hashes"], check=True)


if __name__ == "__main__":
    main()
