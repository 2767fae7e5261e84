"""The user's own images."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dpot.data.folder import Folder
from dpot.errors import DataError, UsageError


def paint(path: Path, colour: int | tuple[int, int, int] = (10, 20, 30), size: tuple[int, int] = (9, 7)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(path)


def both(folder: Folder) -> tuple[torch.Tensor, torch.Tensor | None]:
    """All records, train before test."""
    data = folder.load()
    y = None
    if data.train.y is not None and data.test.y is not None:
        y = torch.cat([data.train.y, data.test.y])
    return torch.cat([data.train.x, data.test.x]), y


def test_class_folders_of_mixed_sizes(tmp_path: Path) -> None:
    for i in range(10):
        paint(tmp_path / "p" / "dog" / f"{i}.png", (200, 0, 0), (5 + i, 30 - i))
        paint(tmp_path / "p" / "cat" / "more" / f"{i}.JPG", (0, 0, 200), (30, 5 + i))
    data = Folder(str(tmp_path / "p"), size=8, test_fraction=0.2).load()
    assert (len(data.train), len(data.test), data.shape) == (16, 4, (3, 8, 8))
    assert data.class_names == ("cat", "dog")
    assert data.train.y is not None
    red = data.train.x[:, 0].float().mean((1, 2)) > 100
    assert (red == (data.train.y == 1)).all()
    assert not data.comparable
    assert not data.public


def test_flat_folder_has_no_labels(tmp_path: Path) -> None:
    for i in range(6):
        paint(tmp_path / "p" / f"{i}.png", 10 * i)
    data = Folder(str(tmp_path / "p"), size=8).load()
    assert data.train.y is None
    assert data.test.y is None
    assert data.classes == 1
    assert data.shape == (1, 8, 8)
    levels = torch.cat([data.train.x, data.test.x]).float().mean((1, 2, 3))
    assert sorted(levels.tolist()) == [0, 10, 20, 30, 40, 50]


def test_what_the_images_decided_is_told(tmp_path: Path) -> None:
    for i in range(6):
        paint(tmp_path / "p" / "ab"[i % 2] / f"{i}.png", 10 * i)
    told = Folder(str(tmp_path / "p"), size=8).load()
    first, second = told.taken
    assert first.startswith("which classes there are:")
    assert second.startswith("whether there are colours:")
    assert told.uncovered[0].startswith("one record more or less,")
    assert Folder(str(tmp_path / "p"), size=8, channels="grey").load().taken == (first,)


@pytest.mark.parametrize(("channels", "expected"), [("auto", 3), ("grey", 1), ("colour", 3)])
def test_grey_and_colour_together(tmp_path: Path, channels: Any, expected: int) -> None:
    paint(tmp_path / "p" / "a.png", 100)
    paint(tmp_path / "p" / "b.png", (100, 100, 100))
    x, _ = both(Folder(str(tmp_path / "p"), size=4, channels=channels))
    assert x.shape == (2, expected, 4, 4)
    assert (x == 100).all()


def test_own_split(tmp_path: Path) -> None:
    for i in range(4):
        paint(tmp_path / "p" / "train" / "a" / f"{i}.png", 1)
        paint(tmp_path / "p" / "train" / "b" / f"{i}.png", 2)
    paint(tmp_path / "p" / "val" / "b" / "0.png", 9)
    paint(tmp_path / "p" / "test" / "b" / "0.png", 3)
    data = Folder(str(tmp_path / "p"), size=4).load()
    assert (len(data.train), len(data.test)) == (8, 1)
    assert data.test.y is not None
    assert data.test.y.tolist() == [1]
    assert data.test.x.unique().tolist() == [3]
    assert data.class_names == ("a", "b")
    assert "1 other files ignored" in data.note  # the validation image


def test_a_test_class_without_training_images(tmp_path: Path) -> None:
    paint(tmp_path / "p" / "train" / "a" / "0.png")
    paint(tmp_path / "p" / "test" / "z" / "0.png")
    with pytest.raises(DataError, match=r"z/0\.png is of a class that has no training image"):
        Folder(str(tmp_path / "p")).load()


def test_other_and_hidden_files_are_counted(tmp_path: Path) -> None:
    for i in range(3):
        paint(tmp_path / "p" / "a" / f"{i}.png")
    for name in (".hidden.png", "Thumbs.db", "a/readme.txt", "__MACOSX/a/._0.png", ".cache/x.png"):
        place = tmp_path / "p" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"junk")
    data = Folder(str(tmp_path / "p")).load()
    assert len(data.train) + len(data.test) == 3
    assert "5 other files ignored" in data.note


def test_an_unreadable_image_is_refused_by_name(tmp_path: Path) -> None:
    for i in range(3):
        paint(tmp_path / "p" / f"{i}.png", size=(40, 40))
    whole = (tmp_path / "p" / "1.png").read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"text"):
        (tmp_path / "p" / "1.png").write_bytes(broken)
        with pytest.raises(DataError, match=r"p/1\.png: is"):
            Folder(str(tmp_path / "p")).load()


def test_a_changed_image_is_seen(tmp_path: Path) -> None:
    for i in range(3):
        paint(tmp_path / "p" / f"{i}.png", 5)
    folder = Folder(str(tmp_path / "p"), size=4)
    first = folder.load()
    paint(tmp_path / "p" / "1.png", 6)
    second = folder.load()
    assert first.checksum != second.checksum
    assert torch.cat([second.train.x, second.test.x]).unique().tolist() == [5, 6]


def test_replacing_one_image_moves_no_other(tmp_path: Path) -> None:
    for i in range(20):
        paint(tmp_path / "p" / f"{i:02d}.png", 10 * i)
    before = Folder(str(tmp_path / "p"), size=1, test_fraction=0.3).load()
    paint(tmp_path / "p" / "07.png", 255)
    after = Folder(str(tmp_path / "p"), size=1, test_fraction=0.3).load()
    changed = sum((a != b).sum().item() for a, b in ((before.train.x, after.train.x), (before.test.x, after.test.x)))
    assert changed == 1


@pytest.mark.parametrize("limit", [None, 9])
@pytest.mark.parametrize("own_split", [False, True])
def test_moving_one_image_to_another_class_exchanges_one_training_record(
    tmp_path: Path, limit: int | None, own_split: bool
) -> None:
    """An ε for replacing one record, its label included, is about the training records."""
    root = tmp_path / "p"
    train = root / "train" if own_split else root
    for i in range(40):
        paint(train / "ab"[i % 2] / f"{i}.png", 5 * i)
    if own_split:
        for name in "ab":
            paint(root / "test" / name / "0.png", 250)

    def records() -> Counter[tuple[int, int]]:
        data = Folder(str(root), size=1, test_fraction=0.2, limit=limit).load()
        assert data.train.y is not None
        return Counter(zip(data.train.x.flatten().tolist(), data.train.y.tolist(), strict=True))

    before = records()
    for i in (0, 7, 22, 39):
        here, there = (train / name / f"{i}.png" for name in ("ab"[i % 2], "ba"[i % 2]))
        here.rename(there)
        after = records()
        assert after.total() == before.total()
        assert (before - after).total() <= 1
        there.rename(here)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["0.png", "a/1.png"], "both at its top and in sub-folders"),
        (["0.png"], "holds 1 images"),
        ([], "holds 0 images"),
        (["train/0.png", "test/a/1.png"], "both have class sub-folders"),
    ],
)
def test_ambiguous_or_empty_folders(tmp_path: Path, names: list[str], why: str) -> None:
    (tmp_path / "p").mkdir()
    for name in names:
        paint(tmp_path / "p" / name)
    with pytest.raises(DataError, match=why):
        Folder(str(tmp_path / "p")).load()


def test_no_path_and_wrong_paths(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"dataset\.path"):
        Folder().load()
    with pytest.raises(DataError, match="does not exist"):
        Folder(str(tmp_path / "gone")).load()
    (tmp_path / "file.txt").touch()
    with pytest.raises(DataError, match="neither a folder nor"):
        Folder(str(tmp_path / "file.txt")).load()


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for name in (b"\xff.png", b"\xfe.png"):
        place = Path(os.fsdecode(os.fsencode(tmp_path / "p") + b"/" + name))
        paint(tmp_path / "x.png", 7)
        os.replace(tmp_path / "x.png", place)
    assert len(Folder(str(tmp_path / "p")).load().train) == 1
    place.write_bytes(b"no image")
    with pytest.raises(DataError) as caught:
        Folder(str(tmp_path / "p")).load()
    str(caught.value).encode("utf-8")


def test_links_are_followed_at_the_top_only(tmp_path: Path) -> None:
    for i in range(3):
        paint(tmp_path / "elsewhere" / f"{i}.png")
    (tmp_path / "elsewhere" / "loop").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a").symlink_to(tmp_path / "elsewhere")
    data = Folder(str(tmp_path / "p"), follow_links=True).load()
    assert len(data.train) + len(data.test) == 3
    assert data.class_names == ("a",)


def save(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return str(path)


@pytest.mark.parametrize("shape", [(20, 6, 8), (20, 6, 8, 1), (20, 1, 6, 8), (20, 6, 8, 3), (20, 3, 6, 8)])
@pytest.mark.parametrize("floats", [False, True])
def test_npz_layouts(tmp_path: Path, shape: tuple[int, ...], floats: bool) -> None:
    level = 0.5 if floats else 100
    x = np.full(shape, level, np.float64 if floats else np.uint8)
    path = save(tmp_path / "a.npz", x=x, y=np.arange(20) % 4 + 1)
    images, labels = both(Folder(path, size=5))
    assert images.shape == (20, 3 if 3 in shape else 1, 5, 5)
    torch.testing.assert_close(images, torch.full_like(images, level))
    assert labels is not None
    assert sorted(labels.unique().tolist()) == [0, 1, 2, 3]
    assert Folder(path).load().class_names == ("1", "2", "3", "4")


def test_npz_with_its_own_split_in_a_folder(tmp_path: Path) -> None:
    x = np.arange(5 * 16, dtype=np.uint8).reshape(5, 4, 4)
    names = np.array(["b", "a", "b", "a", "b"])
    (tmp_path / "p").mkdir()
    save(tmp_path / "p" / "a.npz", x_train=x, y_train=names, x_test=x[:2], y_test=names[:2])
    data = Folder(str(tmp_path / "p"), size=4).load()
    assert (data.train.x[:, 0].numpy() == x).all()
    assert (data.test.x[:, 0].numpy() == x[:2]).all()
    assert data.train.y is not None
    assert data.train.y.tolist() == [1, 0, 1, 0, 1]


def test_npz_of_features_without_labels(tmp_path: Path) -> None:
    data = Folder(save(tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=(30, 7)))).load()
    assert data.kind == "features"
    assert data.train.y is None
    assert data.shape == (7,)


def test_npz_grey_from_colour(tmp_path: Path) -> None:
    x = np.zeros((2, 4, 4, 3), np.uint8)
    x[..., 1] = 255
    images, _ = both(Folder(save(tmp_path / "a.npz", x=x), size=4, channels="grey"))
    assert images.unique().tolist() == [150]  # 0.587·255


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"images": np.zeros((3, 4, 4), np.uint8)}, "needs x and y"),
        ({"x": np.zeros((3, 4, 4), np.int32)}, "uint8 or floats"),
        ({"x": np.full((3, 4, 4), 255.0)}, "divide by 255"),
        ({"x": np.zeros((3, 3, 3, 3), np.uint8)}, "shape"),
        ({"x": np.zeros((3, 4, 4), np.uint8), "y": np.zeros(2, int)}, "mislabelled"),
        ({"x": np.zeros((3, 4, 4), np.uint8), "y": np.zeros(3)}, "mislabelled"),
        ({"x": np.zeros((1, 4, 4), np.uint8)}, "fewer than 2"),
        ({"x": np.zeros((0, 4, 4), np.uint8)}, "empty"),
        ({"x_train": np.zeros((3, 2)), "x_test": np.zeros((3, 2)), "y_test": np.zeros(3, int)}, "only one"),
        ({"x": np.array([None, None])}, "pickled"),
    ],
)
def test_wrong_npz_is_refused_by_name(tmp_path: Path, arrays: dict[str, np.ndarray], why: str) -> None:
    path = save(tmp_path / "mine.npz", **arrays)
    with pytest.raises(DataError, match=rf"mine\.npz.*{why}"):
        Folder(path).load()


def test_a_table_is_read_as_one(tmp_path: Path, write_csv: Callable[[str], str]) -> None:
    data = Folder(write_csv("a,b,kind\n1,2,x\n3,4,y\n5,6,x\n7,8,y\n"), label="kind").load()
    assert data.kind == "table"
    assert data.columns == ("a", "b")


@pytest.fixture
def write_csv(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        (tmp_path / "t.csv").write_text(text)
        return str(tmp_path / "t.csv")

    return write
