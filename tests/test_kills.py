"""Killed at a file operation and started again, a run loses and repeats nothing (make kills: at every operation)."""

import json

import forked

from dpot.config import REPOSITORY


def test_killed_at_some_file_operations_and_started_again(tmp_path):
    out, err = tmp_path / "out", tmp_path / "err"
    words = [REPOSITORY / "scripts" / "kill_everywhere.py", "--tasks", "generate,adapt,synthesize", "--points", "3"]
    process = forked.start(words, out, err)
    process.join()
    assert process.exitcode == 0, err.read_text()[-3000:]
    summary = json.loads(out.read_text())
    assert all(found["kills"] == 3 and found["operations"] > 30 for found in summary.values())
