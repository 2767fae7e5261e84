"""Printed settings: profile=paper runs what a paper prints, or its sheet lists every departure with a reason."""

from functools import cache

import pytest
from omegaconf import OmegaConf

from dpot.composing import compose_config
from dpot.privacy import calibration
from dpot.privacy.budget import Budget
from dpot.privacy.events import Adjacency, ProjectionGaussian, StratifiedSampled
from dpot.reporting import published, sheets
from dpot.reporting.remarks import Departure, Place

PRINTED = [
    sheet
    for sheet in sheets.all_sheets()
    if sheet.kind == "table" and sheet.paper in published.papers() and published.settings(sheet.paper, sheet.name)
]
CLASSES = {  # records of each class, as the data sets are published
    "dpot.data.mnist.MNIST": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    "dpot.data.mnist.FashionMNIST": (6000,) * 10,
}


@cache
def composed(overrides):
    return compose_config([*overrides, "profile=paper"])


def sigma(cfg):
    """The noise of a DP-SWD generator: the paper's bound on 784 pixels, each class drawn by itself."""
    sizes, each = CLASSES[cfg.dataset._target_], cfg.loss.batch // 10

    def release(noise):
        mechanism = ProjectionGaussian(784, cfg.loss.projections, noise, 1.0, Adjacency.REPLACE_KEEPING_LABEL)
        return StratifiedSampled(mechanism, (each,) * 10, sizes)

    p = cfg.privacy
    budget = Budget(p.epsilon, p.delta, p.bound, p.conversion, p.mode)
    return calibration.find_sigma(release, cfg.loss.epochs * (60_000 // cfg.loss.batch + 1), budget)


def agrees(cfg, key, value):
    if key == "sigma":
        return sigma(cfg) == pytest.approx(value, rel=0.01)  # the bound that Table 4's σ are held to
    return OmegaConf.select(cfg, key, default="not set") == value


def findings(sheet):
    """(row, column, keys that are not as printed, keys that the sheet says are not) of every cell in print."""
    table = published.table(sheet.paper, sheet.name)
    for run in sheet.runs(seeds=1):
        for column in (c for c in sheet.columns if c.overrides == run.group):
            row, _ = sheet.remarks.published_name(run.row)
            theirs, _ = sheet.remarks.published_name(column.name)
            if row is None or theirs is None or table.cell(row, theirs) is None:
                continue
            wanted = {}
            for entry in published.settings(sheet.paper, sheet.name):
                if entry.place.holds(row, theirs):
                    wanted |= entry.keys
            cfg = composed(run.overrides)
            different = {key for key, value in wanted.items() if not agrees(cfg, key, value)}
            yield run.row, column.name, different, set(sheet.remarks.departures(run.row, column.name))


@pytest.mark.parametrize("sheet", PRINTED, ids=lambda s: f"{s.paper} {s.name}")
def test_a_sheet_lists_every_departure_from_the_printed_settings_and_no_other(sheet):
    wrong = [(row, column, found, listed) for row, column, found, listed in findings(sheet) if found != listed]
    assert wrong == []


def test_every_paper_has_its_settings_on_file():
    assert {sheet.paper for sheet in PRINTED} == {"dp_swd", "dp_sinkhorn", "wdp", "triangle_wad"}


def test_a_departure_that_is_not_listed_is_found():
    """And one that is listed without being one."""
    sheet = sheets.load("dp_swd", 2)
    listed = sheet.remarks.departs
    for departs in (listed[1:], (*listed, Departure(Place(("SWD",)), {"loss.batch": "why not"}))):
        object.__setattr__(sheet.remarks, "departs", departs)
        assert any(found != said for _, _, found, said in findings(sheet))


def test_rows_with_the_printed_settings_depart_in_nothing():
    sheet = sheets.load("dp_swd", 2)
    found = [cell for cell in findings(sheet) if cell[0].endswith("printed settings")]
    assert len(found) == 4 * 4
    assert {frozenset(different) for _, _, different, _ in found} == {frozenset()}
