"""Published numbers: spot values, and totals that a mistyped digit would change."""

from collections import Counter

import pytest

from dpot.errors import DataError, UsageError
from dpot.reporting import published


@pytest.mark.parametrize(
    ("paper", "table", "row", "column", "value"),
    [
        ("dp_swd", 1, "M-U", "DP-SWD", 94.0),
        ("dp_swd", 1, "W-D", "DP-DANN", 63.4),
        ("dp_swd", 2, "SWD", "MNIST MLP", 87),
        ("dp_swd", 2, "DP-SWD-b", "Fashion LogReg", 66),
        ("dp_swd", 4, "CelebA b", "sigma", 2.392),
        ("dp_sinkhorn", 1, "DP-Sinkhorn", "MNIST FID", 48.4),
        ("dp_sinkhorn", 1, "DataLens", "MNIST MLP", None),
        ("dp_sinkhorn", 3, "Sinkhorn", "CNN", 82.2),
        ("image_bench", 1, "DP-MERF", "CIFAR-10 ε=10 FID", 214.1),
        ("image_bench", 1, "FETA-Pro", "CIFAR-10 ε=1 FID", 120.8),
        ("image_bench", 1, "PrivImage (public data)", "CelebA ε=10 best", 92.0),
    ],
)
def test_cells(paper, table, row, column, value):
    cell = published.table(paper, table).cell(row, column)
    assert cell is not None
    assert cell.value == value


# Cells (those left empty included) and total of the printed values, added up row by row or column by column
# from the papers' tables, not from our files.
TOTALS = {
    ("dp_swd", "1"): (36, 681.8 + 692.0 + 615.9 + 674.5),
    ("dp_swd", "2"): (24, 1702),
    ("dp_swd", "4"): (56, 546_351.073052),  # with the settings that stand in the same table
    ("dp_swd", "CelebA"): (6, 58 + 97 + 149 + 158),
    ("dp_sinkhorn", "1"): (72, 5621.27),
    ("dp_sinkhorn", "1 (run again by others)"): (24, 322.9 + 324.1 + 344.6 + 319.3 + 312.2 + 370.3),
    ("dp_sinkhorn", "1 (first version)"): (8, 304.1 + 292.96),
    ("dp_sinkhorn", "1 (by its authors)"): (2, 150.2),
    ("dp_sinkhorn", "2"): (18, 640.3 + 462.5 + 454.7),
    ("dp_sinkhorn", "3"): (15, 914.9 + 313.7 + 391.4),
    ("field", "ε = 10"): (40, 552.41 + 559.75 + 662.3 + 324.9 + 108.0),
    ("field", "ε = 1"): (32, 542.2 + 593.1 + 680.5 + 321.9),
    ("field", "DPImageBench"): (42, 267.9 + 210.5 + 226.5 + 195.4 + 215.4 + 370.4 + 379.3),
    ("field", "CelebA 32"): (3, 21.1 + 189.5 + 274.0),
    ("field", "Disputed"): (8, 134.6 + 122.9),
    ("sketch", "1"): (64, 552.41 + 559.75 + 542.2 + 593.1 + 646.2 + 714.1),  # rows of the tables above
    ("image_bench", "1"): (240, 13_902.1),
    ("image_bench", "other data sets"): (180, 8_550.0),
    ("field", "Accountants"): (27, 46.357 + 86.049 + 85.646),
}
# The other papers' numbers as they stand in print, row after row; how their files lay them out is theirs to choose.
PRINTED = {
    "wdp": """
        99 96 2.2 .898 .95 .721 .76 .681
        86 73 8.0 .999 .76 .681 .52 .627
        93 92 5.0 .999 .87 .705 .40 .599
        92 90 2.9 .623 .91 .713 .45 .611""",
    "triangle_wad": """
        27.46 24.73 24.16  32.90 30.75 30.72  27.51 24.73 24.16  32.88 30.76 30.69
        571.73 216.54 141.68  571.99 217.50 143.08  571.74 216.54 141.68  572.01 217.02 143.68
        975.79 376.65 248.32  975.94 377.15 249.16  975.80 376.65 248.32  975.88 377.32 249.10
        1.95 2.49 2.93  2.55 34.23 92.46  .05 0 0  .17 1.38 3.26
        12.68 10.94 10.45  15.59 14.30 15.22  12.68 10.94 10.45  15.67 15.77 15.34
        295.17 107.62 70.51  295.29 108.14 71.81  295.17 107.62 70.51  296.38 107.71 71.88
        687.70 269.77 178.21  687.76 270.06 179.22  687.70 269.78 178.21  688.40 270.88 179.17
        1.02 1.39 2.35  1.76 18.62 54.72  0 0 0  .08 .69 3.32
        15.05 12.99 12.57  18.66 17.13 17.04  15.05 12.99 12.57  18.40 17.02 17.66
        290.19 114.30 75.81  290.37 115.12 76.90  290.19 114.30 75.81  290.88 115.13 76.88
        688.94 274.37 181.39  688.98 275.06 182.04  688.94 274.37 181.39  689.69 275.54 182.88
        1.27 1.88 2.07  1.44 17.22 65.33  0 0 0  .07 2.44 9.71""",
}


@pytest.mark.parametrize(("paper", "table"), TOTALS)
def test_totals(paper, table):
    cells, total = TOTALS[paper, table]
    found = published.table(paper, table).cells
    assert len(found) == cells
    assert sum(c.value for c in found if c.value is not None) == pytest.approx(total, abs=1e-6)


def test_no_table_is_without_a_check():
    on_file = {(paper, table) for paper in published.papers() for table in published.tables(paper)}
    assert {(paper, table) for paper, table in on_file if paper not in PRINTED} == set(TOTALS)


@pytest.mark.parametrize("paper", PRINTED)
def test_every_printed_number_is_on_file(paper):
    if paper not in published.papers():
        pytest.skip(f"results/published/{paper}.yaml is not there yet")
    cells = [c.value for table in published.tables(paper).values() for c in table.cells if c.value is not None]
    on_file = Counter(round(value, 6) for value in cells)
    missing = Counter(round(float(word), 6) for word in PRINTED[paper].split()) - on_file
    assert not missing


def test_unknown_names_are_answered_with_the_known():
    with pytest.raises(UsageError, match="dp_swd"):
        published.tables("dp_swg")
    with pytest.raises(UsageError, match="choices: 1, 2"):
        published.table("dp_swd", 77)


def test_a_row_of_the_wrong_length_is_refused(tmp_path, monkeypatch):
    (tmp_path / "odd.yaml").write_text(
        "paper: odd\nversion: v\ntables:\n  1:\n    caption: c\n    metric: accuracy\n    columns: [a, b]\n    rows:\n"
        "      r: [1]\n"
    )
    monkeypatch.setattr(published, "PUBLISHED", tmp_path)
    published.tables.cache_clear()
    with pytest.raises(DataError, match="1 values for 2 columns"):
        published.tables("odd")
    published.tables.cache_clear()
