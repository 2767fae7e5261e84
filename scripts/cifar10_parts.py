"""CIFAR-10 as small files: split cifar10_full.npz into parts that are carried one by one, and join them again.

    python scripts/cifar10_parts.py split DATA/cifar10/cifar10_full.npz PARTS     # six images of 17 MB, and the labels
    python scripts/cifar10_parts.py join PARTS DATA/cifar10/cifar10_full.npz

A part has 10,000 images side by side, 100 in a row, without loss. The loader (dpot/data/cifar10.py) checks what was
joined.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

ROW, SIDE = 100, 32
PARTS = 6  # five of training images, one of test images


def split(source: Path, folder: Path) -> None:
    """One picture for every 10,000 images."""
    folder.mkdir(parents=True, exist_ok=True)
    with np.load(source) as arrays:
        images = np.concatenate([arrays["x_train"], arrays["x_test"]])
        np.savez_compressed(folder / "labels.npz", y_train=arrays["y_train"], y_test=arrays["y_test"])
    for number, part in enumerate(np.split(images, PARTS)):
        tiled = part.reshape(ROW, ROW, SIDE, SIDE, 3).transpose(0, 2, 1, 3, 4).reshape(ROW * SIDE, ROW * SIDE, 3)
        Image.fromarray(tiled).save(folder / f"images-{number}.webp", lossless=True, quality=50, method=2)


def join(folder: Path, target: Path) -> None:
    """The inverse."""
    parts = []
    for number in range(PARTS):
        tiled = np.asarray(Image.open(folder / f"images-{number}.webp").convert("RGB"))
        parts.append(tiled.reshape(ROW, SIDE, ROW, SIDE, 3).transpose(0, 2, 1, 3, 4).reshape(-1, SIDE, SIDE, 3))
    target.parent.mkdir(parents=True, exist_ok=True)
    with np.load(folder / "labels.npz") as labels:
        train, test = np.concatenate(parts[:-1]), parts[-1]
        np.savez(target, x_train=train, y_train=labels["y_train"], x_test=test, y_test=labels["y_test"])


def main() -> None:
    """Split or join."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["split", "join"])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    (split if given.what == "split" else join)(given.source, given.target)


if __name__ == "__main__":
    main()
