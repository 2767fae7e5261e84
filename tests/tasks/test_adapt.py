"""task=adapt end to end, on small feature files that stand in for Office-31."""

import json
from pathlib import Path

import numpy as np
import pytest

from dpot.composing import compose_config
from dpot.errors import DataError, PrivacyError, UsageError
from dpot.fingerprint import fingerprint
from dpot.launch import run
from dpot.privacy.noise import NoiseSource
from dpot.reporting import sheets, store
from dpot.tasks import adapt, training

METHODS = {
    "source_only": ["loss=source_only", "privacy=none"],
    "target_trained": ["loss=target_trained", "privacy=none"],
    "dann": ["loss=dann", "privacy=none"],
    "swd": ["loss=swd", "privacy=none"],
    "dp_dann": ["loss=dp_dann", "privacy=eps10"],
    "dp_dann_coded": ["loss=dp_dann_coded", "privacy=dp_swd_paper"],
    "dp_swd": ["loss=dp_swd", "privacy=eps10"],
    "dp_swd_paper": ["loss=dp_swd_paper", "privacy=dp_swd_paper"],
    "sketch": ["loss=sketch", "privacy=eps10"],
}
SMALL = ["task=adapt", "dataset=dslr_to_webcam", "profile=smoke", "device=cpu", "loss.batch=16"]


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    """Two domains of 31 classes, far apart from class to class and shifted from domain to domain."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    centres = 6 * rng.standard_normal((31, 20))
    for domain, shift in (("dslr", 0.0), ("webcam", 1.0)):
        y = np.arange(93) % 31
        x = (centres[y] + rng.standard_normal((93, 20)) + shift).astype(np.float32)
        (root / "office31").mkdir(exist_ok=True)
        np.savez(root / "office31" / f"{domain}_resnet50.npz", x=x, y=y)
    return root


def config(office, tmp_path, *overrides):
    return compose_config([*SMALL, f"data_root={office}", f"output_root={tmp_path}", *overrides])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_its_statement_comes_from_its_ledger(office, tmp_path, method):
    record = run(config(office, tmp_path, *METHODS[method])).data
    metrics, privacy = record["metrics"], record["privacy"]
    assert 0 <= metrics["accuracy"] <= 100
    assert 0 <= metrics["balanced_accuracy"] <= 100
    stages = metrics["training"]["stages"]
    assert metrics["training"]["steps"] == sum(stage["steps"] for stage in stages.values()) == 20
    releases = {"source_only": 0, "sketch": 2, "target_trained": 20}
    assert privacy["releases"] == (releases[method] if method in releases else stages["alignment"]["steps"])
    proved = method in ("dp_dann", "dp_swd", "sketch")
    assert privacy["rigorous"] is (proved or method == "source_only")
    if proved:
        assert 9 < privacy["epsilon"] <= 10
    if method == "dp_swd_paper":
        assert any("no noise" in reason for reason in privacy["reasons"])
    assert not list(Path(record["files"]["statement"]).parent.glob("features*"))  # beside the guarantee: no records
    private = Path(record["files"]["picture"]).parent
    assert (private.name, private.stat().st_mode & 0o777) == ("private", 0o700)
    assert "no ε covers" in (private / "README.txt").read_text()
    assert any("private/" in item for item in privacy["not_covered"])
    assert Path(record["files"]["picture"]).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert not list(tmp_path.rglob("*.dpot"))  # no checkpoint remains


def test_a_delta_of_one_over_the_target_is_refused_and_on_request_said_first(office, tmp_path):
    large = [*METHODS["sketch"], "privacy.delta=0.05", "task.picture=none"]
    with pytest.raises(PrivacyError, match=r"delta=0\.05 with \d+ records"):
        run(config(office, tmp_path, *large))
    allowed = config(office, tmp_path, *large, "large_delta=true")
    assert fingerprint(allowed) == fingerprint(config(office, tmp_path, *large))  # a permission is no setting
    privacy = run(allowed).data["privacy"]
    assert "WARNING: δ = 0.05 is not below 1/" in privacy["headline"]


@pytest.mark.parametrize(("kind", "name"), [("table", "1"), ("figure", "3")])
def test_the_sheets_ask_for_the_large_delta_of_the_paper(kind, name):
    runs = sheets.load("dp_swd", name, kind).runs(1, False, False, "paper")
    asked = {"large_delta=true" in run.overrides for run in runs if "privacy.delta=1e-3" in run.overrides}
    assert asked == {True}


def test_a_second_run_reads_the_record_of_the_first(office, tmp_path):
    first = run(config(office, tmp_path, *METHODS["sketch"])).data
    assert run(config(office, tmp_path, *METHODS["sketch"])).data == json.loads(json.dumps(first))


def losses(answer):
    stages = answer.data["metrics"]["training"]["stages"]
    return [[point["loss"] for point in stage["history"]] for stage in stages.values()]


@pytest.mark.parametrize("method", ["dann", "swd", "dp_dann", "dp_swd", "sketch"])
def test_training_does_not_read_the_labels_of_the_target(office, tmp_path, monkeypatch, method):
    monkeypatch.setattr(training, "NoiseSource", lambda device: NoiseSource(5, device))
    other = tmp_path / "other"
    (other / "office31").mkdir(parents=True)
    for domain in ("dslr", "webcam"):
        with np.load(office / "office31" / f"{domain}_resnet50.npz") as file:
            x, y = file["x"], file["y"]
        np.savez(other / "office31" / f"{domain}_resnet50.npz", x=x, y=(y + 7) % 31 if domain == "webcam" else y)
    true = run(config(office, tmp_path / "a", *METHODS[method]))
    false = run(config(other, tmp_path / "b", *METHODS[method]))
    assert losses(true) == losses(false)
    assert true.data["metrics"]["accuracy"] != false.data["metrics"]["accuracy"]  # they are measured with, only


@pytest.mark.parametrize("method", ["dann", "dp_swd"])
def test_seeds_side_by_side_learn_what_each_learns_alone(office, tmp_path, monkeypatch, method):
    monkeypatch.setattr(training, "NoiseSource", lambda device: NoiseSource(5, device))
    seeds = [[*METHODS[method], f"seed={seed}"] for seed in (0, 1)]
    together = adapt.Adapt().run_together([config(office, tmp_path / "together", *o) for o in seeds])
    alone = [adapt.Adapt().run(config(office, tmp_path / "alone", *o)) for o in seeds]
    assert [losses(a) for a in together] == [losses(a) for a in alone]
    assert losses(together[0]) != losses(together[1])
    assert len(list((tmp_path / "together" / "runs").glob("*/record.json"))) == 2


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["loss=dp_merf", "privacy=eps10"], "adapt/dp_swd"),
        (["loss=dp_swd", "privacy=none"], "needs a budget"),
        (["loss=swd", "privacy=eps10"], "privacy=none"),
        (["loss=dp_swd_paper", "privacy=eps10"], "no proof covers"),
        (["loss=swd", "privacy=none", "loss.batch=5000"], "93 records only"),
        (["loss=swd", "privacy=none", "loss.source_epochs=101"], "more than the 100 epochs"),
        (["loss=swd", "privacy=none", "dataset=digits"], "mnist_to_usps"),
    ],
)
def test_what_does_not_fit_together_is_said(office, tmp_path, overrides, words):
    with pytest.raises(UsageError, match=words):
        run(config(office, tmp_path, *overrides))


def test_accuracies_are_those_of_the_closed_form():
    import torch
    from torch import nn

    from dpot.models.adaptation import Network

    class Sure(nn.Module):
        def forward(self, x):
            return torch.nn.functional.one_hot(x[:, 0].long(), 2).float()

    rows, labels = torch.tensor([[0.0], [0.0], [0.0], [1.0]]), torch.tensor([0, 0, 1, 1])
    found = adapt.measure(Network(nn.Identity(), Sure(), 1), rows, labels)
    assert found == {"accuracy": 75.0, "balanced_accuracy": 75.0}
    found = adapt.measure(Network(nn.Identity(), Sure(), 1), rows, torch.tensor([0, 0, 0, 0]))
    assert found == {"accuracy": 75.0, "balanced_accuracy": 75.0}
    found = adapt.measure(Network(nn.Identity(), Sure(), 1), rows, torch.tensor([0, 0, 1, 0]))
    assert found["accuracy"] == 50
    assert found["balanced_accuracy"] == pytest.approx(100 / 3)


def test_a_row_without_its_data_is_left_out_and_said(office, tmp_path, caplog, monkeypatch):
    sheet = ["paper=dp_swd", "table=1", "profile=smoke", "device=cpu", f"data_root={office}", f"output_root={tmp_path}"]
    few = ["task=reproduce", "task.dry_run=true", "task.columns=[SWD]"]
    planned = run(compose_config([*few, "task.rows=[D-W,VisDA]", *sheet])).data["runs"]
    assert {r["row"] for r in planned} == {"D-W"}
    assert "visda/train.npz" in caplog.text
    with pytest.raises(DataError, match=r"visda/train\.npz"):
        run(compose_config([*few, "task.rows=[VisDA]", *sheet]))
    monkeypatch.setattr(store, "RESULTS", tmp_path)  # nothing on record
    cells = run(compose_config(["task=compare", *sheet])).data["cells"]
    assert {c["verdict"] for c in cells if c["row"] == "VisDA"} == {"needs data"}
    assert "needs data" not in {c["verdict"] for c in cells if c["row"] == "D-W"}


def test_some_columns_of_the_sheet_alone(office, tmp_path):
    sheet = ["task=reproduce", "paper=dp_swd", "table=1", "profile=smoke", "device=cpu", f"data_root={office}"]
    sheet += ["task.dry_run=true", "task.rows=[D-W]", f"output_root={tmp_path}"]
    planned = run(compose_config([*sheet, "task.columns=[SWD,DP-SWD sound]"])).data["runs"]
    assert [("loss=swd" in r["command"], "loss=dp_swd " in r["command"]) for r in planned] == [
        (True, False),
        (False, True),
    ]
    with pytest.raises(UsageError, match="did you mean SWD"):
        run(compose_config([*sheet, "task.columns=[SWDD]"]))
