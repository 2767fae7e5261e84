"""MNIST and Fashion-MNIST: four idx files each, from LeCun's and Zalando's own releases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from dpot.data.cache import Builder
from dpot.data.download import Remote
from dpot.data.files import Layout, Wanted, refuse
from dpot.data.formats import check_labels, read_idx
from dpot.data.source import Facts, FileSource


class _IdxImages(FileSource):
    """28×28 grey images in idx files. The content is verified, so that recompressed files are fine."""

    downloadable = True
    torchvision_class: str  # whose mirrors and checksums are used, and whose folder layout is understood
    contents: ClassVar[dict[str, str]]  # SHA-256 of the four decompressed files
    counts: ClassVar[dict[str, int]] = {"train": 60_000, "t10k": 10_000}

    def layouts(self) -> tuple[Layout, ...]:
        folders = (self.name, f"{self.name}/raw", f"{self.torchvision_class}/raw")
        files = tuple(
            Wanted(key, tuple(f"{folder}/{key}{end}" for folder in folders for end in (".gz", "")))
            for key in self.contents
        )
        return (Layout("full", files),)

    def remotes(self) -> dict[str, Remote]:
        import torchvision.datasets  # seconds to import, and only needed here

        known = getattr(torchvision.datasets, self.torchvision_class)
        return {
            file.removesuffix(".gz"): Remote(tuple(m + file for m in known.mirrors), f"md5:{md5}", 64 << 20)
            for file, md5 in known.resources
        }

    def decode(self, layout: Layout, paths: Mapping[str, Path], builder: Builder) -> Facts:
        for part, prefix in (("train", "train"), ("test", "t10k")):
            count = self.counts[prefix]
            images = self._read(f"{prefix}-images-idx3-ubyte", paths, (count, 28, 28))
            labels_key = f"{prefix}-labels-idx1-ubyte"
            labels = self._read(labels_key, paths, (count,))
            builder.put(f"{part}_x", images[:, None])
            builder.put(f"{part}_y", check_labels(labels, count, 10, paths[labels_key]))
        return Facts(10, "images", class_names=self.class_names, contents=dict(self.contents))

    class_names: ClassVar[tuple[str, ...]] = tuple("0123456789")

    def _read(self, key: str, paths: Mapping[str, Path], shape: tuple[int, ...]) -> np.ndarray:
        array, content = read_idx(paths[key], shape)
        if content != self.contents[key]:
            raise refuse(paths[key], f"corrupt (content sha256 {content}, published {self.contents[key]})")
        return array


class MNIST(_IdxImages):
    """The digits of LeCun, Cortes & Burges: 60,000 train and 10,000 test images, uint8 1×28×28."""

    name = "mnist"
    torchvision_class = "MNIST"
    licence = "CC BY-SA 3.0"
    source = "http://yann.lecun.com/exdb/mnist/"
    contents: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    }


class FashionMNIST(_IdxImages):
    """Zalando's articles (Xiao, Rasul & Vollgraf 2017): 60,000 train and 10,000 test images, uint8 1×28×28."""

    name = "fashion_mnist"
    torchvision_class = "FashionMNIST"
    licence = "MIT"
    source = "https://github.com/zalandoresearch/fashion-mnist"
    contents: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    }
    class_names: ClassVar[tuple[str, ...]] = (
        "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
    )  # fmt: skip
