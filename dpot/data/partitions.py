"""Parts of large data sets that can be read anywhere: row groups of Parquet files, CSV files, images of a folder.

    partitions, rows = table_partitions("s3://bucket/people/", ["age", "work"])
    for table in partitions[0].read(): ...          # pyarrow tables

Any filesystem that pyarrow knows (a local path, s3://, gs://, hdfs://). Only names and the footers of Parquet files are
read here; records are read by whoever calls `read`. What is wrong with a file is one line that names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, fs, parquet

from dpot.data.files import digests, first_line, keyed_digest, printable, refuse
from dpot.data.images import IMAGE_AT_MOST
from dpot.errors import DataError

CSV_ENDINGS = (".csv", ".csv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")
IMAGE_ENDINGS = (".png", ".jpg", ".jpeg")
ROWS = 1 << 20  # of one partition of a Parquet file, unless a row group has more
BATCH = 1 << 15  # rows that are decoded at a time
BLOCK = 4 << 20  # bytes of a CSV that are parsed at a time
IMAGES = 512  # of one partition
HASHED = 8 << 30  # bytes of local files that are hashed; of more, or elsewhere, names, sizes and times
THREADS = 16


@dataclass(frozen=True)
class ParquetPart:
    """Some row groups of a Parquet file, of which some columns are read."""

    name: str
    groups: tuple[int, ...]
    columns: tuple[str, ...]

    def read(self) -> Iterator[pa.Table]:
        with _opened(self.name) as file:
            table = parquet.ParquetFile(file, page_checksum_verification=True)
            _check_columns(self.name, table.schema_arrow.names, self.columns)
            if self.groups and max(self.groups) >= table.num_row_groups:
                raise refuse(self.name, "has fewer row groups than when the run began")
            for group in self.groups:
                try:
                    for batch in table.iter_batches(BATCH, row_groups=[group], columns=list(self.columns)):
                        yield pa.Table.from_batches([batch])
                except (pa.ArrowException, OSError, ValueError) as error:
                    raise refuse(self.name, f"row group {group} is damaged ({first_line(error)})") from None


@dataclass(frozen=True)
class CsvPart:
    """A CSV file, of which some columns are read; all cells stay words."""

    name: str
    columns: tuple[str, ...]

    def read(self) -> Iterator[pa.Table]:
        words = dict.fromkeys(self.columns, pa.string())
        with _opened(self.name, stream=True) as file:
            try:
                reader = csv.open_csv(
                    file,
                    read_options=csv.ReadOptions(block_size=BLOCK),
                    parse_options=csv.ParseOptions(newlines_in_values=True),
                    convert_options=csv.ConvertOptions(column_types=words, strings_can_be_null=False),
                )
                _check_columns(self.name, reader.schema.names, self.columns)
                for batch in reader:
                    yield pa.Table.from_batches([batch]).select(list(self.columns))
            except (pa.ArrowException, UnicodeDecodeError) as error:
                raise refuse(self.name, f"is not a readable table ({first_line(error)})") from None


@dataclass(frozen=True)
class ImagesPart:
    """Encoded images, each with the name of its class."""

    name: str
    files: tuple[tuple[str, str], ...]  # where, class

    def read(self) -> Iterator[pa.Table]:
        images, labels = [], []
        for where, label in self.files:
            with _opened(where) as file:
                if file.size() > IMAGE_AT_MOST:
                    raise refuse(where, f"has {file.size():,} bytes, more than the {IMAGE_AT_MOST:,} that are read")
                images.append(file.read())
            labels.append(label)
        yield pa.table({"image": pa.array(images, pa.large_binary()), "label": labels})


def table_partitions(path: str, columns: Sequence[str]) -> tuple[list[Any], int | None]:
    """The parts of a file or of all files of a folder, and how many rows they have where footers say it."""
    wanted = tuple(columns)
    names = [info.path for info in _files(path, (*CSV_ENDINGS, *PARQUET_ENDINGS))]
    tables = [name for name in names if name.lower().endswith(PARQUET_ENDINGS)]
    if tables and len(tables) < len(names):
        raise DataError(f"{printable(path)} holds both CSV and Parquet files: name one kind, or move one away")
    places = [_place(path, name) for name in names]
    if not tables:
        return [CsvPart(place, wanted) for place in places], None
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda place: _groups(place, wanted), places))
    return [part for parts, _ in found for part in parts], sum(rows for _, rows in found)


def image_partitions(path: str) -> tuple[list[ImagesPart], list[str]]:
    """The images of a folder, and its classes: the names of its sub-folders, or none."""
    infos = _files(path, IMAGE_ENDINGS)
    root = fs.FileSystem.from_uri(_uri(path))[1].rstrip("/") + "/"
    inside = [info.path.removeprefix(root) for info in infos]
    labels = [name.partition("/")[0] if "/" in name else "" for name in inside]
    if "" in labels and set(labels) != {""}:
        raise DataError(f"{printable(path)} has images both at its top and in sub-folders: move one kind away")
    files = [(_place(path, info.path), label) for info, label in zip(infos, labels, strict=True)]
    parts = [
        ImagesPart(f"images {at} to {at + len(own) - 1} of {printable(path)}", tuple(own))
        for at, own in ((at, files[at : at + IMAGES]) for at in range(0, len(files), IMAGES))
    ]
    return parts, sorted(set(labels) - {""})


def checksum(path: str, endings: Sequence[str]) -> str:
    """What tells whether the files have changed, and nobody without this cache's key what they are.

    One local table has the checksum that dataset=table gives it, so that both count as the same data set.
    """
    infos = _files(path, endings)
    if "://" not in path and sum(info.size for info in infos) <= HASHED:
        hashes = digests({info.path: Path(info.path) for info in infos})
        lines = [f"table {next(iter(hashes.values()))}"] if Path(path).is_file() else []
        lines = lines or sorted(f"{Path(name).relative_to(Path(path).absolute())} {h}" for name, h in hashes.items())
    else:
        lines = [f"{info.path} {info.size} {info.mtime_ns}" for info in infos]
    return keyed_digest("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))


def _files(path: str, endings: Sequence[str]) -> list[Any]:
    """The files with these endings at this place, by name; hidden ones (and Spark's _SUCCESS) are left out."""
    try:
        system, inside = fs.FileSystem.from_uri(_uri(path))
        info = system.get_file_info(inside)
        if info.type == fs.FileType.NotFound:
            raise DataError(f"{printable(path)} does not exist: set dataset.path to a file or a folder")
        found = [info]
        if info.type == fs.FileType.Directory:
            found = system.get_file_info(fs.FileSelector(inside, recursive=True))
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{printable(path)}: cannot be read ({first_line(error)})") from None
    root = inside.rstrip("/") + "/"
    files = [
        one
        for one in found
        if one.type == fs.FileType.File
        and one.path.lower().endswith(tuple(endings))
        and not any(part.startswith((".", "_")) for part in one.path.removeprefix(root).split("/"))
    ]
    if not files:
        raise DataError(f"{printable(path)} holds no file that ends in {', '.join(endings)}")
    return sorted(files, key=lambda one: one.path)


def _groups(place: str, columns: tuple[str, ...]) -> tuple[list[ParquetPart], int]:
    """The row groups of a file in parts of about a million rows."""
    with _opened(place) as file:
        footer = parquet.read_metadata(file)
    _check_columns(place, footer.schema.to_arrow_schema().names, columns)
    parts: list[list[int]] = [[]]
    rows = 0
    for group in range(footer.num_row_groups):
        own = footer.row_group(group).num_rows
        if parts[-1] and rows + own > ROWS:
            parts.append([])
            rows = 0
        parts[-1].append(group)
        rows += own
    return [ParquetPart(place, tuple(groups), columns) for groups in parts if groups], footer.num_rows


def _check_columns(name: str, there: Sequence[str], wanted: Sequence[str]) -> None:
    absent = next((column for column in wanted if column not in there), None)
    if absent is not None:
        raise DataError(
            f"{printable(name)} has no column '{printable(absent)}'; it has {printable(', '.join(there)[:300])}. All "
            "files of a table must have the columns of its schema"
        )


@contextmanager
def _opened(name: str, stream: bool = False) -> Iterator[Any]:
    """A file of any filesystem; one that has gone, or is no such file, is named."""
    try:
        system, inside = fs.FileSystem.from_uri(_uri(name))
        opened = system.open_input_stream(inside) if stream else system.open_input_file(inside)
        with opened as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{printable(name)} has gone: it was there when the run began; nothing was released") from None
    except (pa.ArrowException, OSError) as error:
        raise refuse(name, f"cannot be read ({first_line(error)})") from None


def _uri(path: str) -> str:
    return path if "://" in path else str(Path(path).expanduser().absolute())


def _place(path: str, inside: str) -> str:
    """A file found below a path, as something that can be opened elsewhere."""
    if "://" not in path:
        return inside
    scheme, _, rest = path.partition("://")
    if scheme in ("hdfs", "viewfs"):  # the path begins after the name node
        return f"{scheme}://{rest.partition('/')[0]}{inside}"
    if scheme == "file":
        return f"file://{inside}"
    options = path.partition("?")[2]
    return f"{scheme}://{inside}{'?' + options if options else ''}"
