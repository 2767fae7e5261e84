"""Sheets: what a row adds for one data set, what the small profiles add, and figures drawn from records."""

import io
import shlex
from pathlib import Path

import pytest
import torch
from PIL import Image

from dpot import config
from dpot.composing import compose_config
from dpot.errors import DataError
from dpot.privacy.accountants import ACCOUNTANTS, Pricing
from dpot.privacy.events import Adjacency, Gaussian, PoissonSampled, SelfComposed
from dpot.record import Record
from dpot.reporting import pictures, sheets, store
from dpot.reporting.figures import grid

BODY = {
    "paper": "dp_swd",
    "figure": "9",
    "title": "a figure",
    "picture": "curves",
    "axis": "rate",
    "common": ["task=generate", "generator=merf_conv"],
    "seeds": 2,
    "columns": {
        "A": {"overrides": ["dataset=mnist"], "metric": "mlp"},
        "B": {"overrides": ["dataset=fashion_mnist"], "metric": "mlp"},
    },
    "rows": {
        "Adam 0.1": ["loss=dp_merf", {"dataset=fashion_mnist": ["loss.kernel_variance=127"]}],
        "Adam 0.01": ["loss=swd", "generator=sinkhorn_dcgan"],
        "other": "published only",
    },
    "small": ["classifier=merf", {"generator=sinkhorn_dcgan": ["generator.width=8"]}],
}


@pytest.fixture
def sheet():
    return sheets.parse(BODY, Path("sheet.yaml"), "figure")


def overrides(sheet, row, group, **options):
    return next(r.overrides for r in sheet.runs(**options) if r.row == row and r.group == (group,))


def test_a_row_adds_settings_where_its_data_set_is(sheet):
    assert "loss.kernel_variance=127" not in overrides(sheet, "Adam 0.1", "dataset=mnist")
    assert overrides(sheet, "Adam 0.1", "dataset=fashion_mnist")[-1] == "loss.kernel_variance=127"
    assert len(list(sheet.runs())) == 2 * 2 * 2


def test_small_profiles_add_what_fits_the_row(sheet):
    assert overrides(sheet, "Adam 0.1", "dataset=mnist", small=True)[-1] == "classifier=merf"
    wide = overrides(sheet, "Adam 0.01", "dataset=mnist", small=True)
    assert wide[-2:] == ("classifier=merf", "generator.width=8")
    assert "generator.width=8" not in overrides(sheet, "Adam 0.01", "dataset=mnist")


def test_what_is_added_for_one_profile_is_not_added_for_another():
    body = BODY | {"small": [{"profile=quick": ["profile.steps=900"]}]}
    sheet = sheets.parse(body, Path("sheet.yaml"), "figure")
    assert "profile.steps=900" in overrides(sheet, "Adam 0.1", "dataset=mnist", small=True, profile="quick")
    assert "profile.steps=900" not in overrides(sheet, "Adam 0.1", "dataset=mnist", small=True, profile="smoke")


@pytest.mark.parametrize("row", ["nobody", "other"])
def test_rows_for_small_profiles_must_be_rows_that_can_be_run(row):
    assert sheets.parse(BODY | {"small_rows": ["Adam 0.1"]}, Path("s.yaml"), "figure").small_rows == ("Adam 0.1",)
    with pytest.raises(DataError, match=row):
        sheets.parse(BODY | {"small_rows": [row]}, Path("s.yaml"), "figure")


def panels(sheet, folder):
    found = []
    for run in sheet.runs(seeds=1):
        directory = folder / f"{run.row}-{run.group[0]}"
        directory.mkdir()
        (directory / "samples.png").write_bytes(grid(torch.rand(4, 1, 5, 5), torch.tensor([0, 0, 1, 1]), 2, 2))
        provenance = {"data": {"name": run.group[0].partition("=")[2]}}
        metrics = {"mlp": {"mean": 50.0}, "training": {"steps": 300}}
        record = Record({}, metrics, {}, provenance, {"samples": "samples.png"})
        found.append(pictures.Panel(store.home_of(sheet, run.row, run.group, 0), directory, record))
    return found


@pytest.mark.parametrize("kind", ["curves", "samples"])
def test_figures_are_drawn_from_records(sheet, tmp_path, kind):
    object.__setattr__(sheet, "picture", kind)
    drawn = Image.open(io.BytesIO(pictures.draw(sheet, panels(sheet, tmp_path))))
    drawn.load()
    assert drawn.format == "PNG"
    assert len(drawn.getcolors(1 << 24)) > 10  # something is on it


@pytest.mark.parametrize(
    "each",
    [s for s in sheets.all_sheets() if s.paper in ("dp_swd", "dp_sinkhorn") and s.rows],
    ids=lambda s: f"{s.paper} {s.kind} {s.name}",
)
def test_the_last_run_of_a_sheet_composes(each):
    """Its overrides, those for a CPU included, name things that exist. One run a sheet: composing takes a second."""
    run = list(each.runs(seeds=1, small=True, profile="quick"))[-1]
    config.check(compose_config([*run.overrides, "profile=quick"]))


def test_figure_4b_of_dp_sinkhorn_has_the_steps_that_its_printed_budget_tells():
    """ε = 2.33 is what the authors' accountant gives for noise 0.9 after so many steps."""
    runs = sheets.load("dp_sinkhorn", "4b", "figure").runs(None, False, False, "paper")
    (steps,) = {int(o.partition("=")[2]) for run in runs for o in run.overrides if o.startswith("loss.steps=")}
    event = SelfComposed(PoissonSampled(Gaussian(0.9, Adjacency.ADD_REMOVE), 50 / 60_000), steps)
    priced = ACCOUNTANTS["paper_dp_sinkhorn"](event, Pricing(delta=1e-5, bound="exact"))
    assert priced == pytest.approx(2.33, abs=0.005)


def test_every_command_is_split_by_a_shell_as_it_was_joined():
    for sheet in sheets.all_sheets():
        for run in sheet.runs(seeds=1):
            words = shlex.split(run.command("profile=quick", "profile.steps=7"))
            assert words == ["dpot", *run.overrides, "seed=0", "profile=quick", "profile.steps=7"]
