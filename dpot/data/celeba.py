"""CelebA: aligned faces with 40 attributes (Liu et al. 2015), resized without crop; the label is one attribute."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from dpot.data.base import Status
from dpot.data.cache import Builder
from dpot.data.files import Layout, Wanted, check_file, printable, refuse
from dpot.data.formats import open_zip, read_plain
from dpot.data.images import decode_into
from dpot.data.source import Facts, FileSource, Known
from dpot.data.splits import hold_out_fraction
from dpot.errors import UsageError
from dpot.ranges import Count

FULL_ZIP_AT_LEAST = 1 << 30  # it weighs 1.4 GB
ZIP_MD5 = "md5:00d2c5bc6d35e252742224ab0c1e8fcb"
MEMBER = re.compile(r"(?:[^/]+/)*(\d{6})\.jpg")
MEMBER_AT_MOST = 1 << 20  # an aligned face takes 3 to 30 kB
MEMBERS_AT_MOST = 500_000  # 202,599 images, each with a shadow under __MACOSX where an Apple computer packed them
ATTRIBUTES_AT_MOST = 64 << 20
SUBSET_HELD_OUT = 0.1


class CelebA(FileSource):
    """uint8 3×size×size faces; label 1 where the attribute holds (the papers use gender, 'Male').

    With all 202,599 images the official partition is used (162,770 train, 19,962 test). With fewer, which
    is never comparable, a tenth is held out by position.
    """

    licence = "non-commercial research"
    source = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
    full = 202_599
    last_train = 162_770  # the official partition goes by image number: train, validation, test
    first_test = 182_638
    zip_checksum = ZIP_MD5
    known: ClassVar[dict[str, Known]] = {
        "img_align_celeba.zip": Known(28_962_932, "5f1f0a3b27d1372a0c151d8e3a174106277557ea55359f19e88f8882430c570d"),
        "list_attr_celeba_first10000.txt.gz": Known(
            105_166, "14c1e3c37c44a99a8996be48ffd8f8cd2370be431272db666db0f26aef5c3c77"
        ),
    }

    def __init__(
        self,
        size: Count = 32,
        attribute: str = "Male",
        limit: Count | None = None,
        limit_test: Count | None = None,
    ) -> None:
        super().__init__(limit, limit_test)
        self.size = size
        self.attribute = attribute
        self.name = f"celeba{size}"

    def options(self) -> dict[str, object]:
        return {"size": self.size, "attribute": self.attribute}

    def layouts(self) -> tuple[Layout, ...]:
        images = Wanted("images", ("celeba/img_align_celeba.zip",))
        named = ("list_attr_celeba.txt", "list_attr_celeba.txt.gz", "list_attr_celeba_first10000.txt.gz")
        return (Layout("full", (images, Wanted("attributes", tuple(f"celeba/{n}" for n in named)))),)

    def advice(self) -> str:
        return f"its licence wants a person to agree: {self.source}"

    def status(self, data_root: str | Path | None = None) -> Status:
        status = super().status(data_root)
        subset = status.present and status.files[0].stat().st_size < FULL_ZIP_AT_LEAST
        return replace(status, note="subset") if subset else status

    def decode(self, layout: Layout, paths: Mapping[str, Path], builder: Builder) -> Facts:
        labels = read_attribute(paths["attributes"], self.attribute)
        with open_zip(paths["images"], MEMBERS_AT_MOST, MEMBERS_AT_MOST * MEMBER_AT_MOST) as archive:
            return self._decode_images(archive, labels, paths, builder)

    def _decode_images(
        self, archive: zipfile.ZipFile, labels: Mapping[int, int], paths: Mapping[str, Path], builder: Builder
    ) -> Facts:
        path = paths["images"]
        members = self._members(archive, path)
        unlabelled = next((n for n in members if n not in labels), None)
        if unlabelled is not None:
            raise refuse(paths["attributes"], f"mislabelled: no attributes for image {unlabelled:06d}.jpg")
        numbers = np.array(sorted(members))
        complete = len(numbers) == self.full
        if complete:
            check_file(path, self.zip_checksum)
            parts = {"train": numbers[numbers <= self.last_train], "test": numbers[numbers >= self.first_test]}
        else:
            train, test = hold_out_fraction(len(numbers), SUBSET_HELD_OUT)
            parts = {"train": numbers[train], "test": numbers[test]}
        for part, chosen in parts.items():
            infos = [members[n] for n in chosen]
            pixels = builder.empty(f"{part}_x", (len(infos), 3, self.size, self.size), np.uint8)
            names = [f"{path}/{n:06d}.jpg" for n in chosen]
            reads = [partial(archive.read, info) for info in infos]
            decode_into(pixels, names, reads, f"decoding {self.name} {part}")
            builder.put(f"{part}_y", np.array([labels[n] for n in chosen], np.int64))
        note = "" if complete else f"a subset: {len(numbers):,} of {self.full:,} images, a tenth held out by position"
        comparable = complete and self.attribute == "Male"
        return Facts(2, "images", note, comparable, (f"not {self.attribute}", self.attribute))

    def _members(self, archive: zipfile.ZipFile, path: Path) -> dict[int, zipfile.ZipInfo]:
        """The images of the archive by number. A member's name is only ever parsed, never used as a path."""
        members: dict[int, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            if info.is_dir() or "__MACOSX" in info.filename:
                continue
            match = MEMBER.fullmatch(info.filename)
            if match is None or info.file_size > MEMBER_AT_MOST or int(match[1]) in members:
                raise refuse(path, f"has an unexpected member '{info.filename[:80]}' of {info.file_size:,} bytes")
            members[int(match[1])] = info
        if len(members) < 2:
            raise refuse(path, "has no images named 000001.jpg, 000002.jpg, ...")
        return members


def read_attribute(path: Path, attribute: str) -> dict[int, int]:
    """Image number → 0 or 1, from the official list: a count, the 40 names, then '000001.jpg -1 1 ...' rows."""
    lines = read_plain(path, ATTRIBUTES_AT_MOST).decode("utf-8", "replace").splitlines()
    if len(lines) < 3:
        raise refuse(path, "truncated: no attributes")
    names = lines[1].split()
    if attribute not in names:
        raise UsageError(f"dataset.attribute={attribute}: choose from {printable(', '.join(names)[:700])}")
    column = 1 + names.index(attribute)
    labels: dict[int, int] = {}
    for i, line in enumerate(lines[2:], 3):
        fields = line.split()
        match = MEMBER.fullmatch(fields[0]) if fields else None
        if match is None or len(fields) != 1 + len(names) or fields[column] not in ("1", "-1"):
            raise refuse(path, f"mislabelled: line {i} is not an image name and {len(names)} values of 1 or -1")
        if int(match[1]) in labels:
            raise refuse(path, f"mislabelled: line {i} names image {match[1]}.jpg for the second time")
        labels[int(match[1])] = int(fields[column] == "1")
    return labels
