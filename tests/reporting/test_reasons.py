"""Every miss has its reason: cells outside the bounds, or counted apart, link to a paragraph that exists."""

import json
import re

import pytest

from dpot.config import REPOSITORY
from dpot.errors import DataError
from dpot.reporting import sheets, store, verdicts

LINKED = ("outside", *verdicts.COUNTED_APART)


def leads_somewhere(link):
    """Whether docs/PAGE.md#anchor is a heading of a page, by GitHub's rule for anchors."""
    path, _, anchor = link.partition("#")
    page = REPOSITORY / path
    if not (path.startswith("docs/") and page.is_file() and anchor):
        return False
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_missing_page_or_heading_is_noticed():
    assert leads_somewhere("docs/wdp.md#table-2")
    for broken in ("docs/wdp.md#table-3", "docs/nowhere.md#table-2", "docs/wdp.md", "README.md#install"):
        assert not leads_somewhere(broken)


def committed():
    for path in sorted(store.RESULTS.glob("*/table_*/comparison.json")):
        for cell in json.loads(path.read_text())["cells"]:
            yield path, cell


def test_every_miss_on_record_links_to_its_reason():
    """As committed, which another test compares with the sheets and records."""
    cells = [(path, cell) for path, cell in committed() if cell["verdict"] in LINKED]
    assert len(cells) > 80
    without = [(str(path), c["row"], c["column"]) for path, c in cells if not leads_somewhere(c["because"] or "")]
    assert without == []


def test_the_link_stands_in_the_comparison_and_can_be_followed_from_there():
    for path in sorted(store.RESULTS.glob("*/table_*/comparison.md")):
        for link in re.findall(r"\| \[[^\]]*\]\(([^)]*)\) \|$", path.read_text(), flags=re.MULTILINE):
            page, _, anchor = link.partition("#")
            assert leads_somewhere(f"{(path.parent / page).resolve().relative_to(REPOSITORY)}#{anchor}"), (path, link)


def test_what_a_sheet_says_of_computed_cells_has_its_reason_too():
    for sheet in sheets.all_sheets():
        for why in sheet.remarks.why:
            assert leads_somewhere(why.because), (sheet.title, why.because)
    cells = json.loads((store.RESULTS / "dp_swd/table_4/computed.json").read_text())["cells"]
    missed = [cell["row"] for cell in cells if cell["verdict"] == "outside"]
    assert missed == ["VisDA", "VisDA 1e-6"]
    assert all(sheets.load("dp_swd", 4).remarks.said(row, "sigma") for row in missed)


@pytest.mark.parametrize(
    "body",
    [
        {"why": [{"says": "fine", "because": "docs/wdp.md#table-2"}]},
        {"why": [{"rows": ["nobody"], "says": "outside", "because": "docs/wdp.md#table-2"}]},
        {"noise": {"nobody": {"accuracy": 1, "from": "hearsay"}}},
        {"stands_for": {"SWD": ["nobody"]}},
        {"departs": [{"columns": ["nothing"], "keys": {"loss.batch": "so"}}]},
    ],
    ids=lambda body: next(iter(body)),
)
def test_remarks_on_what_does_not_exist_are_refused(body, tmp_path):
    sheet = {"paper": "p", "table": 1, "title": "", "common": [], "seeds": 1, "columns": {}, "rows": {"SWD": []}}
    sheets.parse(sheet, tmp_path, "table")
    with pytest.raises(DataError, match=r"says fine|there is no row or column"):
        sheets.parse(sheet | body, tmp_path, "table")


def test_cells_that_a_noise_law_was_fitted_to_are_not_counted():
    """TriangleWad's D1 and D2: all four rows in print, on the two data sets that are comparable."""
    path = store.RESULTS / "triangle_wad/table_1/comparison.json"
    cells = json.loads(path.read_text())["cells"]
    fitted = [c for c in cells if c["verdict"] == "fitted"]
    assert len(fitted) == 4 * 2 * 3 * 2
    assert {c["column"].split()[-1] for c in fitted} == {"D1", "D2"}
    assert not [c for c in cells if c["column"].split()[-1] in ("D1", "D2") and c["verdict"] in verdicts.JUDGED]


def test_budgets_of_another_noise_are_of_another_setting():
    cells = json.loads((store.RESULTS / "wdp/table_2/comparison.json").read_text())["cells"]
    made = [c for c in cells if c["column"] in ("DP", "BDP") and c["row"] in ("MNIST", "F-MNIST")]
    assert {c["verdict"] for c in made} == {"other setting"}
    assert len(made) == 4
