"""Every notebook runs from its first cell to its last, in an empty folder, and is committed without outputs."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

BOOKS = Path(__file__).resolve().parents[1] / "docs" / "notebooks"


def executed(name: str) -> dict[str, Any]:
    """The names that a notebook leaves, its last expressions displayed as a notebook does."""
    book = json.loads((BOOKS / f"{name}.ipynb").read_text())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    scope: dict[str, Any] = {"__name__": "__main__"}
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, cell["id"], "exec"), scope)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), cell["id"], "eval"), scope)
            getattr(shown, "_repr_html_", lambda: repr(shown))()  # noqa: B023
    return scope


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPOT_QUICK", "1")


def test_there_is_a_test_for_each() -> None:
    assert {path.stem for path in BOOKS.glob("*.ipynb")} == {"own_images", "own_table", "paper_table"}


def test_own_images() -> None:
    scope = executed("own_images")
    assert scope["synthesizer"].statement_.verdict == "yes"
    assert set(scope["scores"]) == {"accuracy", "chance", "sliced_wasserstein"}
    assert Path("images.html").read_text().count("<img") == 2


def test_own_table() -> None:
    scope = executed("own_table")
    assert scope["table"].statement_.verdict == "yes"
    made = scope["synthetic"]
    assert list(made.columns) == ["age", "pay", "since", "work"]
    assert made["since"].dt.year.between(2000, 2030).all()
    assert 0.02 < made["pay"].isna().mean() < 0.3
    assert "Class sizes" in Path("table.html").read_text()


def test_paper_table() -> None:
    scope = executed("paper_table")
    assert len(scope["records"]) == 2
    assert all(0 <= record["metrics"]["logreg"]["mean"] <= 100 for record in scope["records"].values())
    assert scope["printed"]["DP-MERF", "MNIST LogReg"] is not None
