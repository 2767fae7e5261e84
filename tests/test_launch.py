"""The command line as its users meet it: one clear line for what is wrong, one JSON document for what is asked."""

import json
import os
import subprocess
import sys

import pytest

from dpot import launch

SMOKE = [
    "task=generate",
    "dataset=digits",
    "profile=smoke",
    "profile.steps=2",
    "privacy=eps10",
    "classifier.kinds=[logreg]",
]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["privacy.epsilon=-1"], ["privacy.epsilon", "more than 0"]),
        (["privacy.epsilon=ten"], ["privacy.epsilon", "number"]),
        (["privacy.delta=1"], ["privacy.delta", "less than 1"]),
        (["dataset=minst"], ["dataset=minst", "did you mean mnist?"]),
        (["dataset=nothing_like_it"], ["choices:", "fashion_mnist"]),
        (["task=genrate"], ["did you mean generate?"]),
        (["loss.projectoins=3"], ["loss.projectoins", "did you mean projections?"]),
        (["loss.batch=-4"], ["loss.batch", "at least 1"]),
        (["loss.batch=2.5"], ["loss.batch", "whole number"]),
        (["loss.labels=secret"], ["loss.labels", "public, private, joint"]),
        (["sede=3"], ["sede", "did you mean seed?"]),
        (["+sede=3"], ["sede", "did you mean seed?"]),
        (["+loss.batches=3"], ["loss.batches", "did you mean batch?"]),
        (["privacy.delta=null"], ["delta"]),
        (["classifier.samples=0"], ["classifier.samples", "at least 1"]),
        (["seed=-1"], ["seed", "at least 0"]),
        (["output=xml"], ["output", "text, json"]),
        (["seed=1,2"], ["dpot -m"]),
        (["nonsense"], ["key=value"]),
        (["loss=swd"], ["privacy=none"]),
        (["privacy=none"], ["needs a budget"]),
    ],
)
def test_wrong_input_is_refused_in_one_helpful_line(dpot, arguments, words):
    done = dpot("task=generate", "dataset=digits", "profile=smoke", *arguments)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert all(word in lines[0] for word in words), lines[0]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_interrupt_is_one_line(monkeypatch, capsys):
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "_check_command", stopped)
    monkeypatch.setattr("sys.argv", ["dpot", *SMOKE])
    with pytest.raises(SystemExit) as left:
        launch.main()
    assert left.value.code == 130
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_an_output_root_that_is_a_file_is_refused(dpot, tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        for sweep in ([], ["-m", "seed=0,1"]):
            done = dpot(*sweep, *SMOKE, f"output_root={place}")
            assert done.returncode == 2
            assert "cannot write there" in done.stderr
            assert "internal" not in done.stderr


def test_debug_shows_the_traceback(dpot):
    done = dpot("task=generate", "privacy.epsilon=-1", "debug=true")
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_json_is_one_document_and_nothing_else(dpot):
    done = dpot(*SMOKE, "output=json", check=True)
    record = json.loads(done.stdout)
    assert set(record) == {"config", "metrics", "privacy", "provenance", "files"}
    assert record["config"]["dataset"]["_target_"].endswith("Digits")
    assert 0 <= record["metrics"]["logreg"]["mean"] <= 100
    assert record["provenance"]["seed"] == 0


def test_sweep_runs_every_job_and_says_which_failed(dpot):
    done = dpot("-m", *SMOKE, "loss.batch=20,33,30", "output=json")
    assert done.returncode == 2
    jobs = json.loads(done.stdout)["jobs"]
    assert [("error" in job) for job in jobs] == [False, True, False]
    assert "loss.batch=33" in jobs[1]["overrides"]
    assert "multiple of the 10 classes" in jobs[1]["error"]
    assert "1 of 3 jobs failed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_sweep_over_a_launcher(tmp_path, launcher):
    """Their processes are the launchers' own, and so is the one that starts them."""
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher")
    release = ["task=calibrate", "task.mechanism=gaussian", "task.sampler=full", "task.steps=1"]
    words = ["-m", f"hydra/launcher={launcher}", *release, "privacy.epsilon=1,2", "output=json"]
    environment = os.environ | {"DPOT_OUTPUT": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "dpot", *words], env=environment, capture_output=True, check=True)
    weak, strong = (job["answer"]["sigma"] for job in json.loads(done.stdout)["jobs"])
    assert weak > strong > 0


def test_help_lists_what_can_be_chosen(dpot):
    done = dpot("--help", check=True)
    assert "fashion_mnist" in done.stdout
    assert "dpot task=generate" in done.stdout
