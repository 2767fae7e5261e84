"""Feature files for domain adaptation: an .npz per domain with x (N×d, any float type) and y (N labels)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from dpot.data.cache import Builder
from dpot.data.files import Layout, Wanted, refuse
from dpot.data.formats import check_features, check_labels, read_npz
from dpot.data.source import Facts, FileSource, Known
from dpot.ranges import Count


class _FeatureFile(FileSource):
    """One domain. It has no split of its own: train and test are the same records, as the papers use them."""

    classes: int
    counts: ClassVar[dict[str, int]]  # images of each domain, as published

    def __init__(self, domain: str, limit: Count | None = None, limit_test: Count | None = None) -> None:
        super().__init__(limit, limit_test)
        self.domain = domain

    def decode(self, layout: Layout, paths: Mapping[str, Path], builder: Builder) -> Facts:
        path = paths["features"]
        arrays = read_npz(path, ("x", "y"))
        x = check_features(arrays["x"], path)
        y = check_labels(arrays["y"], len(x), self.classes, path)
        absent = np.setdiff1d(np.arange(self.classes), y)
        if len(absent):
            raise refuse(path, f"mislabelled: no record of class {absent[0]}, {self.classes} classes expected")
        builder.put("train_x", x)
        builder.put("train_y", y)
        complete = len(x) == self.counts[self.domain]
        note = "" if complete else f"{len(x):,} records, {self.counts[self.domain]:,} published"
        return Facts(self.classes, "features", note, comparable=complete)

    def advice(self) -> str:
        return f"2048-d ResNet-50 features: x N×d, y N labels 0..{self.classes - 1}; images from {self.source}"


class Office31(_FeatureFile):
    """Office-31 (Saenko et al. 2010): 31 classes of office objects in three domains, ResNet-50 features."""

    licence = "free for research"
    differs = (
        "Office-31 is taken as ResNet-50 features that are better than the paper's: without any adaptation they are "
        "above every published number on D-W and W-D"
    )
    source = "https://faculty.cc.gatech.edu/~judy/domainadapt/"
    classes = 31
    counts: ClassVar[dict[str, int]] = {"amazon": 2817, "dslr": 498, "webcam": 795}
    known: ClassVar[dict[str, Known]] = {
        "amazon_resnet50.npz": Known(9_259_649, "83daf00b563d934a0a6b5e19a4b2131d3acd992b2cb8e5b799964800078d4984"),
        "dslr_resnet50.npz": Known(1_711_283, "2761f589025a2cd48d9eb5d32dabb16a60fa339807accbfd8991fedc6f9257a1"),
        "webcam_resnet50.npz": Known(2_731_376, "b5c3774a8f4bea18120ccd430b56e3a80c82a266e241037414ca462cc1795458"),
    }

    def __init__(
        self,
        domain: Literal["amazon", "dslr", "webcam"],
        limit: Count | None = None,
        limit_test: Count | None = None,
    ) -> None:
        super().__init__(domain, limit, limit_test)
        self.name = f"office31_{domain}"

    def layouts(self) -> tuple[Layout, ...]:
        return (Layout("full", (Wanted("features", (f"office31/{self.domain}_resnet50.npz",)),)),)


class VisDA(_FeatureFile):
    """VisDA-2017 (Peng et al. 2017): 12 classes, synthetic renderings (train) to photographs (validation)."""

    licence = "free for research"
    source = "https://ai.bu.edu/visda-2017/"
    classes = 12
    counts: ClassVar[dict[str, int]] = {"train": 152_397, "validation": 55_388}

    def __init__(
        self,
        domain: Literal["train", "validation"],
        limit: Count | None = None,
        limit_test: Count | None = None,
    ) -> None:
        super().__init__(domain, limit, limit_test)
        self.name = f"visda_{domain}"

    def layouts(self) -> tuple[Layout, ...]:
        places = (f"visda/{self.domain}.npz", f"visda/{self.domain}_resnet50.npz")
        return (Layout("full", (Wanted("features", places),)),)
