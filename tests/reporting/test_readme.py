"""The numbers of README.md and results/README.md: what stands there is what the committed results say."""

import re

import pytest

from dpot.errors import DataError
from dpot.reporting import gather, methods_page, readme, store, verdicts


@pytest.fixture(scope="module")
def gathered():
    return gather.gather(None)


def test_the_blocks_are_up_to_date(gathered):
    text = readme.README.read_text()
    assert text.count(readme.MARK) == len(readme.BLOCKS)
    assert readme.updated(text, gathered) == text, "make readme"
    assert (store.RESULTS / "README.md").read_text() == readme.overview(gathered), "make readme"


def test_every_sheet_on_record_is_in_the_overview_with_a_link(gathered):
    text = readme.overview(gathered)
    for sheet in gathered.sheets:
        if sheet.state != "not run yet":
            (line,) = [line for line in text.splitlines() if line.startswith(f"| {sheet.label} | {sheet.sheet.title} ")]
            (link,) = re.findall(r"\]\((.*)\)", line)
            assert (store.RESULTS / link).is_file(), line


def test_the_small_table_counts_every_judged_cell_once(gathered):
    text = readme.summary(gathered).split("\n\n")[1]
    heads, _, *rows = [line.strip("| ").split(" | ") for line in text.splitlines()]
    assert heads[:5] == ["paper", "reproduced", "within, few runs", "better", "outside"]
    assert len(heads) > 5  # what is counted apart has columns of its own
    counted = [sum(int(row[i]) for row in rows) for i in range(1, len(heads))]
    for i, name in enumerate([*verdicts.JUDGED, *heads[5:]]):
        assert counted[i] == sum(sheet.counts.get(name, 0) for sheet in gathered.sheets)
    assert sum(counted[:4]) == sum(sheet.judged for sheet in gathered.sheets)


def test_a_changed_number_is_noticed_and_put_right(gathered):
    text = readme.README.read_text()
    block = readme.summary(gathered)
    number = next(word for word in block.split() if word.replace(".", "").isdigit() and "." in word)
    wrong = text.replace(block, block.replace(number, "99.9", 1))
    assert wrong != text
    assert readme.updated(wrong, gathered) == readme.updated(text, gathered)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"<!-- nothing: {readme.MARK} -->\n<!-- end of nothing -->", "no block is called nothing"),
        (f"<!-- methods: {readme.MARK} -->\n no end", "not closed"),
    ],
)
def test_unknown_and_open_blocks_are_refused(gathered, text, words):
    with pytest.raises(DataError, match=words):
        readme.updated(text, gathered)


def test_text_outside_the_blocks_is_left_alone(gathered):
    text = f"before\n<!-- methods: {readme.MARK} -->\nold 12.3\n<!-- end of methods -->\nafter 45.6\n"
    found = readme.updated(text, gathered)
    assert found.startswith("before\n")
    assert found.endswith("after 45.6\n")
    assert "old 12.3" not in found


def test_a_run_is_not_listed_again_for_a_picture_of_its_samples(gathered):
    shown = {sheet.key for sheet in gathered.sheets if sheet.sheet.picture == "samples" and any(sheet.runs)}
    assert shown
    assert not shown & {line.href.removesuffix(".html") for line in methods_page.all_lines(gathered)}


def test_points_of_a_curve_are_listed_by_their_method_and_not_in_the_readme(gathered):
    curves = [line for line in methods_page.all_lines(gathered) if line.kind == "figure"]
    assert {line.name for line in curves} >= {"Sketch", "DP-MERF", "DP-SWD-exact"}
    assert len({line.epsilon for line in curves if line.name == "Sketch"}) == 6
    assert "figure" not in readme.methods(gathered)


def test_variants_are_listed_by_the_method_they_vary_and_not_in_the_readme(gathered):
    variants = [line for line in methods_page.all_lines(gathered) if line.kind == "variants"]
    assert {line.name for line in variants} >= {"DP-SWD-exact, rate decays", "SWD, raw pixels"}
    assert "rate decays" not in readme.methods(gathered)


def test_the_table_at_equal_epsilon_says_who_judged_and_shows_both_samplers_and_both_data_sets(gathered):
    lines = methods_page.all_lines(gathered)
    assert lines
    assert all(line.judged_by for line in lines)
    mine = {line.name: line for line in lines if line.is_ours and line.kind == "table"}
    sketch, sliced = mine["Sketch"], mine["DP-SWD-exact"]
    assert (sketch.judged_by, sliced.judged_by) == ("DP-Sinkhorn's, with a larger CNN", "scikit-learn")
    text = readme.summary(gathered)
    heads = text.splitlines()[0]
    assert all(column in heads for column in ("MNIST FID", "Fashion FID", "Fashion CNN", "judged by"))
    for epsilon in (10, 1):
        for sampler in ("accuracy", "FID"):
            assert f"| {epsilon} | DPDM ({sampler} sampler) |" in text


def test_second_readings_of_a_published_row_are_not_listed_among_the_methods(gathered):
    assert not [line.name for line in methods_page.all_lines(gathered) if "printed settings" in line.name]


def test_only_claims_of_the_papers_themselves_are_counted(gathered):
    assert {claim["whose"] for claim in gathered.claims} == {"paper", "another paper", "dpot"}
    rows = [line.strip("| ").split(" | ") for line in readme.checks(gathered).split("\n\n")[0].splitlines()]
    counts = {row[0]: sum(map(int, row[1:4])) for row in rows[2:]}
    assert sum(counts.values()) == sum(claim["whose"] == "paper" for claim in gathered.claims)
    (dp_sinkhorn,) = [row for row in rows if row[0] == "DP-Sinkhorn"]
    assert dp_sinkhorn[4].count("(another paper)") == 2
    (wdp,) = [row for row in rows if row[0] == "WDP"]
    assert "Instead of 11: holds (dpot)" in wdp[4]
