"""Folders as people have them: other formats, labels in a table, classes that are known beforehand."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dpot.composing import compose_config
from dpot.data.folder import Folder
from dpot.errors import DataError, UsageError
from dpot.launch import run

RNG = np.random.default_rng(0)


def paint(place: Path, value: int, size: int = 8) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((size, size, 3), value, np.uint8)).save(place)


def test_other_formats_are_read_and_what_is_skipped_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    endings = ["png", "bmp", "gif", "tif", "tiff"]
    for i, ending in enumerate(endings):
        paint(tmp_path / "p" / f"{i}.{ending}", 40 * i)
    Image.fromarray(np.full((8, 8, 3), 222, np.uint8)).save(tmp_path / "p" / "9.webp", lossless=True)
    (tmp_path / "p" / "a.heic").write_bytes(b"?")
    (tmp_path / "p" / "b.HEIC").write_bytes(b"?")
    with caplog.at_level(logging.WARNING, logger="dpot.data"):
        data = Folder(str(tmp_path / "p"), size=4, channels="colour").load()
    found = sorted(int(image.unique()) for image in (*data.train.x, *data.test.x))
    assert found == [0, 40, 80, 120, 160, 222]
    assert "skipped: 2 .heic" in caplog.text
    (tmp_path / "p" / "c.gif").write_bytes(b"GIF89a")
    with pytest.raises(DataError, match=r"c\.gif.*readable"):
        Folder(str(tmp_path / "p"), size=4).load()


def test_a_flat_folder_with_a_table_of_labels(tmp_path: Path) -> None:
    for i in range(20):
        paint(tmp_path / "p" / f"{i}.png", 10 * i)
    lines = "".join(f"{i}.png,{('dog', 'cat')[i % 2]}\n" for i in range(20))
    (tmp_path / "l.csv").write_text(f"file,label\n{lines}")
    data = Folder(str(tmp_path / "p"), size=4, channels="colour", labels=str(tmp_path / "l.csv")).load()
    assert data.class_names == ("cat", "dog")
    assert data.train.y is not None
    for image, label in zip(data.train.x, data.train.y.tolist(), strict=True):
        assert (int(image[0, 0, 0]) // 10) % 2 == (label == 0)
    before = data.checksum
    (tmp_path / "l.csv").write_text(f"name,what,who\n{lines.replace('dog', 'cow').replace(chr(10), ',x' + chr(10))}")
    data = Folder(str(tmp_path / "p"), size=4, channels="colour", labels=str(tmp_path / "l.csv")).load()
    assert data.class_names == ("cat", "cow")
    assert data.checksum != before
    (tmp_path / "l.csv").write_text("file,label\n1.png,a\n2.png,b\n")
    with pytest.raises(DataError, match=r"no label for 18 of 20 images"):
        Folder(str(tmp_path / "p"), labels=str(tmp_path / "l.csv")).load()
    paint(tmp_path / "q" / "a" / "0.png", 1)
    paint(tmp_path / "q" / "a" / "1.png", 1)
    with pytest.raises(UsageError, match="flat folder"):
        Folder(str(tmp_path / "q"), labels=str(tmp_path / "l.csv")).load()


def test_with_public_classes_the_statement_is_unconditional(tmp_path: Path) -> None:
    for i in range(60):
        image = RNG.integers(0, 256, (8, 8), dtype=np.uint8)
        place = tmp_path / "p" / ("cat" if i % 2 else "dog") / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place)
    own = ["task=synthesize", "profile=smoke", "profile.steps=2", "device=cpu", "loss.rounds=1", "generator.width=4"]
    own += [f"dataset.path={tmp_path / 'p'}", "dataset.size=8", "dataset.channels=grey", "privacy.epsilon=30"]
    own += ["task.utility=false", f"output_root={tmp_path / 'out'}"]
    record = run(compose_config([*own, "dataset.classes=[dog,cat,bird]"])).data
    assert record["privacy"]["verdict"] == "yes"
    assert list(record["metrics"]["classes"]["noisy_counts"]) == ["dog", "cat", "bird"]
    with pytest.raises(DataError, match="'cat' is not among"):
        Folder(str(tmp_path / "p"), classes=["dog", "bird"]).load()


def test_public_classes_of_an_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((20, 8, 8), np.uint8), y=np.arange(20) % 2 * 3)
    data = Folder(str(tmp_path / "x.npz"), size=8, classes=[3, 7, 0], channels="grey").load()
    assert data.class_names == ("3", "7", "0")
    assert data.train.y is not None
    assert set(data.train.y.tolist()) == {0, 2}
    assert data.taken == ()
