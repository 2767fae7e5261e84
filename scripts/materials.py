"""What a release of dpot is made of: a bill of materials, and the hashes of the files that pip may install.

    python scripts/materials.py bill       # make bill: dist/dpot-VERSION.cdx.json (CycloneDX)
    python scripts/materials.py hashes     # part of make lock: requirements-hashed.txt

Versions are those of constraints.txt; who needs whom, and the licences, are read from the installed packages. Packages
for development are left out. Hashes are those that the package index publishes, for every file of a version that a
Python from 3.11 on Linux or a Mac could install.
"""

from __future__ import annotations

import html
import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dpot.version import __version__

REPOSITORY = Path(__file__).resolve().parents[1]
CONSTRAINTS = REPOSITORY / "constraints.txt"
HASHED = REPOSITORY / "requirements-hashed.txt"
INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple")
EXTRAS = ("", "sweep")
FILES = re.compile(
    r"(-(py3|py2\.py3|cp311|cp312|cp313|cp3\d?-abi3)[^/]*-(any|[^/]*(manylinux|macosx)[^/]*)\.whl|\.tar\.gz)$"
)
HEAD = """\
# The packages of constraints.txt that dpot runs with, each with the SHA-256 of every file that pip may take:
#   pip install --require-hashes -r requirements-hashed.txt && pip install --no-deps .
# `make lock` writes this file anew.
"""


def constrained() -> dict[str, str]:
    """Name → version, as constraints.txt has them."""
    lines = [line.partition("==") for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in lines}


def needs(requirements: Iterable[str], extras: Iterable[str], known: Iterable[str]) -> list[str]:
    """The packages that a list of requirements asks for, on whichever system."""
    found = set()
    for text in requirements:
        one = Requirement(text)
        marker = re.search(r"extra == ['\"]([^'\"]+)", str(one.marker or ""))
        if (marker[1] if marker else "") in extras:
            found.add(canonicalize_name(one.name))
    return sorted(found & set(known))


def graph() -> dict[str, list[str]]:
    """Each package that dpot runs with, and those it needs; dpot's own are under its name."""
    known = constrained()
    found = {"dpot": needs(metadata.requires("dpot") or (), EXTRAS, known)}
    ahead = list(found["dpot"])
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        try:
            found[name] = needs(metadata.requires(name) or (), ("",), known)
        except metadata.PackageNotFoundError:  # one for other systems
            found[name] = []
        ahead += found[name]
    return dict(sorted(found.items()))


def bill() -> dict[str, Any]:
    """The bill of materials as CycloneDX 1.6 has it; the same for the same versions."""
    versions = constrained() | {"dpot": __version__}
    edges = graph()
    purls = {name: f"pkg:pypi/{name}@{versions[name]}" for name in edges}
    parts = {
        name: {
            "type": "library",
            "bom-ref": purls[name],
            "name": name,
            "version": versions[name],
            "purl": purls[name],
            "licenses": _licenses(name),
        }
        for name in edges
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": parts.pop("dpot")},
        "components": list(parts.values()),
        "dependencies": [{"ref": purls[n], "dependsOn": [purls[m] for m in needed]} for n, needed in edges.items()],
    }


def _licenses(name: str) -> list[dict[str, Any]]:
    try:
        facts: Mapping[str, str] = metadata.metadata(name)  # type: ignore[assignment]
        classifiers = metadata.metadata(name).get_all("Classifier") or []
    except metadata.PackageNotFoundError:
        return []
    if expression := facts.get("License-Expression"):
        return [{"expression": expression}]
    named = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::")]
    return [{"license": {"name": text}} for text in named]


def hashes_in(page: str, name: str, version: str) -> list[str]:
    """The SHA-256 of the files of one version, from a page of a package index."""
    found = set()
    for address in re.findall(r'<a[^>]+href="([^"]+)"', page):
        link, _, sha = html.unescape(address).partition("#sha256=")
        file = unquote(link.rpartition("/")[2])
        own = re.match(rf"([\w.-]+?)-{re.escape(version)}(-|\.tar\.gz$)", file)
        if own and canonicalize_name(own[1]) == name and sha and FILES.search(file):
            found.add(sha)
    return sorted(found)


def hashed() -> str:
    """requirements-hashed.txt."""
    versions = constrained()
    parts = []
    for name in [n for n in graph() if n != "dpot"]:
        with urllib.request.urlopen(f"{INDEX.rstrip('/')}/{name}/", timeout=60) as answer:
            found = hashes_in(answer.read().decode(), name, versions[name])
        if not found:
            sys.exit(f"{INDEX}: no hashes of {name}=={versions[name]}")
        parts.append(" \\\n".join([f"{name}=={versions[name]}", *(f"    --hash=sha256:{sha}" for sha in found)]))
    return HEAD + "\n".join(parts) + "\n"


def main() -> None:
    """Write one of the two."""
    if sys.argv[1:] == ["hashes"]:
        HASHED.write_text(hashed())
        print(HASHED.name)
        return
    place = REPOSITORY / "dist" / f"dpot-{__version__}.cdx.json"
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps(bill(), indent=1) + "\n")
    print(place.relative_to(REPOSITORY))


if __name__ == "__main__":
    main()
