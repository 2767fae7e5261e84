"""Killed at a file operation and started again, a run loses nothing and releases nothing twice (make kills: at every one)."""

import json
import os
import subprocess
import sys

from dpot.config import REPOSITORY


def test_killed_at_some_file_operations_and_started_again():
    """In a process of its own, which has no threads and can be forked."""
    command = [sys.executable, str(REPOSITORY / "scripts" / "kill_everywhere.py"), "--tasks", "generate,adapt"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, "--points", "3"], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    assert all(found["kills"] == 3 and found["operations"] > 30 for found in summary.values())
