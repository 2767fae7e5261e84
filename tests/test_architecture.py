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
    "engines": set(),  # they know neither noise nor ledger
    "kernels": set(),
    "transport": {"kernels"},
    "privacy": set(),
    "models": {"kernels"},
    "training": {"kernels"},
    "evaluation": {"models", "training"},  # its classifiers are made of their layers, and average their weights
    "methods": {"transport", "privacy", "models", "training"},
    "reporting": {"privacy"},  # it renders the statements of records
    "papers": {"methods", "transport", "privacy", "models", "training", "data", "evaluation", "reporting"},
    "tasks": {
        "engines",
        "papers",
        "methods",
        "transport",
        "privacy",
        "models",
        "training",
        "data",
        "evaluation",
        "reporting",
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


def test_papers_compute_and_are_run_by_others():
    """Of reporting they read what was published and what is on record; writing and launching is not theirs."""
    for path in (PACKAGE / "papers").rglob("*.py"):
        for name in imports(path):
            assert not name.startswith("dpot.launch"), f"{path.relative_to(PACKAGE)} imports {name}"
            if name.startswith("dpot.reporting"):
                assert name.split(".")[2] in ("published", "store"), f"{path.relative_to(PACKAGE)} imports {name}"
        assert "write_atomically" not in path.read_text(), path


@pytest.mark.parametrize("paper", [p.name for p in (PACKAGE / "papers").iterdir() if (p / "__init__.py").exists()])
def test_a_paper_knows_no_other(paper):
    others = {p.name for p in (PACKAGE / "papers").iterdir() if p.is_dir()} - {paper}
    for path in (PACKAGE / "papers" / paper).rglob("*.py"):
        for name in imports(path):
            assert not (name.startswith("dpot.papers.") and name.split(".")[2] in others), f"{path} imports {name}"


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


def import_statements(node):
    """Those below a node of a syntax tree, in functions too; what only a type checker reads is left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            yield from import_statements(ast.Module(child.orelse, []))
        else:
            yield from import_statements(child)


def import_graph(package):
    """Each module's name with the modules of the package that it imports."""
    names = {".".join(path.relative_to(package.parent).with_suffix("").parts): path for path in package.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph = {}
    for name, path in modules.items():
        graph[name] = set()
        for statement in import_statements(ast.parse(path.read_text())):
            if isinstance(statement, ast.Import):
                found = [alias.name for alias in statement.names]
            else:
                found = [f"{statement.module}.{alias.name}" for alias in statement.names]
            graph[name] |= {whole if whole in modules else whole.rpartition(".")[0] for whole in found} & set(modules)
    return graph


def circles(graph):
    """The sets of modules each of which leads to all others of its set."""

    def reached(start):
        found, ahead = set(), [start]
        while ahead:
            new = graph[ahead.pop()] - found
            found |= new
            ahead += new
        return found

    all_reached = {name: reached(name) for name in graph}
    return {
        frozenset(other for other in all_reached[name] if name in all_reached[other])
        for name in graph
        if name in all_reached[name]
    }


def test_no_module_leads_back_to_itself():
    assert not circles(import_graph(PACKAGE))


def test_circles_are_found(tmp_path):
    package = tmp_path / "house"
    package.mkdir()
    for name, source in {
        "__init__": "",
        "door": "from house import hall",
        "hall": "def late():\n    import house.stairs",
        "stairs": "from house.door import handle\nfrom house.attic import box",
        "attic": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house import door",
    }.items():
        (package / f"{name}.py").write_text(source)
    assert circles(import_graph(package)) == {frozenset({"house.door", "house.hall", "house.stairs"})}


def test_nothing_but_the_command_imports_the_launcher():
    users = {name for name, used in import_graph(PACKAGE).items() if "dpot.launch" in used}
    assert users == {"dpot.__main__"}
