"""task=compute: what a sheet names is computed, written once in one way, and set beside the published numbers."""

import importlib
import json
from pathlib import Path

import pytest
from rich.console import Console

from dpot.composing import compose_config
from dpot.errors import UsageError
from dpot.launch import run
from dpot.papers.computed import Computed, Table
from dpot.reporting import sheets
from dpot.tasks.compute import computed

SHEETS = [sheet for sheet in sheets.all_sheets() if sheet.compute]


def compute(folder, *overrides):
    return run(compose_config(["task=compute", *overrides, f"output_root={folder}", "device=cpu"]))


def test_table_4_is_written_and_compared(tmp_path):
    answer = compute(tmp_path, "paper=dp_swd", "table=4")
    folder = tmp_path / "computed" / "dp_swd" / "table_4"
    stored = json.loads((folder / "computed.json").read_text())
    assert stored.pop("files") == ["computed.md", "computed.json"]
    assert answer.data.pop("files") == [str(folder / "computed.md"), str(folder / "computed.json")]
    assert stored == answer.data
    assert {"commit", "libraries", "seed", "device"} <= set(stored["provenance"])
    verdicts = {cell["row"]: cell["verdict"] for cell in stored["cells"]}
    assert verdicts.pop("VisDA") == "outside"
    assert verdicts.pop("VisDA 1e-6") == "outside"
    assert set(verdicts.values()) == {"within"}
    assert len(verdicts) == 7
    text = (folder / "computed.md").read_text()
    assert "| U-M | 1e-05 | 4.74 | 4.717 | -0.5% | within | 4.386 | 0.911 | 0.748 | 0.710 | 2.042 |" in text
    console = Console(width=100, record=True, quiet=True)
    answer.show(console)


@pytest.mark.parametrize("figure", [1, 7])
def test_figures_take_options(tmp_path, figure):
    answer = compute(tmp_path, "paper=dp_swd", f"figure={figure}", "task.options={draws:2000}")
    assert sum(answer.data["counts"]) == 2000
    assert all(Path(file).stat().st_size > 500 for file in answer.data["files"])


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda s: f"{s.paper} {s.kind} {s.name}")
def test_every_sheet_names_a_function_of_its_paper(sheet):
    module, _, name = sheet.compute.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    assert function.__module__ == module
    assert module.startswith(f"dpot.papers.{sheet.paper}.")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([], "say which table"),
        (["paper=dp_swd"], "say which table"),
        (["paper=dp_swd", "figure=17"], "no such sheet"),
        (["paper=dp_swd", "table=2"], "task=reproduce"),
        (["paper=dp_swd", "figure=1", "task.options={draw:5}"], "did you mean draws"),
        (["paper=dp_swd", "figure=1", "task.options={draws:0}"], "task.options.draws=0: must be at least 1"),
        (["paper=wdp", "table=1", "task.options={context:1,orders:2}"], "orders"),
    ],
)
def test_what_cannot_be_computed_is_refused_in_one_line(tmp_path, overrides, words):
    with pytest.raises(UsageError, match=words) as refused:
        compute(tmp_path, *overrides)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    "named",
    [
        "os.system",
        "dpot.tasks.claims.collected",
        "dpot.papers.computed.config.instantiate",
        "dpot.papers.dp_swd.claims.published_table_4",  # defined elsewhere
        "dpot.papers.nobody.table_1",
        "dpot.papers.wdp.claims.symmetry",  # ours, but no table
    ],
)
def test_a_sheet_may_only_name_what_computes_in_the_papers_folders(tmp_path, named):
    body = {"paper": "dp_swd", "table": 4, "title": "", "compute": named}
    sheet = sheets.parse(body, tmp_path, "table")
    with pytest.raises(UsageError, match=r"refused|does not exist|computes no"):
        computed(sheet, compose_config(["task=compute", f"output_root={tmp_path}", "device=cpu"]))
    assert not list(tmp_path.rglob("*.json"))


def test_a_table_is_written_as_its_columns_say():
    rows = [{"a": 0.12345, "b": None, "c": True, "d": [1.0, 2]}, {"a": 2.0, "b": 3, "c": False, "d": []}]
    lines = Table("t", rows).lines()
    assert lines == [["a", "b", "c", "d"], ["0.1235", "–", "yes", "1, 2"], ["2", "3", "no", ""]]
    chosen = Table("t", rows, "n", {"a": ("α", ".1%")}, sideways=True)
    assert chosen.lines() == [["α", "12.3%", "200.0%"]]
    assert chosen.markdown() == "## t\n\n| α | 12.3% | 200.0% |\n|---|---|---|\n\nn\n"


def test_a_number_that_json_does_not_know_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("dpot.papers.wdp.figures.table_1", _not_a_number)
    with pytest.raises(ValueError, match="JSON"):
        compute(tmp_path, "paper=wdp", "table=1")
    assert not list(tmp_path.rglob("computed.*"))


def _not_a_number():
    return Computed({"rows": [float("nan")]})


_not_a_number.__module__ = "dpot.papers.wdp.figures"
