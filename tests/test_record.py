"""Records: written whole or not at all, found again by their configuration, never mistaken for what they are not."""

import json
import os
import subprocess
import time

import forked
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from dpot import __version__
from dpot.disk import write_atomically
from dpot.errors import DataError, UsageError
from dpot.fingerprint import differences, fingerprint
from dpot.record import Record, Run, commit_of_code, name_of_code


def some_config(tmp_path, **changes):
    nodes = {group: {"_target_": f"dpot.{group}s.Thing"} for group in ("task", "dataset", "loss")}
    nodes["task"]["_target_"] = "dpot.tasks.generate.Generate"
    nodes["dataset"]["_target_"] = "dpot.data.digits.Digits"
    nodes["loss"]["_target_"] = "dpot.methods.generate.dp_swd.SWD"
    root = {"seed": 0, "output_root": str(tmp_path), "output": "text", "rerun": False, "device": "cpu"}
    return OmegaConf.create(nodes | root | changes)


def test_a_finished_run_is_found_again(tmp_path):
    cfg = some_config(tmp_path)
    with Run(cfg) as run:
        assert run.finished() is None
        written = run.finish({"mlp": 1.5}, {}, {"name": "digits"})
    with Run(cfg) as again:
        assert again.finished() == written
    assert written.provenance["fingerprint"]["config"] == fingerprint(cfg)
    assert written.provenance["commit"] is None or len(written.provenance["commit"]) == 40


def test_rerun_forgets_the_old_record(tmp_path):
    with Run(some_config(tmp_path)) as run:
        run.finish({}, {}, {})
    with Run(some_config(tmp_path, rerun=True)) as run:
        assert run.finished() is None


def test_two_processes_do_not_work_in_one_directory(tmp_path):
    with Run(some_config(tmp_path)), pytest.raises(UsageError, match="another process"), Run(some_config(tmp_path)):
        pass


def test_a_record_that_names_a_missing_file_is_not_written(tmp_path):
    with pytest.raises(DataError, match=r"samples\.png"):
        Record({}, {}, {}, {}, {"samples": "samples.png"}).save(tmp_path)
    assert not (tmp_path / "record.json").exists()


@given(st.binary(max_size=60))
def test_rubbish_is_refused_by_name(tmp_path_factory, content):
    directory = tmp_path_factory.mktemp("r")
    (directory / "record.json").write_bytes(content)
    with pytest.raises(DataError, match=r"record\.json"):
        Record.load(directory)


def test_a_truncated_record_is_refused(tmp_path):
    Record({}, {"a": 1}, {}, {}).save(tmp_path)
    whole = (tmp_path / "record.json").read_bytes()
    for length in range(len(whole) - 1):
        (tmp_path / "record.json").write_bytes(whole[:length])
        with pytest.raises(DataError):
            Record.load(tmp_path)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_atomically(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_bundle_inside_another_repository_names_its_own_commit(tmp_path, monkeypatch):
    import dpot.record as module

    code = tmp_path / "bundle" / "code"
    code.mkdir(parents=True)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "-C", str(tmp_path), *author, "commit", "-q", "--allow-empty", "-m", "outer"], check=True)
    monkeypatch.setattr(module, "REPOSITORY", code)
    outer, dirty = commit_of_code()
    assert len(outer or "") == 40
    assert dirty is False
    (code / "COMMIT").write_text(f"{'1' * 40} clean\n")
    assert commit_of_code() == ("1" * 40, False)
    (code / "COMMIT").write_text(f"{'1' * 40} dirty\n")
    assert commit_of_code() == ("1" * 40, True)


def test_an_installed_package_names_its_version_not_the_repository_around_it(monkeypatch):
    import dpot.record as module

    monkeypatch.setattr(module, "INSTALLED", True)  # the code of this test lies in a repository
    assert commit_of_code() == (None, None)
    assert name_of_code() == f"dpot {__version__}"


@pytest.mark.parametrize("moment", [0.1, 1.5])
def test_killed_at_any_time_it_leaves_no_result_and_goes_on_afterwards(dpot, tmp_path, moment):
    arguments = ["task=generate", "dataset=digits", "profile=smoke", "privacy=eps10", "classifier.kinds=[logreg]"]
    process = dpot.start(*arguments, "profile.steps=100000")
    time.sleep(moment)
    forked.kill(process)
    assert not list((tmp_path / "outputs").rglob("record.json"))
    done = dpot(*arguments, "profile.steps=3", "output=json", check=True)
    assert json.loads(done.stdout)["metrics"]["training"]["steps"] == 3


def test_git_is_called_as_the_user_would_whatever_the_environment_has_become(tmp_path, monkeypatch):
    """A configuration that could set variables would otherwise run commands through git."""
    bad = tmp_path / "git"
    bad.write_text(f"#!/bin/sh\ntouch {tmp_path}/owned\n")
    bad.chmod(0o755)
    before = commit_of_code()
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, value in {"COUNT": "1", "KEY_0": "core.fsmonitor", "VALUE_0": f"touch {tmp_path}/owned;"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    assert commit_of_code() == before
    assert not (tmp_path / "owned").exists()


def test_a_record_names_no_absolute_path_and_is_found_again(tmp_path, monkeypatch):
    dataset = {"_target_": "dpot.data.folder.Folder", "path": "/home/somebody/patients of 2024"}
    cfg = some_config(tmp_path, dataset=dataset, classifier={"files": ["~/a.csv", "b.csv"]})
    monkeypatch.setattr("sys.argv", ["dpot", "--config-dir", "/home/somebody/s", f"dataset.path={dataset['path']}"])
    with Run(cfg) as run:
        run.finish({}, {}, {})
        text = (run.directory / "record.json").read_text()
    assert "somebody" not in text
    assert "b.csv" in text
    assert "~" not in text
    with Run(cfg) as again:
        assert again.finished() is not None
    assert fingerprint(cfg) == fingerprint(OmegaConf.to_container(cfg))
    moved = some_config(tmp_path, dataset=dataset | {"path": "/home/other/patients of 2024"})
    assert differences(Record.load(run.directory).config, moved) == ["dataset.path"]
