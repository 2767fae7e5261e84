"""The command line as its users meet it: one clear line for what is wrong, one JSON document for what is asked."""

import inspect
import json
import os
import re
import subprocess
import sys

import pytest

from dpot import __version__, config, helping, launch
from dpot.composing import compose_config
from dpot.errors import UsageError

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


@pytest.mark.parametrize("words", [["--help"], []])
def test_help_lists_what_can_be_chosen(dpot, tmp_path, words):
    done = dpot(*words, check=True)
    assert "fashion_mnist" in done.stdout
    assert "dpot task=generate" in done.stdout
    assert not (tmp_path / "outputs").exists()  # nothing was run


@pytest.mark.parametrize("task", config.options("task"))
def test_every_option_of_a_task_has_a_line_of_help(task):
    told = helping.answered([f"task={task}", "--help"])
    signature = inspect.signature(config.locate(str(compose_config([f"task={task}"]).task._target_), "task"))
    for name in signature.parameters:
        (line,) = re.findall(rf"^  task\.{name}=(.*)$", told, re.MULTILINE)
        assert re.search(r"\S  +\S", line), f"task.{name} has no comment in conf/task/{task}.yaml"


def test_help_on_other_parts_follows_what_they_are_based_on():
    told = helping.answered(["task=synthesize", "dataset=table", "privacy=eps1", "--help"])
    assert re.search(r"^  dataset\.schema=null  +\S", told, re.MULTILINE)
    assert re.search(r"^  privacy\.epsilon=1\.0  +\S", told, re.MULTILINE)
    assert re.search(r"^  privacy\.delta=1\.0e-5  +\S", told, re.MULTILINE)  # of conf/privacy/base.yaml
    with pytest.raises(UsageError, match="did you mean synthesize"):
        helping.answered(["task=synthesise", "--help"])


def test_the_version_is_that_of_dpot(dpot):
    assert dpot("--version", check=True).stdout == f"dpot {__version__}\n"


def test_tab_completion_works_or_says_how(dpot, monkeypatch):
    assert "complete -o" in dpot("-sc", "install=bash", check=True).stdout
    monkeypatch.setenv("COMP_LINE", "dpot task=synt")
    monkeypatch.setenv("COMP_POINT", "14")
    assert dpot("-sc", "query=bash", check=True).stdout.split() == ["task=synthesize"]
    for words in (["-sc"], ["--install-completion"], ["completion"]):
        assert dpot(*words, check=True).stdout.splitlines() == [helping.COMPLETION]


def test_a_table_that_does_not_exist_is_answered_with_a_list(dpot):
    done = dpot("task=reproduce", "paper=dp_swd", "table=9")
    assert done.returncode == 2
    first, *listed = done.stderr.splitlines()
    assert "no such table" in first
    assert listed[0].startswith("  paper=dp_swd")
    assert len(listed) > 5


def test_names_with_commas_are_quoted():
    assert config.listed(["SWD", "p = 0.2, not clipped"]) == 'SWD, "p = 0.2, not clipped"'
