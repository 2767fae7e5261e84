"""Trackers: rows in a CSV file, a real offline run directory of wandb."""

import csv
import json

from dpot.trackers import CsvTracker, WandbTracker


def test_csv_keeps_every_row_and_goes_on_after_a_resume(tmp_path):
    for first in (1, 2):
        tracker = CsvTracker()
        tracker.start(tmp_path, {})
        tracker.log(first, {"loss": 0.5, "speed": 2.0})
        tracker.finish({})
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    assert [(r["step"], r["metric"], float(r["value"])) for r in rows] == [
        ("1", "loss", 0.5),
        ("1", "speed", 2.0),
        ("2", "loss", 0.5),
        ("2", "speed", 2.0),
    ]


def test_wandb_offline_leaves_a_run_directory(tmp_path):
    tracker = WandbTracker(mode="offline")
    tracker.start(tmp_path, {"seed": 0})
    tracker.log(1, {"loss": 0.5})
    tracker.finish({"mlp": 80.0})
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_a_run_with_a_tracker_leaves_its_files_beside_the_record(dpot, tmp_path):
    done = dpot(
        *("task=generate", "dataset=digits", "profile=smoke", "privacy=eps10", "classifier.kinds=[logreg]"),
        *("profile.steps=2", "tracker=csv", "output=json"),
        check=True,
    )
    sample = json.loads(done.stdout)["files"]["samples"]
    directory = (tmp_path / sample).parent
    assert (directory / "metrics.csv").read_text().startswith("step,metric,value\n")
