"""Comparison: means over seeds, verdicts at their limits, and what may never be called comparable."""

import csv
import dataclasses
import io
import json

import pytest
from rich.console import Console

from dpot.errors import DataError, UsageError
from dpot.record import Record
from dpot.reporting import compare, published, sheets, store, tables, verdicts
from dpot.reporting.remarks import Noise, Remarks
from dpot.reporting.store import Home, KeptRecord


def record(row, seed, value, profile="paper", comparable=True, demo=False, finished="t"):
    home = Home("dp_swd", "table", "2", row, ("MNIST LogReg", "MNIST MLP"), seed, demo)
    provenance = {"data": {"name": "mnist", "comparable": comparable}, "finished": finished}
    return KeptRecord({"profile": {"name": profile}}, {"mlp": {"mean": value}}, {}, provenance, homes=[home])


@pytest.fixture
def sheet():
    return sheets.load("dp_swd", 2)


def cell_of(sheet, records, row="SWD", column="MNIST MLP", profile=None):
    cells = compare.compare(sheet, published.table("dp_swd", 2), records, profile)
    return next(c for c in cells if c.row == row and c.column == column)


def test_mean_and_spread_over_seeds(sheet):
    cell = cell_of(sheet, [record("SWD", 0, 86.0), record("SWD", 1, 88.0)])
    assert (cell.ours, cell.seeds, cell.published, cell.difference) == (87.0, 2, 87.0, 0.0)
    assert cell.std == pytest.approx(2**0.5)
    assert cell.verdict == "within, few runs"


def test_a_run_made_again_counts_once_and_the_newest(sheet):
    old, new = record("SWD", 0, 70.0, finished="2026-01-01"), record("SWD", 0, 86.0, finished="2026-02-01")
    cell = cell_of(sheet, [new, record("SWD", 1, 88.0), old])
    assert (cell.ours, cell.seeds) == (87.0, 2)


def test_one_run_of_several_draws_brings_its_own_spread(sheet):
    one = record("SWD", 0, 86.0)
    one.metrics["mlp"] |= {"std": 0.5}
    cell = cell_of(sheet, [one])
    assert (cell.std, cell.over) == (0.5, "passes")  # of sampling and classifying
    assert tables.ours_text(cell) == "86.0 ± 0.5 (passes)"
    assert any("passes of sampling" in line for line in tables.legend([cell]))
    one.metrics["mlp"] |= {"draws": 4}
    cell = cell_of(sheet, [one])
    assert (cell.std, cell.over) == (0.5, "draws")
    assert tables.ours_text(cell) == "86.0 ± 0.5"
    assert any("over draws" in line for line in tables.legend([cell]))
    cell = cell_of(sheet, [one, record("SWD", 1, 88.0)])
    assert (cell.std, cell.over) == (pytest.approx(2**0.5), "seeds")


@pytest.mark.parametrize(
    ("value", "verdict"), [(85.0, "within"), (84.9, "outside"), (89.0, "within"), (89.1, "better")]
)
def test_two_points_of_accuracy(sheet, value, verdict):
    three = [record("SWD", seed, value) for seed in range(3)]
    assert cell_of(sheet, three).verdict == verdict


def test_a_single_training_is_no_reproduction_unless_trainings_are_known_to_differ_by_less(sheet):
    """One training within the bounds may be chance; better and outside it is all the same."""
    assert [verdicts.verdict("accuracy", 87.0, ours, True, runs=1) for ours in (86.0, 89.1, 84.9)] == [
        "within, few runs",
        "better",
        "outside",
    ]
    assert verdicts.verdict("accuracy", 87.0, 86.0, True, runs=1, noise=2.0) == "within"
    assert verdicts.verdict("accuracy", 87.0, 86.0, True, runs=1, noise=2.1) == "within, few runs"
    assert verdicts.verdict("accuracy", 87.0, 86.0, True, runs=3, noise=5.0) == "within"
    known = Remarks(noise={"SWD": Noise({"accuracy": 1.5}, "five seeds")})
    quiet = dataclasses.replace(sheet, remarks=known)
    cell = cell_of(quiet, [record("SWD", 0, 86.0)])
    assert (cell.verdict, cell.noise) == ("within", 1.5)
    assert any("differ by 1.5 (accuracy) (five seeds)" in line for line in tables.legend([cell], quiet))
    missed = cell_of(quiet, [record("SWD", 0, 80.0)])
    assert tables.verdict_text(missed) == "outside (trainings differ by 1.5)"
    assert tables.verdict_text(cell_of(quiet, [record("SWD", seed, 80.0) for seed in range(3)])) == "outside"


def test_draws_of_the_data_within_one_run_count_as_its_runs(sheet):
    several = record("SWD", 0, 86.0)
    several.metrics["mlp"] |= {"draws": 3, "std": 1.0}
    assert cell_of(sheet, [several]).verdict == "within"
    several.metrics["mlp"] |= {"draws": 2}
    assert cell_of(sheet, [several]).verdict == "within, few runs"


def test_a_far_better_fid_is_counted_as_better_and_never_as_reproduced():
    assert verdicts.verdict("fid", 54.2, 20.0, True, runs=5) == "better"
    assert verdicts.verdict("fid", 124.3, 56.2, True, runs=5) == "better"
    assert verdicts.JUDGED == ("within", "within, few runs", "better", "outside")


@pytest.mark.parametrize("said", ["other data", "other method", "other setting", "fitted"])
def test_what_was_not_made_as_published_is_counted_apart_whatever_its_number(said):
    for ours in (80.0, 87.0, 95.0):
        assert verdicts.verdict("accuracy", 87.0, ours, True, said=said) == said
    assert verdicts.verdict("accuracy", 87.0, 87.0, False, said=said) == "not comparable"
    assert verdicts.verdict("accuracy", None, 87.0, True, said=said) == "ours"


def test_only_a_miss_can_be_explained():
    said = [verdicts.verdict("accuracy", 87.0, ours, True, said="explained") for ours in (80.0, 87.0, 95.0)]
    assert said == ["explained", "within", "better"]


@pytest.mark.parametrize(("value", "verdict"), [(110.0, "within"), (110.1, "outside"), (89.9, "better")])
def test_ten_percent_of_fid(value, verdict):
    assert verdicts.verdict("fid", 100.0, value, True) == verdict


@pytest.mark.parametrize("change", [{"profile": "quick"}, {"comparable": False}, {"profile": "quick", "demo": True}])
def test_small_profiles_and_other_data_are_not_comparable(sheet, change):
    cell = cell_of(sheet, [record("SWD", 0, 87.0, **change)])
    assert cell.verdict == "not comparable"
    assert not cell.comparable


@pytest.mark.parametrize("size", ["steps", "records", "samples"])
def test_a_paper_profile_that_was_cut_is_not_comparable(sheet, size):
    cut = record("SWD", 0, 87.0)
    cut.config["profile"][size] = 1000
    assert cell_of(sheet, [cut]).verdict == "not comparable"


def test_the_largest_profile_wins_and_demonstrations_come_last(sheet):
    mixed = [
        record("SWD", 0, 10.0, profile="smoke"),
        record("SWD", 0, 20.0, profile="quick", demo=True),
        record("SWD", 0, 30.0, profile="quick"),
    ]
    assert cell_of(sheet, mixed).ours == 30.0
    assert cell_of(sheet, mixed[:2]).ours == 20.0
    assert cell_of(sheet, mixed, profile="smoke").ours == 10.0


def test_rows_of_the_paper_without_a_run_are_published_only(sheet):
    cell = cell_of(sheet, [], row="GS-WGAN")
    assert (cell.verdict, cell.published, cell.ours) == ("published only", 79.0, None)


def test_every_format_holds_every_row(sheet):
    cells = compare.compare(sheet, published.table("dp_swd", 2), [record("SWD", 0, 87.0, profile="quick")], None)
    text = Console(width=200, record=True, file=io.StringIO())
    text.print(tables.Terminal(sheet, cells))
    shown = text.export_text()
    for rendered in (shown, tables.markdown(sheet, cells), tables.latex(sheet, cells)):
        assert all(row in rendered for row in ("SWD", "DP-SWD-exact", "GS-WGAN", "DP-CGAN, as coded"))
    assert "NOT comparable" in tables.markdown(sheet, cells)
    assert "87.0*" in shown
    assert "87.0*" in tables.markdown(sheet, cells)
    assert r"87.0$^\ast$" in tables.latex(sheet, cells)
    assert "not comparable with the published number" in tables.latex(sheet, cells)
    rows = list(csv.DictReader(io.StringIO(tables.comma_separated(cells))))
    assert len(rows) == len(cells) == 12 * 4


def test_claims_beside_a_record_are_found_again(tmp_path, sheet):
    directory = tmp_path / "runs" / "x"
    directory.mkdir(parents=True)
    (home,) = record("SWD", 0, 87.0).homes
    Record(*(getattr(record("SWD", 0, 87.0), part) for part in store.PARTS)).save(directory)
    store.claim(directory, home)
    (directory / "cell-dp_swd-2-of-an-earlier-version.json").write_text('{"row": "SWD", "group": ["dataset=mnist"]}')
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "record.json").write_text("{")
    (found,) = store.records(tmp_path, committed=False)
    assert found.homes == [home]
    assert cell_of(sheet, [found]).ours == 87.0


def test_a_run_that_is_in_two_files_is_one_record_that_serves_both_sheets(tmp_path, monkeypatch, sheet):
    monkeypatch.setattr(store, "RESULTS", tmp_path)
    whole = record("SWD", 0, 87.0)
    (home,) = whole.homes
    figure = dataclasses.replace(home, kind="figure", name="4")
    store.write(tmp_path / "dp_swd/table_2/records.jsonl", [whole])
    store.write(tmp_path / "dp_swd/figure_4/records.jsonl", [dataclasses.replace(whole, homes=[figure])])
    found = store.records(None)
    assert len(found) == 1
    assert found[0].homes == [figure, home]
    assert cell_of(sheet, found).seeds == 1
    assert [(s.folder, served.row, r) for s, served, r in store.filled(found)] == [
        ("figure_4", "SWD", found[0]),
        ("table_2", "SWD", found[0]),
    ]


def test_what_is_written_is_read_again_and_new_records_are_new_lines(tmp_path):
    path = tmp_path / "dp_swd/table_2/records.jsonl"
    elsewhere = Home("dp_swd", "figure", "4", "SWD", ("MLP",), 0)
    first, second = record("SWD", 1, 87.0), record("SWD", 0, 88.0, demo=True)
    second.homes.append(elsewhere)
    store.write(path, [first])
    before = path.read_text().splitlines()
    store.write(path, [first, second])
    after = path.read_text().splitlines()
    assert after[1:] == before  # sorted by cell, whatever order they came in
    assert [r.homes for r in store.read(path)] == [second.homes, first.homes]
    assert json.loads(after[0])["cells"] == [
        {"row": "SWD", "columns": ["MNIST LogReg", "MNIST MLP"], "seed": 0, "demo": True},
        {"paper": "dp_swd", "kind": "figure", "name": "4", "row": "SWD", "columns": ["MLP"], "seed": 0},
    ]


@pytest.mark.parametrize("damage", ['{"cells": [', '{"cells": []}', "[1, 2]", '{"cells": [{"row": "SWD"}]}', "\udcff"])
def test_a_damaged_line_is_named_and_passed_over(tmp_path, caplog, damage):
    path = tmp_path / "dp_swd/table_2/records.jsonl"
    store.write(path, [record("SWD", 0, 87.0), record("SWD", 1, 88.0)])
    lines = path.read_text().splitlines()
    path.write_bytes("\n".join([lines[0], damage, lines[1], ""]).encode(errors="surrogateescape"))
    assert [r.homes[0].seed for r in store.read(path)] == [0, 1]
    assert f"{path}, line 2" in caplog.text
    with pytest.raises(DataError, match="line 2"):
        store.read(path, strict=True)


def test_a_new_column_with_the_same_overrides_is_filled_by_old_records(sheet):
    column = sheets.Column("new", ("dataset=mnist",), "mlp")
    wider = dataclasses.replace(sheet, columns=(*sheet.columns, column))
    assert cell_of(wider, [record("SWD", 0, 87.0)], column="new").ours == 87.0
    assert cell_of(wider, [record("SWD", 0, 87.0)], column="Fashion MLP").ours is None


def test_every_committed_record_fills_cells_of_a_sheet_that_exists():
    found = store.records(None)
    served = list(store.filled(found))
    assert len(served) == sum(len(r.homes) for r in found) > len(found) - 2
    assert [r.directory.name for r in found if not r.homes] == ["attack"]
    for sheet, home, kept in served:
        assert sheet.rows.get(home.row) is not None, home
        (group,) = {c.overrides for c in sheet.columns if c.name in home.columns}
        assert home.columns == tuple(c.name for c in sheet.columns if c.overrides == group)
        assert not [file for file in kept.files.values() if not (kept.directory / file).is_file()]


def test_committed_files_are_as_they_would_be_written_again(tmp_path):
    for path in store.files():
        again = tmp_path / path.relative_to(store.RESULTS)
        store.write(again, store.read(path, strict=True))
        assert again.read_bytes() == path.read_bytes(), path


def test_pictures_of_different_cells_have_different_names():
    for each in sheets.all_sheets():
        homes = {store.home_of(each, run.row, run.group, run.seed) for run in each.runs()}
        assert len({store.file_name(each, home, "paper") for home in homes}) == len(homes), each.title


def test_committed_comparisons_are_what_the_committed_records_give():
    records = store.records(None)
    kept = sorted(store.RESULTS.glob("*/*/comparison.json"))
    assert kept
    for path in kept:
        paper, (kind, _, name) = path.parts[-3], path.parent.name.partition("_")
        own = sheets.load(paper, name, kind)
        printed = published.tables(paper).get(name) if kind == "table" else None
        now = [dataclasses.asdict(c) for c in compare.compare(own, printed, records, None)]
        then = json.loads(path.read_text())["cells"]
        for cells in (now, then):
            for cell in cells:
                cell.pop("difference", None)
                if cell["ours"] is None:
                    cell.pop("verdict")  # whether it could be run depends on the data at hand
        assert then == now, path


def test_unknown_sheets_are_answered_with_the_known():
    with pytest.raises(UsageError, match="paper=dp_swd table=99: there is no such table") as refused:
        sheets.load("dp_swd", 99)
    assert "2" in refused.value.listed[1].split("table=")[1].split(" | ")


def test_every_sheet_names_rows_and_columns_of_its_table():
    for each in sheets.all_sheets():
        printed = published.tables(each.paper).get(each.name) if each.kind == "table" else None
        if printed and each.compute is None:
            columns = {c.column for c in printed.cells}
            assert len(columns & {c.name for c in each.columns}) >= len(columns) / 2  # the sheet's others are ours
            assert {c.row for c in printed.cells} <= set(each.rows)


def test_a_column_of_ours_is_judged_by_its_metric(sheet):
    """It is not in print, so there is nothing to compare, but an accuracy is shown as one."""
    column = sheets.Column("ours", ("dataset=mnist",), "mlp")
    wider = dataclasses.replace(sheet, columns=(*sheet.columns, column))
    cells = compare.compare(wider, published.table("dp_swd", 2), [record("SWD", 0, 87.0)], None)
    assert {(c.metric, c.verdict) for c in cells if c.ours and c.column == "ours"} == {("accuracy", "ours")}


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize(("paper", "table"), [("dp_swd", 2), ("dp_sinkhorn", 1), ("dp_sinkhorn", 2)])
def test_on_a_narrow_screen_names_give_way_and_numbers_stay_whole(paper, table, width):
    sheet = sheets.load(paper, table)
    cells = compare.compare(sheet, published.table(paper, table), store.records(None), None)
    assert any(c.ours is not None for c in cells)
    screen = Console(width=width, file=io.StringIO())
    screen.print(tables.Terminal(sheet, cells))
    shown = screen.file.getvalue()
    assert "…" not in shown
    assert "method" in shown
    assert max(len(line) for line in shown.splitlines()) <= width
    for c in cells:
        assert f"{tables.number(c.published, c.metric)} | {tables.short_text(c)}" in shown


def test_cells_inherit_how_their_data_differ_without_being_run_again():
    """As the source class declares it, for a pair from either of its sides; the records say nothing of it."""
    assert verdicts.difference_of_data("mnist") == verdicts.difference_of_data("no such data") == ""
    for name, words in (("mnist_to_usps", "CoGAN"), ("usps_to_mnist", "CoGAN"), ("dslr_to_webcam", "Office-31")):
        assert words in verdicts.difference_of_data(name)
        assert verdicts.difference_of_data(name).count(words) == 1  # both sides of a pair say it
    cells = compare.compare(sheets.load("dp_swd", 1), published.table("dp_swd", 1), store.records(None), None)
    judged = [c for c in cells if c.published is not None and c.ours is not None]
    assert {c.verdict for c in judged} == {"other data"}
    assert len(judged) == 32
    assert {c.numbers for c in judged} == {"within", "better", "outside"}
    text = tables.markdown(sheets.load("dp_swd", 1), cells)
    assert "other data (within)" in text
    assert "Other data: USPS" in text


@pytest.mark.parametrize(
    ("paper", "table", "faithful", "ours"),
    [("dp_swd", 1, "DP-DANN coded", "DP-DANN"), ("dp_swd", 2, "DP-CGAN, as coded", "DP-CGAN")]
    + [("dp_sinkhorn", 1, "DP-CGAN, as coded", "DP-CGAN")],
)
def test_published_numbers_are_held_against_the_faithful_variant_and_not_against_the_corrected_one(
    paper, table, faithful, ours
):
    printed = published.table(paper, table)
    cells = compare.compare(sheets.load(paper, table), printed, store.records(None), None)
    theirs = {c.value for c in printed.cells if ours in (c.row, c.column)}
    assert {c.published for c in cells if faithful in (c.row, c.column)} == theirs
    assert {c.published for c in cells if ours in (c.row, c.column)} == {None}
    assert {c.verdict for c in cells if ours in (c.row, c.column)} <= {"ours", "missing"}


def test_each_published_number_is_counted_once(sheet):
    """By the first of the rows that stand for it; the others show it and are judged, but not counted."""
    several = dataclasses.replace(sheet, remarks=Remarks(stands_for={"SWD": ("SWD", "DP-SWD-exact")}))
    records = [record(row, seed, 87.0) for row in ("SWD", "DP-SWD-exact") for seed in range(3)]
    found = [cell_of(several, records, row) for row in ("SWD", "DP-SWD-exact")]
    assert [(c.published, c.verdict, c.counted) for c in found] == [(87.0, "within", True), (87.0, "within", False)]
    for each in sheets.all_sheets():
        printed = published.tables(each.paper).get(each.name) if each.kind == "table" else None
        if printed and each.compute is None:
            rows = [each.remarks.published_name(row) for row in each.rows]
            columns = [each.remarks.published_name(column.name) for column in each.columns]
            told = [(row, column) for row, first in rows for column, leads in columns if first and leads]
            told = [place for place in told if None not in place and printed.cell(*place) is not None]
            assert len(told) == len(set(told)), each.title
