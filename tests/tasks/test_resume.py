"""Runs side by side that are stopped: each goes on from its checkpoint, counts no release twice, is judged once."""

import json
import os
import time

import forked
import pytest
import torch

from dpot import config
from dpot.composing import compose_config
from dpot.evaluation.downstream import Downstream, Marks
from dpot.evaluation.stepping import side_by_side
from dpot.record import name_of_code
from dpot.tasks.generate import Generate

STEPS = 30
COMMON = ["task=generate", "dataset=digits", "profile=smoke", f"profile.steps={STEPS}", "device=cpu", "privacy=eps10"]
COMMON += ["loss=dp_sinkhorn", "generator=sinkhorn_dcgan", "generator.width=4", "loss.batch=10"]
COMMON += ["classifier.kinds=[logreg]"]
SCRIPT = """
import sys, time
from dpot.methods import gate, work
policy, charge = work.CheckpointPolicy, gate.Release.charge
work.CheckpointPolicy = lambda folder, every_seconds, code: policy(folder, every_seconds=0, code=code)
def slowly(self, count):
    time.sleep(0.3)  # so that there is time to kill it
    charge(self, count)
gate.Release.charge = slowly
sys.path.insert(0, sys.argv[1])
from test_resume import configs
from dpot.tasks.generate import Generate
Generate(fid=False).run_together(configs(sys.argv[2]))
"""


def configs(root):
    found = [compose_config([*COMMON, f"seed={seed}", f"output_root={root}"]) for seed in (0, 1)]
    for cfg in found:
        config.check(cfg)
    return found


def test_killed_while_training_each_run_goes_on_from_its_checkpoint(tmp_path):
    words = ["-c", SCRIPT, os.path.dirname(__file__), str(tmp_path)]
    process = forked.start(words, tmp_path / "stdout", tmp_path / "stderr")
    deadline = time.monotonic() + 120
    later = "step-*[1-9]*.dpot"  # than the one before the first step
    while len({path.parent for path in tmp_path.rglob(later)}) < 2 and time.monotonic() < deadline:
        assert process.is_alive()
        time.sleep(0.05)
    forked.kill(process)
    assert not list(tmp_path.rglob("record.json"))
    for answer in Generate(fid=False).run_together(configs(tmp_path)):
        training = answer.data["metrics"]["training"]
        assert training["resumed_at"] > 0
        assert training["earlier"] == [{"until": training["resumed_at"], "code": name_of_code()}]
        assert training["steps"] == STEPS
        assert answer.data["privacy"]["releases"] == STEPS
        assert answer.data["privacy"]["rigorous"]
    assert not list(tmp_path.rglob("*.dpot"))


def test_stopped_after_judging_a_run_is_not_judged_again(tmp_path, monkeypatch):
    few = ["loss=dp_merf", "generator=merf_conv", "loss.features=100", "loss.batch=100"]
    cfg = compose_config([*COMMON[:4], *few, "device=cpu", "privacy=eps10", f"output_root={tmp_path}"])
    judged, fit = [], Downstream._fit

    def counted(self, kind, *arguments):
        judged.append(kind)  # when it begins
        return (yield from fit(self, kind, *arguments))

    def stopped(self, one):
        raise KeyboardInterrupt

    monkeypatch.setattr(Downstream, "_fit", counted)
    whole = Generate._frechet
    monkeypatch.setattr(Generate, "_frechet", stopped)
    with pytest.raises(KeyboardInterrupt):
        Generate(fid=False).run(cfg)
    (kept,) = tmp_path.rglob("marks.json")
    first = json.loads(kept.read_text())["marks"]
    assert len(first) == len(judged) == 2
    monkeypatch.setattr(Generate, "_frechet", whole)
    metrics = Generate(fid=False).run(cfg).data["metrics"]
    assert [metrics[kind]["passes"] for kind in ("logreg", "mlp")] == [[mark] for mark in first.values()]
    assert len(judged) == 2
    assert not kept.exists()


@pytest.mark.parametrize("damage", ["nothing", "other weights", "other data", "broken"])
def test_marks_count_for_what_they_were_given_for(tmp_path, damage):
    def exam(mark):
        sat.append(mark)
        yield
        return mark

    sat, path, model = [], tmp_path / "marks.json", torch.nn.BatchNorm2d(3)
    assert side_by_side(Marks(path, model, "data").of(iter([exam(50.0), exam(60.0)])), torch.device("cpu")) == [50, 60]
    if damage == "other weights":
        model(torch.randn(2, 3, 4, 4))  # its running averages
    if damage == "broken":
        path.write_text(path.read_text()[:-3])
    marks = Marks(path, model, "other" if damage == "other data" else "data")
    again = side_by_side(marks.of(iter([exam(70.0), exam(80.0), exam(90.0)])), torch.device("cpu"))
    assert again == ([50, 60, 90] if damage == "nothing" else [70, 80, 90])
    assert sat == ([50, 60, 90] if damage == "nothing" else [50, 60, 70, 80, 90])
