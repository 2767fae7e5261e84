"""Runs side by side that are killed while they train: each goes on from its checkpoint and counts no release twice."""

import os
import signal
import subprocess
import sys
import time

from dpot import config
from dpot.launch import compose_config
from dpot.tasks.generate import Generate

STEPS = 30
COMMON = ["task=generate", "dataset=digits", "profile=smoke", f"profile.steps={STEPS}", "device=cpu", "privacy=eps10"]
COMMON += ["loss=dp_sinkhorn", "generator=sinkhorn_dcgan", "generator.width=4", "loss.batch=10"]
COMMON += ["classifier.kinds=[logreg]"]
SCRIPT = """
import sys, time
from dpot.methods import work
policy, charge = work.CheckpointPolicy, work.Work.charging
work.CheckpointPolicy = lambda folder, every_seconds: policy(folder, every_seconds=0)
def slowly(self, *arguments):
    before = charge(self, *arguments)
    return lambda count: (time.sleep(0.3), before(count))
work.Work.charging = slowly  # so that there is time to kill it
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
    command = [sys.executable, "-c", SCRIPT, os.path.dirname(__file__), str(tmp_path)]
    process = subprocess.Popen(command, start_new_session=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 120
    while len(list(tmp_path.rglob("step-*.dpot"))) < 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(tmp_path.rglob("record.json"))
    for answer in Generate(fid=False).run_together(configs(tmp_path)):
        training = answer.data["metrics"]["training"]
        assert training["resumed_at"] > 0
        assert training["steps"] == STEPS
        assert answer.data["privacy"]["releases"] == STEPS
        assert answer.data["privacy"]["rigorous"]
    assert not list(tmp_path.rglob("*.dpot"))
