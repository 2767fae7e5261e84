"""Records that are read as a stream by an engine, for task=synthesize: what of a configuration asks for it.

Everything that is not in the one local file or folder that fits into memory: another engine than this process, a folder
of table files, a path with ://, or dataset.streamed=true. Nothing is held out of a stream, so there is no utility
report. Tables are read by their schema, so that no cell decides how another one is read.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, open_dict

from dpot import config
from dpot.data.base import Dataset, Kind, Split
from dpot.data.coding import ImageCoding
from dpot.data.decoding import Decoder, ImageDecoder, TableDecoder
from dpot.data.folder import TEST_FOLDERS, Folder
from dpot.data.partitions import (
    CSV_ENDINGS,
    IMAGE_ENDINGS,
    PARQUET_ENDINGS,
    checksum,
    image_partitions,
    table_partitions,
)
from dpot.data.table import Table
from dpot.engines.base import Engine
from dpot.errors import UsageError
from dpot.spread import Spread

log = logging.getLogger("dpot")
MOST_WRITTEN = 100_000  # synthetic records, unless task.count says


@dataclass(frozen=True, eq=False)
class SpreadData(Dataset):
    """A data set whose records are with an engine; its splits are empty."""

    spread: Spread | None = None


def settle(cfg: DictConfig) -> bool:
    """Whether the records are read as a stream; the configuration then says so, which makes it another run."""
    engine, dataset = config.instantiate(cfg.engine, "engine"), cfg.dataset
    path = str(dataset.get("path") or "")
    kind: Any = config.locate(str(dataset._target_), "dataset")
    own = kind in (Table, Folder)
    asked = engine.name != "local" or bool(dataset.get("streamed"))
    if not (asked or (own and ("://" in path or (kind is Table and Path(path).expanduser().is_dir())))):
        return False
    if not own:
        raise UsageError(f"engine={engine.name}: it reads files of your own: dataset=table or dataset=folder")
    for key in ("limit", "limit_test"):
        if dataset.get(key) is not None:
            raise UsageError(f"dataset.{key}: records that are read as a stream are all learned from; leave it out")
    if kind is Table and dataset.get("schema") is None:
        raise UsageError("dataset.schema: a table that is read as a stream needs one (dpot task=schema begins it)")
    if kind is Folder and dataset.channels == "auto":
        raise UsageError("dataset.channels: say grey or colour; of a stream it cannot be seen beforehand")
    with open_dict(cfg):
        cfg.dataset.streamed = True
        if cfg.task.get("utility"):
            log.info("no records are held out of a stream: there is no utility report")
            cfg.task.utility = False
    return True


def load(cfg: DictConfig) -> SpreadData:
    """The data set as a stream: names and numbers of records, nothing of the records themselves."""
    engine: Engine = config.instantiate(cfg.engine, "engine")
    source: Table | Folder = config.instantiate(cfg.dataset, "dataset")
    if not source.path:
        raise UsageError("dataset.path: must be given, a file, a folder, or a place such as s3://bucket/folder")
    kind: Kind = "table" if isinstance(source, Table) else "images"
    taken: tuple[str, ...] = ()
    endings: tuple[str, ...] = IMAGE_ENDINGS
    if isinstance(source, Table):
        assert source.schema is not None
        decode: Decoder = TableDecoder(source.schema)
        parts, rows = table_partitions(source.path, decode.columns)
        endings = (*CSV_ENDINGS, *PARQUET_ENDINGS)
    else:
        parts, names = image_partitions(source.path)
        if "train" in names and set(names) <= {"train", *TEST_FOLDERS}:
            raise UsageError("dataset.path: name the folder train/ itself; nothing is held out of a stream")
        shape = (1 if source.channels == "grey" else 3, source.size, source.size)
        coding = ImageCoding("NHW" if shape[0] == 1 else "NHWC", shape, "uint8", 0.0, 255.0)
        decode = ImageDecoder(coding, tuple(names), "label" if names else None)
        rows = sum(len(part.files) for part in parts)
        taken = ("which classes there are: they were taken from the folders",) if names else ()
    shape = decode.coding.shape
    empty = Split(torch.empty(0, *(shape if kind == "images" else shape[:1])))
    return SpreadData(
        name=source.name,
        train=empty,
        test=empty,
        classes=max(1, len(decode.classes)),
        kind=kind,
        checksum=checksum(source.path, endings),
        licence=source.licence,
        source=source.source,
        note=f"your own {kind}, read as a stream",
        comparable=False,
        class_names=tuple(map(str, decode.classes)),
        columns=tuple(decode.columns) if kind == "table" else (),
        coding=decode.coding.to_dict(),
        taken=taken,
        spread=Spread.of(engine, parts, decode, rows),
    )
