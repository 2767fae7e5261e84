"""The report's pages: complete, self-contained, well-formed, and picking up whatever tasks left."""

import html
import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

from dpot.composing import compose_config
from dpot.errors import UsageError
from dpot.launch import run
from dpot.privacy.statement import Statement
from dpot.record import Record
from dpot.reporting import charts, gather, markup, methods_page, pages, sheet_page, store

VOID = {"meta", "link", "img", "br", "input", "hr"}


class Page(HTMLParser):
    """Collects links, checks that tags close in order, and that tables have captions and headed columns."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.ids, self.tables, self.loose = [], [], set(), [], []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.links += [known[name] for name in ("href", "src") if known.get(name)]
        self.ids.add(known.get("id"))
        if tag == "th" and "scope" not in known:
            self.loose.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open, f"</{tag}> without a beginning"
            assert self.open.pop() == tag, tag


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    gathered = gather.gather(None)
    return folder, pages.write(folder, gathered), gathered


def test_every_link_leads_somewhere_inside(report):
    folder, pages, _ = report
    parsed = {page: Page((folder / page).read_text()) for page in pages}
    for page, content in parsed.items():
        assert not content.loose, page
        for link in content.links:
            if link.startswith("data:"):
                continue
            assert not re.match(r"^[a-z]+:", link), f"{page} points outside: {link}"
            path, _, anchor = link.partition("#")
            assert (folder / (path or page)).is_file(), f"{page}: {link}"
            if anchor:
                assert anchor in parsed[path or page].ids, f"{page}: {link}"
    reached, queue = set(), ["index.html"]
    while queue:
        page = queue.pop()
        if page not in reached and page in parsed:
            reached.add(page)
            queue += [link.partition("#")[0] for link in parsed[page].links]
    assert reached == set(pages)


def test_every_committed_result_is_in_it(report):
    folder, pages, gathered = report
    text = "".join((folder / page).read_text() for page in pages)
    rows = {html.escape(home.row) for record in gathered.records for home in record.homes}
    assert not [row for row in rows if row not in text]
    copied = {path.read_bytes() for path in (folder / "files").iterdir()}
    pictures = [path for paper in store.paper_folders() for path in paper.glob("*/*.png")]
    pictures += store.RESULTS.glob("*/attack/pictures/*.png")
    assert len(pictures) > 20
    assert not [picture.name for picture in pictures if picture.read_bytes() not in copied]
    for state in gathered.sheets:
        assert (folder / f"{state.key}.html").exists()
        assert all(one.command.startswith("dpot ") for one in state.runs)


def test_numbers_of_the_pages_are_those_of_the_records(report):
    folder, _, gathered = report
    state = next(s for s in gathered.sheets if s.key == "dp_swd_table_2")
    page = (folder / "dp_swd_table_2.html").read_text()
    ours = [c for c in state.cells if c.ours is not None]
    assert ours
    for cell in ours:
        assert f"{cell.ours:.1f}" in page
    record = state.runs[0].records[0]
    assert record.provenance["commit"][:10] in page
    assert record.privacy["headline"] in page


def files(root, **content):
    for name, text in content.items():
        path = root / name.replace("__", ".").replace("_in_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_documents_are_what_is_neither_a_record_nor_a_comparison(tmp_path):
    cells = json.dumps({"cells": [{"row": "x", "verdict": "within"}]})
    table = "| a | b |\n|---|---|\n| x | 1 |\n"
    paper = tmp_path / "results" / "triangle_wad"
    files(paper / "table_4", computed__md=table, computed__json=cells, comparison__md="", records__jsonl="")
    files(paper / "figure_1", computed__json="{", computed_ab__png="png", pictures_in_samples__png="png")
    files(paper / "table_2", comparison__md="", records__jsonl="", pictures_in_samples__png="png")
    files(tmp_path / "results" / "claims" / "x", wdp__json="{}")
    found = {d.name: d for d in gather.find_documents(tmp_path / "results")}
    assert set(found) == {"table_4", "figure_1"}
    assert found["table_4"].cells == [{"row": "x", "verdict": "within"}]
    assert [p.name for p in found["table_4"].files] == ["computed.json", "computed.md"]
    assert [p.name for p in found["figure_1"].pictures] == ["computed_ab.png"]
    assert found["figure_1"].data == {}  # broken JSON is passed over


def test_what_this_machine_computed_stands_in_place_of_what_is_committed(tmp_path):
    files(tmp_path / "results/wdp/figure_1", computed__json='{"a": 1}', computed__md="old", notes__md="a note")
    files(tmp_path / "own/wdp/figure_1", computed__json='{"a": 2}')
    (document,) = gather.find_documents(tmp_path / "results", tmp_path / "own")
    assert document.data == {"a": 2}
    assert document.texts == ["a note"]


def test_everything_that_was_computed_says_by_which_commit():
    found = [path for paper in store.paper_folders() for path in paper.glob("*/computed.json")]
    assert len(found) > 20
    for path in found:
        assert re.search(r'"commit": "[0-9a-f]{40}"', path.read_text()), path


def test_statements_are_rendered_from_the_records(report):
    folder, _, gathered = report
    page = (folder / "dp_swd_table_2.html").read_text()
    state = next(s for s in gathered.sheets if s.key == "dp_swd_table_2")
    kept = {path.name: path.read_text() for path in (folder / "files").glob("*.html")}
    on_record = [runs for runs in state.runs if runs.records]
    assert len(on_record) >= 14
    for runs in on_record:
        rendered = Statement.from_dict(runs.records[0].privacy).to_html()
        (name,) = [name for name, text in kept.items() if text == rendered]
        assert f'href="files/{name}"' in page


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="something else"):
        run(compose_config(["task=report", f"task.folder={tmp_path}"]))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    answer = run(compose_config(["task=report", f"task.folder={tmp_path / 'report'}", "task.own_runs=false"]))
    assert answer.data["index"] == (tmp_path / "report" / "index.html").as_uri()
    assert "methods.html" in answer.data["pages"]


def test_markdown_of_our_tasks_becomes_html():
    text = "## A *title*\n\nSome **bold** `code` & <tags>.\nMore.\n\n"
    text += "| a | b |\n|---|---|\n| x\\|y | -1.5 |\n\n- one\n  two\n- three\n"
    found = markup.to_html(text, 3)
    assert "<h3>A <em>title</em></h3>" in found
    assert "<p>Some <strong>bold</strong> <code>code</code> &amp; &lt;tags&gt;. More.</p>" in found
    assert '<th scope="row">x|y</th><td class="number">-1.5</td>' in found
    assert "<ul><li>one two</li><li>three</li></ul>" in found.replace("\n", "")
    Page(found)


def test_pictures_of_a_text_are_left_to_the_page():
    assert markup.to_html("Words.\n\n![a picture](computed.png)\n") == "<p>Words.</p>"


def test_links_with_scripts_are_not_made():
    assert "href" not in markup.inline("[a](javascript:alert(1))")
    assert markup.inline("[a](../x.md)") == "a"  # a file of the repository is not there
    assert markup.inline("[a](https://x.org/y)") == '<a href="https://x.org/y">a</a>'


def drawn(chart):
    return ElementTree.fromstring(re.search(r"<svg.*</svg>", chart, re.DOTALL).group(0))


def test_charts_are_svg_with_points_in_their_place():
    chart = charts.lines("a < b", [charts.Series("up & down", [(0, 0), (50, 5), (100, 10)])], "x", "y")
    points = [tuple(map(float, p.split(","))) for p in drawn(chart).find(".//polyline").get("points").split()]
    assert points[1][0] == pytest.approx((points[0][0] + points[2][0]) / 2)
    assert points[1][1] == pytest.approx((points[0][1] + points[2][1]) / 2)
    assert points[0][1] > points[2][1]  # up is up
    assert "up &amp; down" in chart
    assert charts.lines("none", [charts.Series("one point", [(0, 0)])], "x", "y") == ""


def test_a_logarithmic_axis_has_its_few_places_in_numbers():
    chart = charts.lines("t", [charts.Series("s", [(x, x) for x in (0.2, 1, 5)])], "ε", "y", log_x=True)
    labels = [text for text in drawn(chart).findall(".//text") if text.get("text-anchor") == "middle"]
    at = {text.text: float(text.get("x")) for text in labels if text.get("class") == "tick"}
    assert list(at) == ["0.2", "1", "5"]
    assert at["1"] - at["0.2"] == pytest.approx(at["5"] - at["1"], abs=0.2)


@pytest.mark.parametrize(
    ("training", "whole"),
    [
        ({"steps": 600, "seconds": 3.0, "steps_per_second": 200.0}, True),
        ({"steps": 600, "seconds": 0.001, "steps_per_second": 0.0, "resumed_at": 600}, False),
        ({"steps": 600, "seconds": 1.0, "steps_per_second": 200.0, "resumed_at": 400}, False),
        ({"steps": 600, "seconds": 3.0, "steps_per_second": 200.0, "resumed_at": 400}, True),
        ({"steps": 600, "seconds": 3.0}, True),
    ],
)
def test_seconds_of_a_part_are_no_training_time(training, whole):
    assert sheet_page._is_whole(training) == whole


def test_bars_are_as_long_as_their_values():
    rects = drawn(charts.bars("b", [charts.Bar("x", 1, "1"), charts.Bar("y", 4, "4")])).findall(".//rect")
    assert float(rects[1].get("width")) == pytest.approx(4 * float(rects[0].get("width")), rel=1e-3)


def test_a_strip_says_its_counts():
    strip = charts.share([("within", 3), ("better", 0), ("outside", 1)], "T")
    assert drawn(strip).get("aria-label") == "T: 3 within, 1 outside"
    assert charts.share([("within", 0)], "T") == ""


def test_a_resumed_run_names_every_commit_and_all_its_seconds():
    earlier = [{"until": 200, "code": None}, {"until": 400, "code": "a" * 12}]
    training = {"seconds": 90.0, "earlier": earlier}
    record = Record({}, {"training": training}, {}, {"commit": "b" * 40, "dirty": False, "seconds": 20.0}, {})
    assert sheet_page._codes(record) == ["unknown", "a" * 10, "b" * 10]
    assert sheet_page._seconds(record) == 90.0
    record.metrics.clear()  # a run without a training, as a table of accounting is
    assert sheet_page._codes(record) == ["b" * 10]
    assert sheet_page._seconds(record) == 20.0


def test_a_run_that_serves_several_sheets_is_one_method_at_equal_epsilon(report):
    lines = [line for line in methods_page.all_lines(report[2]) if line.is_ours]
    assert len(lines) > 20
    for one, other in itertools.combinations(lines, 2):
        alike = [column for column, cell in one.cells.items() if other.cells.get(column) == cell]
        assert len(alike) < 2, (one.source, other.source)  # to all their decimals; one may be a coincidence


def test_statements_of_before_the_warnings_are_shown_with_them():
    """Office-31 at the paper's δ = 1e-3, with up to 2,817 target records."""
    (path,) = [path for path in store.files() if path.parent.name == "table_1" and path.parent.parent.name == "dp_swd"]
    warned = {}
    for record in store.read(path):
        told = record.statement()
        if told.budget is not None:
            warned[record.provenance["data"]["records"]["target"], told.delta] = bool(told.warnings)
    assert warned
    assert all(found is (delta * target >= 1) for (target, delta), found in warned.items())
    assert warned[2817, 1e-3]
