"""scripts/keep_results.py: what is kept, under which names, and that the tables and pictures follow from it."""

import json
import shutil
import sys
from pathlib import Path
from statistics import fmean

import pytest

from dpot.config import REPOSITORY
from dpot.reporting import readme, store

KEPT = REPOSITORY / "results/reproduced/dp_swd/figure_3"
RUNS = [f"Sketch_10-dslr_to_amazon-s{seed}" for seed in (0, 1, 2)]


@pytest.fixture
def keep(tmp_path, monkeypatch, script):
    """keep() on finished runs in tmp_path/outputs, into tmp_path/reproduced; returns the folder of Figure 3."""
    keep_results = script("keep_results")
    monkeypatch.setattr(store, "REPRODUCED", tmp_path / "reproduced")
    monkeypatch.setattr(readme, "update", lambda: None)
    monkeypatch.setenv("DPOT_DATA", str(tmp_path / "data"))
    for number, name in enumerate(RUNS):
        shutil.copytree(KEPT / name, tmp_path / "outputs/runs" / f"adapt-{number}")

    def run(*options: str, figure: str = "3") -> Path:
        words = ["keep_results", str(tmp_path / "outputs"), "dp_swd", "figure", figure, *options]
        monkeypatch.setattr(sys, "argv", words)
        keep_results.main()
        return tmp_path / f"reproduced/dp_swd/figure_{figure}"

    return run


def accuracies(folder: Path) -> list[float]:
    return [json.loads((folder / name / "record.json").read_text())["metrics"]["accuracy"] for name in RUNS]


def test_runs_are_kept_by_cell_and_seed_and_compared(keep):
    folder = keep()
    assert sorted(p.name for p in folder.iterdir() if p.is_dir()) == RUNS
    assert f"| Sketch 10 | D-A | – | {fmean(accuracies(KEPT)):.1f}" in (folder / "comparison.md").read_text()
    first = (folder / "figure_3.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    shutil.rmtree(folder / RUNS[0])
    shutil.rmtree(folder.parents[2] / "outputs/runs/adapt-0")
    keep()
    assert (folder / "figure_3.png").read_bytes() != first  # the picture is of what is kept


def test_a_kept_run_is_left_alone_and_other_profiles_are_not_kept(keep, tmp_path):
    path = tmp_path / "outputs/runs/adapt-2/record.json"
    short = json.loads(path.read_text())
    short["config"]["profile"]["name"] = "short"
    path.write_text(json.dumps(short))
    folder = keep()
    assert not (folder / RUNS[2]).exists()
    kept = folder / RUNS[1] / "record.json"
    kept.write_text(kept.read_text().replace('"commit"', '"kept commit"'))
    before = kept.read_text()
    keep("--profile", "short")
    assert kept.read_text() == before
    assert (folder / f"{RUNS[2]}-short/record.json").exists()
    short["config"]["profile"]["name"] = "paper"
    path.write_text(json.dumps(short))
    keep()  # a short run does not stand in the way of the long one
    assert (folder / RUNS[2] / "record.json").exists()


def test_a_run_kept_for_a_table_serves_a_figure_of_it(keep, tmp_path):
    table = tmp_path / "reproduced/dp_swd/table_2"
    for name in ("DP-SWD-c-mnist-s0", "DP-SWD-c-mnist-s1", "DP-SWD-c-fashion_mnist-s0", "DP-MERF-mnist-s0"):
        shutil.copytree(REPOSITORY / "results/reproduced/dp_swd/table_2" / name, table / name)
        for note in (table / name).glob("cell-dp_swd-[45]-*.json"):
            note.unlink()
    folder = keep(figure="4")  # of MNIST, one seed, without DP-MERF
    assert not [p for p in folder.iterdir() if p.is_dir()]  # nothing is kept twice
    (note,) = table.glob("*/cell-dp_swd-4-*.json")
    assert note.parent.name == "DP-SWD-c-mnist-s0"
    assert "| DP-SWD-c | MLP | – | 75.9 | 1 |" in (folder / "comparison.md").read_text()
    assert (folder / "figure_4.png").exists()
    keep(figure="4")
    assert len(list(table.glob("*/cell-*.json"))) == 5


def test_without_a_folder_of_data_nothing_is_kept(keep, monkeypatch, capsys):
    monkeypatch.delenv("DPOT_DATA")
    with pytest.raises(SystemExit):
        keep()
    assert "set DPOT_DATA" in capsys.readouterr().err
