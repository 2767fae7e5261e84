"""scripts/keep_results.py: what is kept, under which names, and that the tables and pictures follow from it."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from statistics import fmean

import pytest

from dpot.record import Record
from dpot.reporting import readme, sheets, store

RESULTS = store.RESULTS  # the committed ones, wherever a test puts its own


def committed(folder, row, column, seeds):
    """Committed records of a row, by seed."""
    found = {
        home.seed: record
        for record in store.read(RESULTS / "dp_swd" / folder / store.RECORDS)
        for home in record.homes
        if home.row == row and column in home.columns and home.sheet[1:] == tuple(folder.split("_"))
    }
    return [found[seed] for seed in seeds]


@pytest.fixture
def keep(tmp_path, monkeypatch, script):
    """keep() on finished runs in tmp_path/outputs, into tmp_path/results; returns the folder of Figure 3."""
    keep_results = script("keep_results")
    monkeypatch.setattr(store, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(readme, "update", lambda: None)
    monkeypatch.setenv("DPOT_DATA", str(tmp_path / "data"))
    for record in committed("figure_3", "Sketch 10", "D-A", (0, 1, 2)):
        run = tmp_path / "outputs/runs" / f"adapt-{record.homes[0].seed}"
        run.mkdir(parents=True)
        Record(*(getattr(record, part) for part in store.PARTS[:-1])).save(run)
        store.claim(run, record.homes[0])

    def keep(*options: str, paper: str = "dp_swd", kind: str = "figure", name: str = "3") -> Path:
        monkeypatch.setattr(sys, "argv", ["keep_results", str(tmp_path / "outputs"), paper, kind, name, *options])
        keep_results.main()
        return tmp_path / f"results/{paper}/{kind}_{name}"

    return keep


def kept_seeds(folder: Path) -> list[int]:
    return [record.homes[0].seed for record in store.read(folder / store.RECORDS)]


def test_runs_are_kept_by_cell_and_seed_and_compared(keep):
    folder = keep()
    assert kept_seeds(folder) == [0, 1, 2]
    ours = fmean(record.metrics["accuracy"] for record in store.read(folder / store.RECORDS))
    assert ours == fmean(r.metrics["accuracy"] for r in committed("figure_3", "Sketch 10", "D-A", (0, 1, 2)))
    assert f"| Sketch 10 | D-A | – | {ours:.1f}" in (folder / "comparison.md").read_text()
    first = (folder / "figure.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    store.write(folder / store.RECORDS, store.read(folder / store.RECORDS)[1:])
    shutil.rmtree(folder.parents[2] / "outputs/runs/adapt-0")
    keep()
    assert (folder / "figure.png").read_bytes() != first  # the picture is of what is kept


def test_keeping_again_changes_nothing_and_a_new_run_is_a_new_line(keep, tmp_path):
    (tmp_path / "outputs/runs/adapt-1").rename(tmp_path / "later")
    folder = keep()
    first = (folder / store.RECORDS).read_text().splitlines()
    keep()
    assert (folder / store.RECORDS).read_text().splitlines() == first
    (tmp_path / "later").rename(tmp_path / "outputs/runs/adapt-1")
    keep()
    second = (folder / store.RECORDS).read_text().splitlines()
    assert [second[0], second[2]] == first
    assert kept_seeds(folder) == [0, 1, 2]


def test_a_kept_run_is_left_alone_and_other_profiles_are_not_kept(keep, tmp_path):
    path = tmp_path / "outputs/runs/adapt-2/record.json"
    short = json.loads(path.read_text())
    short["config"]["profile"]["name"] = "short"
    path.write_text(json.dumps(short))
    folder = keep()
    assert kept_seeds(folder) == [0, 1]
    kept = folder / store.RECORDS
    kept.write_text(kept.read_text().replace('"commit"', '"kept commit"'))
    before = kept.read_text().splitlines()
    keep("--profile", "short")
    after = kept.read_text().splitlines()
    assert after[:2] == before
    assert len(after) == 3
    short["config"]["profile"]["name"] = "paper"
    short["provenance"]["finished"] = "later"
    path.write_text(json.dumps(short))
    keep()  # a short run does not stand in the way of the long one
    profiles = [record.config["profile"]["name"] for record in store.read(kept)]
    assert sorted(profiles) == ["paper", "paper", "paper", "short"]


def test_a_damaged_file_is_not_written_over(keep):
    folder = keep()
    whole = (folder / store.RECORDS).read_text()
    (folder / store.RECORDS).write_text(whole + '{"cells": [')
    with pytest.raises(Exception, match="line 4"):
        keep()
    assert (folder / store.RECORDS).read_text() == whole + '{"cells": ['


def test_pictures_of_the_first_seed_are_kept_by_the_name_of_their_cell(keep, tmp_path):
    runs = tmp_path / "outputs/runs"
    for record in committed("table_2", "DP-SWD-c", "MNIST MLP", (0, 1)):
        run = runs / f"generate-{record.homes[0].seed}"
        run.mkdir()
        (run / "samples.png").write_bytes(b"grid")
        parts = [getattr(record, part) for part in store.PARTS[:-1]]
        Record(*parts, files={"samples": "samples.png"}).save(run)
        store.claim(run, next(home for home in record.homes if home.name == "2"))
    folder = keep(kind="table", name="2")
    assert [p.name for p in (folder / "pictures").iterdir()] == ["DP-SWD-c-MNIST-s0.png"]
    first, second = store.read(folder / store.RECORDS)
    assert first.files == {"samples": "pictures/DP-SWD-c-MNIST-s0.png"}
    assert second.files == {}


def test_a_run_kept_for_a_table_serves_a_figure_of_it(keep, tmp_path):
    wanted = [("DP-SWD-c", "MNIST MLP", (0, 1)), ("DP-SWD-c", "Fashion MLP", (0,)), ("DP-CGAN", "MNIST MLP", (0,))]
    found = [record for row, column, seeds in wanted for record in committed("table_2", row, column, seeds)]
    table = tmp_path / "results/dp_swd/table_2"
    shutil.copytree(RESULTS / "dp_swd/table_2/pictures", table / "pictures")
    mine = [dataclasses.replace(r, homes=[home for home in r.homes if home.kind == "table"]) for r in found]
    store.write(table / store.RECORDS, mine)
    folder = keep(name="4")  # of MNIST, one seed, without DP-CGAN
    assert not (folder / store.RECORDS).exists()  # nothing is kept twice
    served = [(r.homes, home) for r in store.read(table / store.RECORDS) for home in r.homes if home.kind == "figure"]
    ((homes, figure),) = served
    assert (homes[0].row, homes[0].columns[0], homes[0].seed) == ("DP-SWD-c", "MNIST MLP", 0)
    assert (figure.name, figure.row, figure.seed) == ("4", "DP-SWD-c", 0)
    assert "| DP-SWD-c | MLP | – | 75.9† | 1 |" in (folder / "comparison.md").read_text()
    assert (folder / "figure.png").exists()
    before = (table / store.RECORDS).read_text()
    keep(name="4")
    assert (table / store.RECORDS).read_text() == before


def test_a_run_with_notes_of_two_sheets_is_stored_once(keep, tmp_path):
    keep()
    sheet = sheets.load("dp_swd", 1)
    column = next(c for c in sheet.columns if c.name == "Sketch")
    store.claim(tmp_path / "outputs/runs/adapt-1", store.home_of(sheet, "D-A", column.overrides, 1))
    folder = keep(kind="table", name="1")
    assert not (folder / store.RECORDS).exists()
    second = store.read(tmp_path / "results/dp_swd/figure_3" / store.RECORDS)[1]
    assert [home.sheet for home in second.homes] == [("dp_swd", "figure", "3"), ("dp_swd", "table", "1")]


def test_what_was_computed_is_copied_as_a_whole(keep, tmp_path):
    made = tmp_path / "outputs/computed/dp_swd/table_4"
    made.mkdir(parents=True)
    (made / "computed.json").write_text("{}")
    old = tmp_path / "results/dp_swd/table_4/computed_ab.png"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"of an earlier version")
    folder = keep(kind="table", name="4")
    assert [p.name for p in folder.iterdir()] == ["computed.json"]


def test_without_a_folder_of_data_nothing_is_kept(keep, monkeypatch, capsys):
    monkeypatch.delenv("DPOT_DATA")
    with pytest.raises(SystemExit):
        keep()
    assert "set DPOT_DATA" in capsys.readouterr().err


def test_anew_a_new_run_takes_the_place_of_the_old_one_in_every_sheet_it_served(keep, tmp_path):
    folder = keep()
    kept = store.read(folder / store.RECORDS)
    elsewhere = dataclasses.replace(kept[1].homes[0], kind="table", name="1", row="D-A", columns=("Sketch",))
    kept[1].homes.append(elsewhere)
    store.write(folder / store.RECORDS, kept)
    path = tmp_path / "outputs/runs/adapt-1/record.json"
    again = json.loads(path.read_text())
    again["provenance"]["finished"], again["metrics"]["accuracy"] = "2030-01-01T00:00:00Z", 12.5
    path.write_text(json.dumps(again))
    keep()
    assert store.read(folder / store.RECORDS)[1].metrics["accuracy"] == kept[1].metrics["accuracy"]
    keep("--anew")
    assert "12.5" in (tmp_path / "results/dp_swd/table_1/comparison.md").read_text()
    found = store.read(folder / store.RECORDS)
    assert [record.homes[0].seed for record in found] == [0, 1, 2]
    assert found[1].metrics["accuracy"] == 12.5
    assert elsewhere in found[1].homes
    assert [found[0].metrics, found[2].metrics] == [kept[0].metrics, kept[2].metrics]
