"""What a synthesis hands out: synthetic records, previews, release, statement and utility report, as files."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dpot.data.base import Dataset
from dpot.data.coding import ImageCoding, TableCoding
from dpot.disk import write_atomically
from dpot.errors import DataError
from dpot.record import numbers
from dpot.reporting.columns import column_picture
from dpot.reporting.figures import grid
from dpot.reporting.markup import plain
from dpot.synthesis import Synthesizer

LONGEST_NAME = 255  # bytes of a folder's name


def write(
    directory: Path,
    synthesizer: Synthesizer,
    data: Dataset,
    written: str,
    count: int,
    metrics: dict[str, Any],
    label: str,
) -> dict[str, str]:
    """Write everything but the statement's pages; the names of the files."""
    import pandas as pd

    records, drawn = synthesizer.draw(count)
    values, labels = synthesizer.coding_.decode(records), synthesizer.named(drawn)
    files = {"synthetic": _write_records(directory, written, values, labels, label)}
    if isinstance(synthesizer.coding_, ImageCoding):
        preview = [records[drawn == label][:10] for label in range(data.classes)]
        shown = torch.cat([torch.full((len(p),), i) for i, p in enumerate(preview)])
        write_atomically(directory / "samples.png", grid(torch.cat(preview).cpu(), shown, data.classes))
        files["samples"] = "samples.png"
    else:
        assert isinstance(synthesizer.coding_, TableCoding)
        write_atomically(directory / "preview.csv", _csv(values[:20], None if labels is None else labels[:20], label))
        write_atomically(directory / "columns.png", column_picture(pd.DataFrame(values), labels))
        files |= {"preview": "preview.csv", "columns": "columns.png"}
    write_atomically(directory / "privacy.json", json.dumps(synthesizer.statement_.to_dict(), indent=1) + "\n")
    synthesizer.save(directory / "release.safetensors")
    files |= {"statement_data": "privacy.json", "release": "release.safetensors"}
    if numbers(metrics):
        write_atomically(directory / "utility.md", _report(metrics, data))
        files["utility"] = "utility.md"
    return files


def _write_records(directory: Path, written: str, values: Any, labels: np.ndarray | None, label: str) -> str:
    if written == "csv":
        write_atomically(directory / "synthetic.csv", _csv(values, labels, label))
        return "synthetic.csv"
    if written == "npz":
        buffer = io.BytesIO()
        if labels is None:
            np.savez_compressed(buffer, x=np.asarray(values))
        else:
            np.savez_compressed(buffer, x=np.asarray(values), y=labels)
        write_atomically(directory / "synthetic.npz", buffer.getvalue())
        return "synthetic.npz"
    _write_folder(directory / "synthetic", values, labels)
    return "synthetic"


def _write_folder(place: Path, images: np.ndarray, labels: np.ndarray | None) -> None:
    """A folder per class, put in the place of an older one as a whole: two runs' images must not be mixed."""
    from PIL import Image

    begun = place.with_name(f".{place.name}.tmp")
    shutil.rmtree(begun, ignore_errors=True)  # of a killed run
    for name in [""] if labels is None else sorted(set(map(_folder_name, labels))):
        (begun / name).mkdir(parents=True)
    for index, image in enumerate(images):
        name = "" if labels is None else _folder_name(labels[index])
        Image.fromarray(image).save(begun / name / f"{index:06d}.png")
    shutil.rmtree(place, ignore_errors=True)
    begun.rename(place)


def _folder_name(label: Any) -> str:
    return str(label).replace("/", "_").lstrip(".") or "_"


def check_names(names: Sequence[str], written: str) -> None:
    """Before anything is spent: classes must be told apart in what is written."""
    taken: dict[str, str] = {}
    for name in names:
        shown = _folder_name(name) if written == "png" else name
        if shown in taken:
            raise DataError(f"the classes {taken[shown]!r} and {name!r} would both be written as {shown!r}: rename one")
        if written == "png" and len(shown.encode()) > LONGEST_NAME:
            raise DataError(f"the class {shown[:30]!r}… is too long a name for a folder: rename it, or task.format=npz")
        taken[shown] = name


def _csv(values: Any, labels: np.ndarray | None, name: str) -> str:
    import pandas as pd

    frame = pd.DataFrame(values)
    if labels is not None:
        frame[name] = labels
    return str(frame.to_csv(index=False))


def _report(metrics: dict[str, Any], data: Dataset) -> str:
    lines = [
        "## Utility report",
        "",
        f"Trained on synthetic records, tested on {len(data.test)} real ones, held out and never learned from.",
        "These scores are computed on private records and carry no noise: they are **not covered by ε**. Show them to",
        "nobody who must not learn about these records, or run with `task.utility=false`.",
        "",
        "| score | value |",
        "|---|---|",
    ]
    for name, value in numbers(metrics).items():
        lines.append(f"| {plain(name)} | {value:.4g} |")
    classes = metrics["classes"]
    lines += ["", f"Released class sizes (within ε; noise deviation {classes['deviation']} records):", ""]
    lines += [f"- {plain(name)}: {count}" for name, count in classes["noisy_counts"].items()]
    return "\n".join(lines + [f"- {plain(remark)}" for remark in classes["remarks"]]) + "\n"
