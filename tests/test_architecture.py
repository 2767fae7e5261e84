"""The shape of the code: imports go one way, files can be read in one sitting, nothing unpickles data."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "dpot"
# what a room may import of the others (everybody may use errors, ranges, config and record)
ALLOWED = {
    "data": set(),
    "kernels": set(),
    "transport": {"kernels"},
    "privacy": set(),
    "models": {"kernels"},
    "training": {"kernels"},
    "evaluation": {"models"},  # its classifiers are made of their layers
    "methods": {"transport", "privacy", "models", "training"},
    "attacks": {"transport", "privacy"},
    "claims": {"methods", "transport", "privacy", "models", "training", "attacks"},
    "reporting": set(),
    "tasks": {
        *("methods", "transport", "privacy", "models", "training", "data", "evaluation", "reporting"),
        *("attacks", "claims"),
    },
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", ALLOWED)
def test_imports_go_one_way(room):
    for path in (PACKAGE / room).rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "dpot" and len(parts) > 1 and parts[1] in ALLOWED and parts[1] != room:
                assert parts[1] in ALLOWED[room], f"{path.relative_to(PACKAGE)} imports {name}"


def test_transport_and_privacy_know_no_configuration():
    for room in ("transport", "privacy"):
        for path in (PACKAGE / room).rglob("*.py"):
            named = {name.split(".")[0] for name in imports(path)} | set(imports(path))
            assert not named & {"hydra", "omegaconf", "dpot.config"}, path


def test_files_can_be_read_in_one_sitting():
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path


def test_nothing_unpickles():
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        assert "import pickle" not in source, path
        assert "allow_pickle=True" not in source, path
        for line in source.splitlines():
            if re.search(r"(?<!safetensors\.)torch\.load\(", line):
                assert "weights_only=True" in line, f"{path}: {line}"


def test_accounting_does_not_wait_for_torch():
    code = "import sys, dpot.privacy.accountants, dpot.privacy.calibration; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
