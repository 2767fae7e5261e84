"""The package as pip sees it: what it declares is what it uses. (`make wheel` builds it and tries it.)"""

from __future__ import annotations

import ast
import itertools
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dpot.config import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
WITH_TORCH = {"triton"}  # torch brings it along where there is one


def declared(*extras: str) -> dict[str, Requirement]:
    """Requirements by name: the package's own, or those of extras."""
    lists = [PROJECT["optional-dependencies"][extra] for extra in extras] or [PROJECT["dependencies"]]
    return {canonicalize_name(r.name): r for r in map(Requirement, itertools.chain(*lists))}


def imported(folder: Path) -> set[str]:
    """The top-level names that the modules below a folder import."""
    names = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"dpot"}


def test_every_dependency_is_imported_and_every_import_is_a_dependency():
    origins = metadata.packages_distributions() | {"py4j": ["pyspark"]}  # it comes with the other
    used = {canonicalize_name(o) for name in imported(REPOSITORY / "dpot") for o in origins.get(name, [name])}
    assert used - WITH_TORCH == set(declared() | declared("sign", "tables", "ray", "spark"))


def test_what_development_alone_needs_is_no_dependency_of_the_package():
    assert not set(declared()) & set(declared("dev"))


def test_the_locked_versions_are_ones_that_the_package_admits():
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    locked = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {canonicalize_name(name): version for name, version in locked.items()}
    for name, requirement in (declared() | declared("dev", "sweep")).items():
        assert requirement.specifier.contains(versions[name]), f"{requirement}: run make lock"
