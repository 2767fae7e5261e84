"""task=reproduce: a table from nothing, resumed after a kill, without doing anything twice."""

import json
import shlex
import time

import forked
import pytest

from dpot import config
from dpot.composing import compose_config
from dpot.errors import UsageError
from dpot.launch import run
from dpot.record import Run
from dpot.reporting import sheets
from dpot.tasks import reproduce
from dpot.tasks.generate import Generate
from dpot.tasks.reproduce import Reproduce

COMMAND = ["task=reproduce", "paper=dp_swd", "table=2", "profile=smoke", "profile.samples=60"]
SHORT = [*COMMAND, "profile.steps=2"]


def test_a_table_comes_out_without_gpu_and_data(dpot):
    done = dpot(*SHORT, "task.rows=[SWD,DP-MERF]", "output=json", check=True)
    cells = json.loads(done.stdout)["cells"]
    made = {(c["row"], c["column"]) for c in cells if c["ours"] is not None}
    assert made == {(row, column) for row in ("SWD", "DP-MERF") for column in ("MNIST MLP", "MNIST LogReg")}
    assert all(c["verdict"] == "not comparable" for c in cells if c["ours"] is not None)
    assert "NOT comparable" in done.stderr
    shown = dpot(*SHORT, "task.rows=[SWD,DP-MERF]", check=True)
    assert "demonstration on digits" in shown.stdout
    assert "87.0" in shown.stdout


def test_killed_and_started_again_it_finishes_without_redoing(dpot, tmp_path):
    rows = "task.rows=[SWD,DP-MERF]"
    process = dpot.start(*COMMAND, rows)
    deadline = time.monotonic() + 120
    while not list(tmp_path.rglob("record.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    forked.kill(process)
    first = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")}
    assert len(first) == 1
    dpot(*COMMAND, rows, check=True)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")}
    assert len(after) == 2
    assert all(after[path] == made for path, made in first.items())


def test_dry_run_prints_the_commands_and_runs_nothing(dpot, tmp_path):
    done = dpot(*COMMAND, "task.dry_run=true", "output=json", check=True)
    runs = json.loads(done.stdout)["runs"]
    assert {r["state"] for r in runs} == {"due"}
    assert any("loss=dp_swd_paper" in r["command"] and "bound=coded" in r["command"] for r in runs)
    assert not list(tmp_path.rglob("record.json"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["paper=dp_swd", "table=99"], "dp_swd table=2"),
        (["paper=nobody", "table=2"], "known:"),
        (["paper=dp_swd", "table=2", "task.rows=[DP-SWG]"], "DP-SWD"),
        ([], "say which table"),
    ],
)
def test_unknown_tables_are_answered_with_those_that_exist(dpot, arguments, words):
    done = dpot("task=reproduce", "profile=smoke", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("dpot: ")]) == 1


def test_paper_profile_never_falls_back_to_a_demonstration(dpot, tmp_path):
    done = dpot("task=reproduce", "paper=dp_swd", "table=2", "profile=paper", f"data_root={tmp_path}")
    assert done.returncode == 1
    assert "not at hand" in done.stderr
    assert not list(tmp_path.rglob("record.json"))


def test_compare_reads_what_reproduce_left(dpot):
    dpot(*SHORT, "task.rows=[SWD]", check=True)
    done = dpot("task=compare", "paper=dp_swd", "table=2", "task.profile=smoke", "output=json", check=True)
    cell = next(c for c in json.loads(done.stdout)["cells"] if c["row"] == "SWD" and c["column"] == "MNIST MLP")
    assert cell["seeds"] == 1
    assert cell["profile"] == "smoke"
    assert cell["published"] == 87


def test_rows_side_by_side_give_one_record_each(dpot, tmp_path):
    done = dpot(*SHORT, "task.rows=[SWD,DP-MERF]", "task.together=2", "output=json", check=True)
    assert not json.loads(done.stdout)["failed"]
    assert len(list(tmp_path.rglob("record.json"))) == 2
    assert len(list(tmp_path.rglob("cell-*.json"))) == 2


def test_what_is_on_record_of_a_batch_that_was_cut_short_belongs_to_its_cell(monkeypatch, tmp_path):
    conclude, done = Generate._conclude, []

    def first_alone(self, *arguments):
        if done:
            raise KeyboardInterrupt
        done.append(conclude(self, *arguments))
        return done[0]

    monkeypatch.setattr(Generate, "_conclude", first_alone)
    overrides = ["task.rows=[SWD,DP-MERF]", "task.together=2", "device=cpu", f"output_root={tmp_path}"]
    with pytest.raises(KeyboardInterrupt):
        run(compose_config([*SHORT, *overrides]))
    (record,) = tmp_path.rglob("record.json")
    (note,) = record.parent.glob("cell-*.json")
    assert json.loads(note.read_text())["row"] == "SWD"


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["task.fail_on=outside"], 1)])
def test_compare_fails_on_request_when_a_cell_is_outside(dpot, arguments, code):
    """VisDA's printed σ does not go with its printed δ."""
    done = dpot("task=compare", "paper=dp_swd", "table=4", "output=json", *arguments)
    assert done.returncode == code
    cells = json.loads(done.stdout)["cells"]
    assert [c["row"] for c in cells if c["verdict"] == "outside"] == ["VisDA", "VisDA 1e-6"]


def test_a_dry_run_prints_lists_as_they_are(dpot):
    rows = ["task=reproduce", "paper=sketch", "table=2", "task.dry_run=true", "device=cpu", "task.rows=[by rule]"]
    shown = dpot(*rows, check=True).stdout
    assert "classifier.kinds=[mlp" in shown  # brackets are no markup


def test_a_dry_run_of_a_computed_table_computes_nothing(dpot, tmp_path):
    done = dpot("task=reproduce", "paper=dp_swd", "table=4", "task.dry_run=true", "output=json", check=True)
    (planned,) = json.loads(done.stdout)["runs"]
    assert planned["command"] == "dpot task=compute paper=dp_swd table=4"
    assert not list(tmp_path.rglob("computed*"))


def test_of_all_sheets_one_that_lacks_something_does_not_stop_the_others(monkeypatch, tmp_path):
    chosen = [sheets.load("dp_swd", 2), sheets.load("dp_swd", 4)]
    monkeypatch.setattr(sheets, "all_sheets", lambda: chosen)
    overrides = ["task=reproduce", "task.all=true", "task.rows=[nobody]", "task.dry_run=true", "device=cpu"]
    answer = run(compose_config([*overrides, f"output_root={tmp_path}"]))
    lacking, computed = answer.data["sheets"]
    assert "no such row" in lacking["error"]
    assert computed["runs"]
    assert answer.exit_code == 1


def test_what_it_will_cost_is_known_from_runs_made_elsewhere(tmp_path):
    overrides = ["task=reproduce", "paper=dp_swd", "table=2", "profile=smoke", "task.dry_run=true", "device=cpu"]
    plan = run(compose_config([*overrides, f"output_root={tmp_path}", f"data_root={tmp_path}"])).data
    assert plan["expected_seconds"] > 0
    assert plan["measured_on"]
    assert plan["measured_profile"] == "paper"  # there are none of this size


@pytest.mark.parametrize("profile", ["smoke", "quick", "short", "paper"])
def test_a_planned_runs_command_is_that_run(tmp_path, profile):
    asked = ["task=reproduce", "paper=dp_swd", "table=2", f"profile={profile}", "profile.records=700", "device=cpu"]
    cfg = compose_config([*asked, f"output_root={tmp_path}"])
    item = Reproduce(rows=["SWD"]).plan(sheets.load("dp_swd", "2", "table"), cfg, demo=False)[0]
    words = shlex.split(item.run.command(*item.profile_words()))[1:]
    alone = compose_config([*words, "device=cpu", f"output_root={tmp_path}"])
    config.check(alone)
    assert Run(alone).directory == item.directory


def test_rows_that_are_one_run_are_trained_once(monkeypatch, tmp_path):
    trained = []
    monkeypatch.setattr(reproduce, "run_together", lambda cfgs, reruns: trained.extend(reruns))
    rows = "task.rows=[DP-Sinkhorn,'DP-Sinkhorn, 480k steps']"
    asked = ["task=reproduce", "paper=dp_sinkhorn", "table=1", "profile=smoke", "device=cpu", "rerun=true", rows]
    run(compose_config([*asked, f"output_root={tmp_path}", "data_root=/nowhere"]))
    assert trained == [True, False]


def test_when_a_batch_fails_each_run_that_was_to_be_made_again_is(monkeypatch, tmp_path):
    tried = []

    def busy(cfgs, reruns):
        tried.append(reruns)
        if len(cfgs) > 1:
            raise RuntimeError("out of memory")
        if len(tried) == 2:
            raise UsageError("another process has it")

    asked = ["task.rows=[SWD,DP-MERF]", "task.together=2", "device=cpu", f"output_root={tmp_path}"]
    run(compose_config([*SHORT, *asked, "data_root=/nowhere"]))
    monkeypatch.setattr(reproduce, "run_together", busy)
    answer = run(compose_config([*SHORT, *asked, "data_root=/nowhere", "rerun=true"]))
    assert tried == [[True, True], [True], [True]]
    assert [(one["row"], one["error"]) for one in answer.data["failed"]] == [("SWD", "another process has it")]
    with pytest.raises(RuntimeError, match="out of memory"):
        run(compose_config([*SHORT, *asked, "data_root=/nowhere", "rerun=true", "debug=true"]))


@pytest.mark.parametrize(("asked", "steps"), [([], 2000), (["profile.steps=7"], 7), (["profile=smoke"], 20)])
def test_a_sheet_sets_the_steps_of_the_quick_profile_and_the_user_has_the_last_word(tmp_path, asked, steps):
    overrides = ["task=reproduce", "paper=dp_sinkhorn", "figure=4a", "profile=quick", "device=cpu", *asked]
    cfg = compose_config([*overrides, f"output_root={tmp_path}"])
    planned = Reproduce().plan(sheets.load("dp_sinkhorn", "4a", "figure"), cfg, demo=True)
    assert {item.cfg.profile.steps for item in planned} == {steps}
    assert [item.run.row for item in planned] == ["Adam 1e-3", "RMSprop 1e-3"]  # those the sheet names for a CPU
    chosen = Reproduce(rows=["SGD 1e-6"]).plan(sheets.load("dp_sinkhorn", "4a", "figure"), cfg, demo=True)
    assert [item.run.row for item in chosen] == ["SGD 1e-6"]


def test_chosen_seeds_are_the_only_ones_run(tmp_path):
    cfg = compose_config(["task=reproduce", "paper=dp_swd", "table=2", "profile=paper", f"output_root={tmp_path}"])
    sheet = sheets.load("dp_swd", "2", "table")
    everything = Reproduce().plan(sheet, cfg, demo=False)
    chosen = Reproduce(seeds=[1, 3]).plan(sheet, cfg, demo=False)
    assert [item.directory for item in chosen] == [item.directory for item in everything if item.run.seed in (1, 3)]
    assert {item.run.seed for item in chosen} == {1, 3}
    with pytest.raises(UsageError, match="seeds"):
        Reproduce(seeds=[99]).plan(sheet, cfg, demo=False)
