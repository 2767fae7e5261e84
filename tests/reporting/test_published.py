"""Published numbers: spot values, and totals that a mistyped digit would change."""

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
    ],
)
def test_cells(paper, table, row, column, value):
    cell = published.table(paper, table).cell(row, column)
    assert cell is not None
    assert cell.value == value


@pytest.mark.parametrize(
    ("paper", "table", "cells", "total"),
    [
        ("dp_swd", 1, 36, 681.8 + 692.0 + 615.9 + 674.5),
        ("dp_swd", 2, 24, 1702),
        ("dp_swd", 4, 56, 546_351.073052),  # with the settings that stand in the same table
        ("dp_sinkhorn", 1, 72, 5621.27),
    ],
)
def test_totals(paper, table, cells, total):
    found = published.table(paper, table).cells
    assert len(found) == cells
    assert sum(c.value for c in found if c.value is not None) == pytest.approx(total, abs=1e-6)


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
