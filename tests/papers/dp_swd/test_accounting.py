"""DP-SWD's Table 4 and the noise of its Table 1, against the numbers of the paper."""

from pathlib import Path

import pytest

from dpot.errors import DataError
from dpot.papers.dp_swd.accounting import AdaptationRun, adaptation_epsilon, published_table_4, table_4_row

SETTINGS = {setting.row: setting for setting in published_table_4()}
# exact, exact with the tighter conversion, as coded, as printed, ε of the published σ
EXPECTED = {
    "U-M": (0.748, 0.710, 4.718, 4.386, 2.04),
    "M-U": (0.850, 0.803, 5.334, 4.986, 2.39),
    "VisDA": (2.039, 1.972, None, None, 1.81),
    "VisDA 1e-6": (2.109, 2.057, 6.471, 3.142, None),
    "Office": (2.734, 2.573, 8.006, 5.645, 3.77),
    "MNIST b": (0.776, 0.748, 2.933, 2.150, 1.65),
    "MNIST c": (0.776, 0.748, 0.847, 0.853, 8.11),
    "CelebA b": (0.344, 0.335, 2.386, 2.214, 0.97),
    "CelebA c": (0.344, 0.335, 0.369, 0.373, 8.50),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_table_4(name: str) -> None:
    row = table_4_row(SETTINGS[name])
    printed = "clt" if name.endswith(" c") else "equation_6"
    found = (row["exact"], row["exact_tight"], row["coded"], row[printed], row["epsilon_of_published"])
    for value, expected in zip(found, EXPECTED[name], strict=True):
        if expected is not None:
            assert value == pytest.approx(expected, rel=0.01)
    if name != "VisDA":
        assert abs(row["coded"] / row["published"] - 1) < 0.012
    assert row["sharp_epsilon_1"] <= row["exact_epsilon_1"]


def test_published_table_has_eight_rows() -> None:
    assert len(SETTINGS) == 9  # VisDA stands twice
    assert SETTINGS["U-M"].steps == 7900
    assert SETTINGS["MNIST b"].steps == 60_100


def test_the_published_m_u_noise_was_worth_40_by_the_authors_formula_and_6_6_exactly():
    found = adaptation_epsilon(AdaptationRun("M-U", SETTINGS["M-U"], 60_000, 320))
    assert found["releases"] == 41652
    assert found["accounted_releases"] == 5900
    assert found["as_accounted"] == pytest.approx(10, rel=0.01)
    assert found["same_formula"] == pytest.approx(40.3, abs=0.05)
    assert found["exact"] == pytest.approx(6.6, abs=0.05)


def test_a_broken_published_table_is_named(tmp_path: Path) -> None:
    for name, content in [
        ("absent.yaml", None),
        ("empty.yaml", ""),
        ("wrong.yaml", "tables: {4: {columns: [a], rows: {x: [1, 2]}}}"),
    ]:
        path = tmp_path / name
        if content is not None:
            path.write_text(content)
        with pytest.raises(DataError, match=name):
            published_table_4(path)
