"""CelebA: generated archives in the official layout, full and partial."""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dpot.data.celeba import CelebA
from dpot.errors import DataError, UsageError

NAMES = ["Bald", "Male", "Smiling"]


class Small(CelebA):
    """The official partition scaled down: 12 images, 1-8 train, 9-10 validation, 11-12 test."""

    full = 12
    last_train = 8
    first_test = 11


def jpeg(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (17, 21), (value, 255 - value, 100)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def write_images(root: Path, numbers: Iterable[int], prefix: str = "img_align_celeba/") -> Path:
    path = root / "celeba" / "img_align_celeba.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for n in numbers:
            archive.writestr(f"{prefix}{n:06d}.jpg", jpeg(20 * n))
    Small.zip_checksum = "md5:" + hashlib.md5(path.read_bytes()).hexdigest()
    return path


def write_attributes(root: Path, rows: Iterable[str], name: str = "list_attr_celeba.txt") -> None:
    text = "\n".join(["202599", " ".join(NAMES) + " ", *rows]) + "\n"
    path = root / "celeba" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def attribute_row(n: int) -> str:
    return f"{n:06d}.jpg -1 {' 1' if n % 3 == 0 else '-1'}  1"


@pytest.mark.parametrize("name", ["list_attr_celeba.txt", "list_attr_celeba.txt.gz"])
def test_the_full_set_uses_the_official_partition(tmp_path: Path, name: str) -> None:
    write_images(tmp_path, range(1, 13))
    write_attributes(tmp_path, map(attribute_row, range(1, 13)), name)
    data = Small(size=8).load(tmp_path)
    assert (len(data.train), len(data.test), data.shape) == (8, 2, (3, 8, 8))
    assert data.train.y is not None
    assert data.train.y.tolist() == [0, 0, 1, 0, 0, 1, 0, 0]  # Male: every third
    red = data.train.x[:, 0].float().mean((1, 2))
    np.testing.assert_allclose(red, [20 * n for n in range(1, 9)], atol=3)
    assert data.comparable
    assert data.name == "celeba8"
    assert data.class_names == ("not Male", "Male")


def test_a_subset_is_never_comparable(tmp_path: Path) -> None:
    write_images(tmp_path, range(1, 11))
    write_attributes(tmp_path, map(attribute_row, range(1, 11)), "list_attr_celeba_first10000.txt.gz")
    data = Small(size=8).load(tmp_path)
    assert (len(data.train), len(data.test)) == (9, 1)
    assert not data.comparable
    assert "10 of 12 images" in data.note
    assert Small().status(tmp_path).note == "subset"


def test_another_attribute(tmp_path: Path) -> None:
    write_images(tmp_path, range(1, 13))
    write_attributes(tmp_path, map(attribute_row, range(1, 13)))
    data = Small(size=8, attribute="Smiling").load(tmp_path)
    assert data.train.y is not None
    assert data.train.y.tolist() == [1] * 8
    assert not data.comparable
    with pytest.raises(UsageError, match=r"attribute=Beard: choose from Bald, Male, Smiling"):
        Small(size=8, attribute="Beard").load(tmp_path)


def test_member_names_are_not_paths(tmp_path: Path) -> None:
    write_images(tmp_path, range(1, 13), prefix="../../../tmp/")
    write_attributes(tmp_path, map(attribute_row, range(1, 13)))
    assert len(Small(size=8).load(tmp_path).train) == 8
    assert not (tmp_path.parent / "tmp").exists()


def test_the_published_checksum_is_asked_for_when_complete(tmp_path: Path) -> None:
    write_images(tmp_path, range(1, 13))
    write_attributes(tmp_path, map(attribute_row, range(1, 13)))
    Small.zip_checksum = CelebA.zip_checksum
    with pytest.raises(DataError, match=r"img_align_celeba\.zip: corrupt \(md5"):
        Small(size=8).load(tmp_path)


def test_a_flipped_byte_in_an_image(tmp_path: Path, flip: Callable[[Path, int], None]) -> None:
    path = write_images(tmp_path, range(1, 11))
    write_attributes(tmp_path, map(attribute_row, range(1, 11)))
    flip(path, 400)
    with pytest.raises(DataError, match=r"img_align_celeba\.zip.*(CRC|corrupt)"):
        Small(size=8).load(tmp_path)


def test_a_truncated_archive(tmp_path: Path) -> None:
    path = write_images(tmp_path, range(1, 11))
    write_attributes(tmp_path, map(attribute_row, range(1, 11)))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(DataError, match=r"img_align_celeba\.zip: truncated or corrupt"):
        Small(size=8).load(tmp_path)


def test_an_image_that_is_none(tmp_path: Path) -> None:
    path = write_images(tmp_path, range(1, 10))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("img_align_celeba/000010.jpg", b"no image")
    write_attributes(tmp_path, map(attribute_row, range(1, 11)))
    with pytest.raises(DataError, match=r"000010\.jpg: is not a readable"):
        Small(size=8).load(tmp_path)


@pytest.mark.parametrize("member", ["img_align_celeba/readme.txt", "img_align_celeba/000001.jpg", "000099.jpg"])
def test_unexpected_members(tmp_path: Path, member: str) -> None:
    path = write_images(tmp_path, range(1, 11))
    content = bytes(2_000_000) if member == "000099.jpg" else b"x"
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # duplicate names
        archive.writestr(member, content)
    write_attributes(tmp_path, map(attribute_row, range(1, 100)))
    with pytest.raises(DataError, match=r"img_align_celeba\.zip: has an unexpected member"):
        Small(size=8).load(tmp_path)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([attribute_row(n) for n in range(1, 10)], "no attributes for image 000010"),
        (["000001.jpg 1 1"], "line 3"),
        (["000001.jpg 1 0 1"], "line 3"),
        (["../x.png 1 1 1"], "line 3"),
        ([], "truncated"),
    ],
)
def test_mislabelled(tmp_path: Path, rows: list[str], why: str) -> None:
    write_images(tmp_path, range(1, 11))
    write_attributes(tmp_path, rows)
    with pytest.raises(DataError, match=rf"list_attr_celeba\.txt: .*{why}"):
        Small(size=8).load(tmp_path)


def test_checksum_is_that_of_torchvision() -> None:
    import torchvision.datasets

    listed = {name: md5 for _, md5, name in torchvision.datasets.CelebA.file_list}
    assert CelebA.zip_checksum == "md5:" + listed["img_align_celeba.zip"]


def test_real_celeba(real: Callable[[str], Path]) -> None:
    data = CelebA(size=32).load(real("celeba"))
    if data.comparable:
        pytest.skip("the full set is at hand")
    assert (len(data.train), len(data.test), data.shape) == (9000, 1000, (3, 32, 32))
    assert data.train.y is not None
    assert abs(data.train.y.float().mean().item() - 0.417) < 0.02  # 41.7% of all CelebA images are male
    assert "10,000 of 202,599" in data.note
