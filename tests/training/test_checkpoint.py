"""Checkpoints: exact continuation, whole or refused, kept when the disk is full, private, deleted at the end."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import random
import signal
import stat
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import forked
import pytest
import safetensors.torch
import torch

sys.path.insert(0, str(Path(__file__).parent))
from toy import Toy, differing

from dpot.errors import TrainingError, UsageError
from dpot.training import CheckpointPolicy
from dpot.training.checkpoint import Checkpoints, decode, encode

PROGRAM = Path(__file__).parent / "toy.py"


def stored(directory: Path) -> list[Path]:
    return sorted(directory.glob("step-*.dpot"))


def interrupted(directory: Path, at: int, code: str | None = None, **options: Any) -> Toy:
    """A toy whose ledger refuses after `at` steps, leaving a checkpoint behind."""
    toy = Toy(checkpoint=CheckpointPolicy(directory, every_seconds=0, code=code), **options)
    toy.ledger.limit = at
    with pytest.raises(PermissionError):
        toy.engine.run()
    return toy


def test_trees_survive_a_round_trip() -> None:
    tree = {
        "a": [1, 2.5, None, True, "x"],
        3: (torch.arange(3), {"nested": torch.tensor(2.0, dtype=torch.float64)}),
        "$tensor": "a key that looks like ours",
        "empty": {},
        "infinite": float("inf"),
    }
    tensors: dict[str, torch.Tensor] = {}
    back = decode(encode(tree, tensors), tensors)
    assert back.keys() == tree.keys()
    assert torch.equal(back[3][0], torch.arange(3))
    assert isinstance(back[3], tuple)
    assert back[3][1]["nested"].dtype == torch.float64
    assert {k: back[k] for k in ("a", "$tensor", "empty", "infinite")} == {
        k: tree[k] for k in ("a", "$tensor", "empty", "infinite")
    }
    with pytest.raises(TypeError, match="set cannot be stored"):
        encode({"a": {1}}, {})


@pytest.mark.parametrize(("at", "averaged"), [(1, 1), (19, 1), (20, 1), (37, 1), (19, 4), (20, 4)])
def test_a_resumed_training_ends_where_an_uninterrupted_one_does(tmp_path: Path, at: int, averaged: int) -> None:
    whole = Toy(averaged=averaged)
    history = whole.engine.run().history
    stopped = interrupted(tmp_path / "c", at, averaged=averaged)
    again = Toy(checkpoint=CheckpointPolicy(tmp_path / "c"), averaged=averaged)
    outcome = again.engine.run()
    assert outcome.resumed_at == stopped.engine.step > 0
    assert differing(again.state(), whole.state()) == []
    assert outcome.history == history
    assert again.ledger.charged == 60


def test_a_training_stopped_before_its_first_checkpoint_makes_the_same_steps_again(tmp_path: Path) -> None:
    """Or its first releases would be made twice, with other noise, and charged once."""
    whole = Toy()
    whole.engine.run()
    Toy(checkpoint=CheckpointPolicy(tmp_path)).engine.prepare()  # what a killed process has written
    again = Toy(checkpoint=CheckpointPolicy(tmp_path))
    for generator in again.generators.values():
        generator.manual_seed(77)  # as the system seeds them: never the same twice
    assert again.engine.run().resumed_at == 0
    assert differing(again.state(), whole.state()) == []
    assert again.ledger.charged == 60


def test_every_code_that_had_a_part_in_a_training_is_named(tmp_path: Path) -> None:
    """Two interruptions, other code each time: up to where the first two trained; the last is that of the record."""
    first, second = interrupted(tmp_path, 10, code="first"), interrupted(tmp_path, 30, code="second")
    outcome = Toy(checkpoint=CheckpointPolicy(tmp_path, code="third")).engine.run()
    ends = {"first": first.engine.step, "second": second.engine.step}
    assert outcome.earlier == [{"until": step, "code": code} for code, step in ends.items()]
    assert 0 < ends["first"] < ends["second"] == outcome.resumed_at
    assert outcome.facts()["earlier"] == outcome.earlier


def test_the_time_before_a_resume_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 0.25)  # a quarter of a second goes by whenever somebody looks
    monkeypatch.setattr("dpot.training.engine.time.monotonic", lambda: next(clock))
    stopped = interrupted(tmp_path / "c", 20)
    before = next(clock)
    again = Toy(checkpoint=CheckpointPolicy(tmp_path / "c"))
    outcome = again.engine.run()
    after = next(clock) - before
    assert stopped.engine.step > 0
    assert after < outcome.seconds < before + after
    assert again.engine.run().seconds == pytest.approx(outcome.seconds, abs=2)  # finished: nothing to do, and kept
    assert outcome.steps_per_second == pytest.approx(60 / outcome.seconds)


def test_a_killed_process_resumes_bit_for_bit(tmp_path: Path) -> None:
    def start(directory: Path, result: Path) -> BaseProcess:
        return forked.start([str(PROGRAM), str(directory), str(result)], tmp_path / "stdout", tmp_path / "stderr")

    whole, resumed = tmp_path / "whole.safetensors", tmp_path / "resumed.safetensors"
    reference = start(tmp_path / "a", whole)
    victim = start(tmp_path / "b", resumed)
    deadline = time.monotonic() + 60
    while not [path for path in stored(tmp_path / "b") if int(path.stem.removeprefix("step-")) > 0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.8))
    forked.kill(victim)
    assert victim.exitcode == -signal.SIGKILL
    assert not resumed.exists()
    for process in (start(tmp_path / "b", resumed), reference):
        process.join(120)
        assert process.exitcode == 0
    one, other = safetensors.torch.load_file(whole), safetensors.torch.load_file(resumed)
    charged, resumed_at = other.pop("ledger").tolist()
    assert one.pop("ledger").tolist() == [400, 0]
    assert charged == 400
    assert 0 < resumed_at < 400
    assert differing(one, other) == []
    assert stored(tmp_path / "b") == []


def damage_by_cutting(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def damage_by_flipping(path: Path) -> None:
    blob = bytearray(path.read_bytes())
    blob[len(blob) // 2] ^= 1
    path.write_bytes(bytes(blob))


def damage_by_replacing(path: Path) -> None:
    path.write_bytes(b"\x80\x04 something pickled, not ours\n")


def damage_by_emptying(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_by_cutting, "truncated"),
        (damage_by_flipping, "corrupt"),
        (damage_by_replacing, "not a checkpoint of this program"),
        (damage_by_emptying, "not a checkpoint of this program"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Any, reason: str
) -> None:
    interrupted(tmp_path, 40)
    older, newest = stored(tmp_path)
    damage(newest)
    again = Toy(checkpoint=CheckpointPolicy(tmp_path, every_seconds=0))
    with caplog.at_level(logging.WARNING):
        outcome = again.engine.run()
    (record,) = caplog.records
    assert str(newest) in record.getMessage()
    assert reason in record.getMessage()
    assert outcome.resumed_at == int(older.stem.removeprefix("step-"))
    whole = Toy()
    whole.engine.run()
    assert differing(again.state(), whole.state()) == []
    assert newest not in stored(tmp_path) or len(stored(tmp_path)) == 2


def test_all_damaged_means_from_the_beginning(tmp_path: Path) -> None:
    interrupted(tmp_path, 40)
    for path in stored(tmp_path):
        damage_by_cutting(path)
    again, whole = Toy(checkpoint=CheckpointPolicy(tmp_path)), Toy()
    assert again.engine.run().resumed_at is None
    whole.engine.run()
    assert differing(again.state(), whole.state()) == []


def test_another_configuration_is_an_error_that_deletes_nothing(tmp_path: Path) -> None:
    interrupted(tmp_path, 40)
    before = stored(tmp_path)
    for resume in (True, False):
        other = Toy(fingerprint="another", checkpoint=CheckpointPolicy(tmp_path, resume=resume))
        with pytest.raises(UsageError, match=r"step-\d+\.dpot was written by another configuration"):
            other.engine.run()
    assert stored(tmp_path) == before


def test_another_device_is_an_error(tmp_path: Path) -> None:
    Checkpoints(CheckpointPolicy(tmp_path), "x", "cuda").save(1, {})
    with pytest.raises(UsageError, match="was written on cuda, and this training runs on cpu"):
        Checkpoints(CheckpointPolicy(tmp_path), "x", "cpu").load()


def test_another_model_under_the_same_fingerprint_is_refused(tmp_path: Path) -> None:
    toy = interrupted(tmp_path, 40)
    path = stored(tmp_path)[-1]
    again = Toy(checkpoint=CheckpointPolicy(tmp_path))
    again.engine._modules["model"] = torch.nn.Linear(2, 2)
    with pytest.raises(TrainingError, match=f"{path} does not fit"):
        again.engine.run()
    assert toy.engine.step > 0


def test_resume_false_begins_anew(tmp_path: Path) -> None:
    interrupted(tmp_path, 40)
    toy = Toy(checkpoint=CheckpointPolicy(tmp_path, resume=False))
    assert toy.engine.run().resumed_at is None
    assert toy.calls == 60


def test_a_finished_training_is_not_trained_again(tmp_path: Path) -> None:
    first = Toy(checkpoint=CheckpointPolicy(tmp_path))
    history = first.engine.run().history
    second = Toy(checkpoint=CheckpointPolicy(tmp_path))
    outcome = second.engine.run()
    assert second.calls == 0
    assert (outcome.steps, outcome.mode, outcome.history) == (60, "none", history)
    assert differing(first.state(), second.state()) == []


def test_a_full_disk_costs_a_warning_and_keeps_the_last_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path, 20)
    kept = stored(tmp_path)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    toy = Toy(checkpoint=CheckpointPolicy(tmp_path, every_seconds=1e9))
    monkeypatch.setattr(os, "fsync", full)
    with caplog.at_level(logging.WARNING):
        outcome = toy.engine.run()
    assert outcome.steps == 60
    assert stored(tmp_path) == kept
    assert list(tmp_path.glob("*.part")) == []
    (record,) = caplog.records
    assert "No space left on device" in record.getMessage()
    assert "training goes on" in record.getMessage()
    assert kept[-1].name in record.getMessage()


def test_checkpoints_are_private_few_and_deleted(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    old = os.umask(0)
    try:
        toy = interrupted(directory, 40)
    finally:
        os.umask(old)
    assert len(stored(directory)) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in stored(directory)} == {0o600}
    (directory / "step-000000000099.part").write_bytes(b"half")
    toy.engine.discard()
    assert not directory.exists()


def test_reading_a_checkpoint_needs_no_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    interrupted(tmp_path, 40)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, None)
    found = Checkpoints(CheckpointPolicy(tmp_path), "toy", "cpu").load()
    assert found is not None
    assert found[1]["step"] > 0


def test_an_unwritable_directory_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="choose another directory"):
        Toy(checkpoint=CheckpointPolicy(tmp_path / "file" / "c"))
