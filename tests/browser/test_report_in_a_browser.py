"""The report in headless Chromium: no errors, no network, tables sort by keyboard, text stands out in the dark."""

import json
import os

import pytest

from dpot.reporting import gather, pages

from .chromium import PROGRAM, Chromium

pytestmark = pytest.mark.browser
CONTRAST = """
(() => {
  const channel = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return text.startsWith("color(srgb")
    ? [...n.slice(0, 3).map((v) => v * 255), n[3] ?? 1] : [...n.slice(0, 3), n[3] ?? 1]; };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const ground = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => [...over(top, below), 1], [255, 255, 255, 1]);
  };
  const light = (c) => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const worst = [];
  for (const element of document.querySelectorAll("p, td, th, a, li, h1, h2, h3, .chip, .lead, code, summary")) {
    if (!element.textContent.trim() || !element.getClientRects().length) continue;
    const a = light(parse(getComputedStyle(element).color)), b = light(ground(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    worst.push([ratio, element.className + " " + element.textContent.trim().slice(0, 40)]);
  }
  return worst.sort((a, b) => a[0] - b[0])[0];
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if PROGRAM is None:
        reason = "needs Chromium (apt-get install chromium)"
        if os.environ.get("DPOT_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    started = Chromium(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("out")
    claims = [
        {"paper": "dp_swd", "name": "Lemma 9", "claim": "Pigs <b>fly</b>.", "verdict": "false", "evidence": "0 of 3"},
        {"paper": "wdp", "name": "P1", "claim": "Symmetry.", "verdict": "holds", "evidence": "0 violations"},
    ]
    (root / "claims").mkdir()
    (root / "claims" / "dp_swd.json").write_text(json.dumps({"claims": claims}))
    folder = root / "report"
    return folder, pages.write(folder, gather.gather(root))


def test_every_page_renders_without_errors_and_without_network(browser, report):
    folder, pages = report
    for page in pages:
        complaints, fetched = browser.open((folder / page).as_uri())
        assert not complaints, f"{page}: {complaints}"
        assert all(address.startswith(("file:", "data:")) for address in fetched), page
        assert browser.run("document.querySelectorAll('main h1').length") == 1, page
        broken = browser.run(
            "Promise.all(Array.from(document.images, async (i) => { i.loading = 'eager'; "
            "try { await i.decode(); return '' } catch { return i.src } })).then((all) => all.filter(Boolean))"
        )
        assert not broken, page
        unnamed = browser.run("Array.from(document.images).filter((i) => !i.alt).length")
        assert unnamed == 0, page


def column(browser, table, number):
    script = f"Array.from(document.querySelector('{table}').tBodies[0].rows, (r) => r.cells[{number}]"
    return browser.run(f"{script}.dataset.sort ?? r.cells[{number}].textContent.trim())")


def test_tables_sort_by_keyboard_both_ways_and_say_so(browser, report):
    folder, _ = report
    browser.open((folder / "dp_swd_table_4.html").as_uri())
    before = [float(v) for v in column(browser, "table.sortable", 2)]
    browser.run("document.querySelectorAll('table.sortable thead button')[2].focus()")
    browser.press("Enter", 13)
    assert [float(v) for v in column(browser, "table.sortable", 2)] == sorted(before) != before
    heading = "document.querySelectorAll('table.sortable thead th')[2].getAttribute('aria-sort')"
    assert browser.run(heading) == "ascending"
    browser.press("Enter", 13)
    assert [float(v) for v in column(browser, "table.sortable", 2)] == sorted(before, reverse=True)
    assert browser.run(heading) == "descending"
    assert "descending" in browser.run("document.getElementById('said').textContent")


def test_missing_values_stay_at_the_end_either_way(browser, report):
    folder, _ = report
    browser.open((folder / "index.html").as_uri())
    for _ in range(2):
        browser.run("document.querySelectorAll('table.glance thead button')[4].click()")
        shares = column(browser, "table.glance", 4)
        known = [v for v in shares if v]
        assert known
        assert shares == known + [""] * (len(shares) - len(known))


def test_the_first_tab_leads_past_the_navigation(browser, report):
    folder, _ = report
    browser.open((folder / "index.html").as_uri())
    browser.press("Tab", 9)
    assert browser.run("document.activeElement.getAttribute('href')") == "#main"


@pytest.mark.parametrize("page", ["index.html", "claims.html", "dp_swd_table_2.html", "paper_field.html"])
def test_text_stands_out_in_light_and_dark(browser, report, page):
    folder, _ = report
    grounds = []
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        browser.open((folder / page).as_uri())
        grounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
        ratio, where = browser.run(CONTRAST)
        assert ratio >= 4.5, f"{scheme} {page}: {where} has a contrast of {ratio:.2f}"
    assert grounds[0] != grounds[1]


def test_what_a_record_says_is_shown_and_never_run(browser, report):
    folder, _ = report
    browser.open((folder / "claims.html").as_uri())
    assert browser.run("document.body.textContent.includes('Pigs <b>fly</b>.')")
