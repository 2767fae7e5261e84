"""task=synthesize on odd input and in odd places: it works, or one line says what to do and nothing is spent twice."""

from __future__ import annotations

import io
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dpot import Synthesizer
from dpot.composing import compose_config
from dpot.errors import DpotError
from dpot.launch import explain, run
from dpot.models import generator
from dpot.privacy.statement import Statement

SMALL = ["task=synthesize", "profile=smoke", "profile.steps=2", "device=cpu", "loss.rounds=1", "generator.width=2"]
SMALL += ["privacy.epsilon=10", "classifier.kinds=[logreg]", "dataset.size=8"]
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "STATISTICS_BATCHES", 3)
    whole = Statement.of
    monkeypatch.setattr(Statement, "of", lambda ledger, noise, _=None: whole(ledger, noise, ["analytic_gaussian"]))


def synthesize(tmp_path: Path, *overrides: str) -> dict[str, Any]:
    return run(compose_config([*SMALL, f"output_root={tmp_path / 'out'}", *overrides])).data


def photos(folder: Path, count: int, *classes: bytes) -> str:
    for index in range(count):
        place = os.path.join(os.fsencode(folder), classes[index % len(classes)])
        os.makedirs(place, exist_ok=True)
        buffer = io.BytesIO()
        Image.fromarray(RNG.integers(0, 256, (8, 8), dtype=np.uint8)).save(buffer, "PNG")
        Path(os.fsdecode(place), f"{index}.png").write_bytes(buffer.getvalue())
    return f"dataset.path={folder}"


def archive(tmp_path: Path, **arrays: np.ndarray) -> str:
    np.savez(tmp_path / "data.npz", **arrays)
    return f"dataset.path={tmp_path / 'data.npz'}"


def images(record: dict[str, Any]) -> list[Path]:
    return sorted(Path(record["files"]["synthetic"]).rglob("*.png"))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Like a disk that is full after so many bytes of one file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_second_run_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    path = photos(tmp_path / "photos", 60, b"a", b"b")
    synthesize(tmp_path, path, "task.count=30")
    begun = next((tmp_path / "out").rglob("record.json")).parent / ".synthetic.tmp" / "a"
    begun.mkdir(parents=True)  # as a killed run leaves it
    (begun / "old.png").touch()
    made = images(synthesize(tmp_path, path, "task.count=30", "rerun=true"))
    assert sorted(place.name for place in made) == [f"{index:06d}.png" for index in range(30)]
    assert not begun.exists()


@pytest.mark.parametrize("name", ["tête à tête".encode(), "猫 =,'x".encode(), b"caf\xe9"])
def test_classes_of_any_name(tmp_path: Path, name: bytes) -> None:
    record = synthesize(tmp_path, photos(tmp_path / "photos", 60, name, b"b"))
    assert {place.parent.name for place in images(record)} == {name.decode("utf-8", "replace"), "b"}
    assert name.decode("utf-8", "replace") in Path(record["files"]["utility"]).read_text()


def test_classes_that_would_share_a_folder_are_refused(tmp_path: Path) -> None:
    two = archive(tmp_path, x=np.zeros((60, 8, 8), np.uint8), y=np.array(["a/b", "a_b"])[np.arange(60) % 2])
    with pytest.raises(DpotError, match="'a/b' and 'a_b' would both be written as 'a_b': rename one"):
        synthesize(tmp_path, two, "task.format=png")
    assert not list((tmp_path / "out").rglob("release-*"))  # nothing was spent
    assert set(np.load(synthesize(tmp_path, two)["files"]["synthetic"])["y"]) <= {"a/b", "a_b"}
    long = archive(tmp_path, x=np.zeros((60, 8, 8), np.uint8), y=np.array(["a" * 300, "b"])[np.arange(60) % 2])
    with pytest.raises(DpotError, match=r"too long a name for a folder: rename it, or task\.format=npz"):
        synthesize(tmp_path, long, "task.format=png")


def test_what_no_generator_can_make_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    with pytest.raises(DpotError, match="images need 4×4 pixels at least"):
        synthesize(tmp_path, photos(tmp_path / "photos", 60, b"a"), "dataset.size=3")
    with pytest.raises(DpotError, match=r"rows of numbers go into a \.csv file, with dataset=table"):
        synthesize(tmp_path, archive(tmp_path, x=RNG.random((60, 5))))
    assert not list((tmp_path / "out").rglob("release-*"))


def test_a_full_disk_costs_no_second_release(tmp_path: Path) -> None:
    path = photos(tmp_path / "photos", 60, b"a", b"b")
    synthesize(tmp_path, path, "seed=1")
    (other,) = (tmp_path / "out").rglob("release-*.safetensors")
    room = other.stat().st_size
    with files_of_at_most(room - 100), pytest.raises(OSError, match="too large") as none:
        synthesize(tmp_path, path)  # not even the release could be kept: it is known to nobody
    assert "no space left" in explain(none.value)
    assert list((tmp_path / "out").rglob("release-*.safetensors*")) == [other]
    with files_of_at_most(room + 100), pytest.raises(OSError, match="too large"):
        synthesize(tmp_path, path)  # the last file, release and generator, does not fit
    (kept,) = (place for place in (tmp_path / "out").rglob("release-*.safetensors*") if place != other)
    before = kept.read_bytes()
    record = synthesize(tmp_path, path)
    assert kept.read_bytes() == before
    assert record["privacy"]["releases"] == 4
    assert "in 2 releases." in record["privacy"]["total"]


@pytest.mark.parametrize("number", ["EROFS", "EACCES", "ENOSPC", "EDQUOT", "EFBIG"])
def test_trouble_with_the_disk_is_one_line_that_helps(number: str) -> None:
    import errno

    code = getattr(errno, number)
    assert "set output_root" in explain(OSError(code, os.strerror(code), "/some/where"))


def test_a_generator_is_read_back_as_it_was_made(tmp_path: Path) -> None:
    record = synthesize(
        tmp_path, photos(tmp_path / "photos", 60, b"a", b"b"), "generator.blocks=2", "generator.subpixel=true"
    )
    loaded = Synthesizer.load(record["files"]["release"], device="cpu")
    assert loaded.generator_.size == {"width": 2, "blocks": 2, "subpixel": True, "smooth": False}
    assert loaded.sample(3)[0].shape == (3, 8, 8)
