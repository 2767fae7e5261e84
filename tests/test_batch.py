"""scripts/batch.py: what it runs and what it packs."""

import json
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def batch(script):
    return script("batch")


@pytest.mark.parametrize("checkpoints", [False, True])
def test_state_is_packed_when_asked_for_and_of_checkpoints_the_newest(batch, tmp_path, checkpoints):
    root, target = tmp_path / "runs", tmp_path / "results.tgz"
    plain = ["worker-0.log", "runs/a/record.json", "runs/b/samples.png"]
    older = ["runs/b/checkpoints/step-000000000900.dpot", "statistics/mnist.npz"]
    state = ["runs/b/checkpoints/step-000000001000.dpot", "runs/b/release.safetensors"]
    for name in plain + older + state:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    batch.pack(root, target, checkpoints)
    with tarfile.open(target) as tar:
        assert sorted(tar.getnames()) == sorted(f"runs/{n}" for n in plain + (state if checkpoints else []))
    assert not target.with_suffix(".part").exists()


def test_a_file_that_is_gone_meanwhile_is_passed_over(batch, tmp_path, monkeypatch):
    root = tmp_path / "runs"
    root.mkdir()
    for name in ("a.txt", "b.txt"):
        (root / name).write_text(name)
    add = tarfile.TarFile.add

    def deleting(self, path, *args):
        (root / "b.txt").unlink(missing_ok=True)  # by a worker, after the folder was listed
        add(self, path, *args)

    monkeypatch.setattr(tarfile.TarFile, "add", deleting)
    monkeypatch.setattr("pathlib.Path.is_file", lambda self: True)
    batch.pack(root, tmp_path / "results.tgz", False)
    with tarfile.open(tmp_path / "results.tgz") as tar:
        assert tar.getnames() == ["runs/a.txt"]


def test_a_line_runs_dpot_and_scripts_one_after_the_other(batch, tmp_path):
    """A failing one does not stop those after it; a script gets its own words alone."""
    tool = tmp_path / "tool.py"
    tool.write_text("import json, pathlib, sys\npathlib.Path(sys.argv[1]).write_text(json.dumps(sys.argv[1:]))\n")
    line = f"task=nothing_of_the_kind; {tool} {tmp_path / 'said'} 'two words'"
    worker = batch.Worker(0, line, tmp_path, time.monotonic() + 60, 2)
    worker.run()
    assert json.loads((tmp_path / "said").read_text()) == [str(tmp_path / "said"), "two words"]
    assert worker.done == 1
    assert "nothing_of_the_kind" in worker.log.read_text()
    assert worker.failed == 1


def test_told_to_stop_it_stops_its_workers_and_begins_nothing_else(tmp_path):
    tool, commands = tmp_path / "tool.py", tmp_path / "commands.txt"
    tool.write_text(
        "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\nif len(sys.argv) == 2: time.sleep(60)\n"
    )
    commands.write_text(f"{tool} {tmp_path / 'first'}; {tool} {tmp_path / 'second'} soon\n")
    root = tmp_path / "out"
    script = Path(__file__).resolve().parents[1] / "scripts" / "batch.py"
    call = [
        sys.executable,
        str(script),
        str(commands),
        "--output-root",
        str(root),
        "--pack",
        str(root / "new" / "r.tgz"),
    ]
    process = subprocess.Popen(call)
    while not (tmp_path / "first").exists():
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    time.sleep(0.5)
    assert not (tmp_path / "second").exists()
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tool) not in listed
