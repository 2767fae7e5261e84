"""Files that somebody made to do harm: to hang, to fill the memory, to count a record twice, to lose its label."""

from __future__ import annotations

import gzip
import io
import os
import re
import signal
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

import dpot.data
from dpot.data.cache import Builder, cached
from dpot.data.celeba import CelebA, read_attribute
from dpot.data.files import EXPANSION_AT_MOST, UNPACKED_FREELY, digests, hash_file
from dpot.data.folder import Folder
from dpot.data.formats import open_zip, read_npz, read_plain
from dpot.data.images import decode_image
from dpot.data.table import Table, read_table
from dpot.errors import DataError, UsageError
from dpot.fingerprint import fingerprint
from dpot.launch import compose_config

LOADERS = Path(dpot.data.__file__).parent


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """What hangs is stopped, and the test fails."""

    def give_up(*_: object) -> None:
        raise AssertionError("no end within 60 s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of three images."""
    for i in range(6):
        path = tmp_path / "photos" / ("cat", "dog")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 7), (40 * i, 0, 0)).save(path)
    return tmp_path / "photos"


def refused(load: Callable[[], object], match: str) -> None:
    """It is refused, in one line."""
    with pytest.raises((DataError, UsageError), match=match) as caught:
        load()
    assert "\n" not in str(caught.value)


# --- only regular files are opened


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as f:
        f.truncate(1 << 40)


@pytest.mark.parametrize("make", [pipe, endless, sparse])
@pytest.mark.parametrize("name", ["cat/1.png", "cat/more/1.JPG"])
def test_no_image_hangs(photos: Path, name: str, make: Callable[[Path], None]) -> None:
    (photos / name).parent.mkdir(exist_ok=True)
    make(photos / name)
    refused(Folder(str(photos)).load, r"1\.(png|JPG)")


@pytest.mark.parametrize("make", [pipe, endless])
def test_a_flat_folder_does_not_lose_what_is_no_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    for i in range(3):
        Image.new("L", (4, 4)).save(tmp_path / f"{i}.png")
    make(tmp_path / "3.png")
    refused(Folder(str(tmp_path)).load, r"3\.png is not a regular file")


@pytest.mark.parametrize("make", [pipe, endless, sparse])
@pytest.mark.parametrize("name", ["a.npz", "a.csv", "a.csv.gz", "a.parquet", "p/a.npz"])
def test_no_archive_or_table_hangs(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    make(place)
    refused(Folder(str(place.parent if name.startswith("p/") else place)).load, r"a\.(npz|csv|parquet)")


@pytest.mark.parametrize("make", [pipe, endless])
@pytest.mark.parametrize("read", [hash_file, lambda path: read_plain(path, 10), lambda path: read_npz(path, ("x",))])
def test_readers_look_at_what_they_opened(tmp_path: Path, read: Any, make: Callable[[Path], None]) -> None:
    make(tmp_path / "a")
    refused(lambda: read(tmp_path / "a"), "a is not a regular file")


def test_a_link_to_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,label\n1,x\n2,y\n3,x\n4,y\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "t.csv")
    assert Table(str(tmp_path / "link.csv")).load().columns == ("a",)


def test_sources_are_opened_in_one_place() -> None:
    by_name = re.compile(r"\.read_bytes\b|\.open\(\"r|gzip\.open\(|bz2\.open\(path|ZipFile\(path|tarfile\.open\(path")
    for path in LOADERS.glob("*.py"):
        if path.name != "cache.py":  # which opens what it wrote itself
            assert not by_name.search(path.read_text()), path


# --- one file is one record


@pytest.mark.parametrize("target", [".", "cat", "cat/0.png"])
def test_a_link_does_not_make_two_records_of_one(photos: Path, target: str) -> None:
    place = photos / ("dog/9.png" if target.endswith("png") else "self")
    place.symlink_to(photos / target)
    refused(Folder(str(photos)).load, r"cat/\d\.png.* are one file")


def test_a_hard_link_does_not_either(photos: Path) -> None:
    (photos / "dog" / "again.png").hardlink_to(photos / "cat" / "0.png")
    refused(Folder(str(photos), follow_links=True).load, r"again\.png and .*0\.png are one file")


def test_no_training_image_is_a_test_image(photos: Path) -> None:
    (photos / "cat").rename(photos / "train")
    (photos / "dog").rename(photos / "test")
    (photos / "test" / "9.png").symlink_to(photos / "train" / "0.png")
    refused(Folder(str(photos)).load, "are one file")


def test_links_that_lead_out_need_a_switch(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (9, 7)).save(tmp_path / "elsewhere" / "7.png")
    (photos / "bird").symlink_to(tmp_path / "elsewhere")
    refused(Folder(str(photos)).load, r"bird is a link that leads out of the folder.*follow_links=true")
    assert Folder(str(photos), follow_links=True).load().class_names == ("bird", "cat", "dog")
    (photos / "bird").unlink()
    (photos / "cat" / "8.png").symlink_to(tmp_path / "elsewhere" / "7.png")
    refused(Folder(str(photos)).load, r"cat/8\.png is a link that leads out of the folder")
    data = Folder(str(photos), follow_links=True).load()
    assert len(data.train) + len(data.test) == 7


def test_a_link_from_a_hidden_store_within_the_folder_is_one_record(photos: Path) -> None:
    (photos / ".store").mkdir()
    (photos / "cat" / "0.png").rename(photos / ".store" / "0")
    (photos / "cat" / "0.png").symlink_to("../.store/0")
    data = Folder(str(photos)).load()
    assert len(data.train) + len(data.test) == 6


def test_a_link_to_another_disk_is_not_looked_through(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (photos / "everything").symlink_to("/")
    (photos / ".hidden").symlink_to("/")
    walked: list[str] = []
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda top: walked.append(str(top)) or walk(top))
    refused(Folder(str(photos)).load, "everything is a link that leads out")
    assert not {str(photos / "everything"), str(photos / ".hidden")} & set(walked)


def test_a_link_that_leads_to_itself(photos: Path) -> None:
    (photos / "round.png").symlink_to(photos / "round.png")
    (photos / "round").symlink_to(photos / "round")  # no image: ignored
    refused(Folder(str(photos)).load, "both at its top and in sub-folders")
    (photos / "round.png").rename(photos / "cat" / "round.png")
    refused(Folder(str(photos)).load, r"round\.png cannot be read")


def test_the_switch_renames_no_run() -> None:
    given = {"dataset": {"_target_": "dpot.data.folder.Folder", "path": "photos"}}
    spelt_out = {"dataset": given["dataset"] | {"follow_links": False}}
    other = {"dataset": given["dataset"] | {"follow_links": True}}
    assert fingerprint(given) == fingerprint(spelt_out) != fingerprint(other)
    assert compose_config(["dataset=folder"]).dataset.follow_links is False


def zipped(path: Path, *members: tuple[str, bytes], packed: bool = False) -> Path:
    """An archive of any members, the same name twice if so wished."""
    kind = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", kind) as archive, pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        for name, content in members:
            archive.writestr(name, content)
    return path


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


X, Y = npy(np.arange(60, dtype=np.uint8).reshape(6, 2, 5)), npy(np.arange(6) % 2)


def test_a_member_that_is_there_twice(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", ("x.npy", X), ("y.npy", Y), ("x.npy", X))
    refused(Folder(str(path)).load, r"a\.npz: .*'x\.npy'.* twice")


def test_members_that_share_their_bytes(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", ("x.npy", X), ("y.npy", Y))
    data = bytearray(path.read_bytes())
    second = data.rindex(b"PK\x01\x02")
    data[second + 42 : second + 46] = bytes(4)  # where it begins: at the first
    path.write_bytes(data)
    refused(Folder(str(path)).load, r"a\.npz: .* twice")


def test_a_member_without_a_name(tmp_path: Path) -> None:
    path = zipped(tmp_path / "img_align_celeba.zip", ("000001.jpg", b"x"), ("~", b"y"))
    path.write_bytes(path.read_bytes().replace(b"~", b"\0"))  # a name ends at a zero
    (tmp_path / "list.txt").write_text("1\nMale\n000001.jpg 1\n")
    paths = {"images": path, "attributes": tmp_path / "list.txt"}
    source = CelebA()
    refused(lambda: source.decode(source.layouts()[0], paths, Builder(tmp_path)), "unexpected member without a name")


@pytest.mark.parametrize("name", ["faces/\0000002.jpg", "faces/"])
def test_a_member_that_pretends_to_be_a_folder(tmp_path: Path, name: str) -> None:
    """Folders are passed over, and the image in this one's place would be missing."""
    path = zipped(tmp_path / "img_align_celeba.zip", ("faces/000001.jpg", b"x"), ("faces/~000002.jpg", b"y"))
    raw = name.encode().ljust(len("faces/~000002.jpg"), b"\0")
    path.write_bytes(path.read_bytes().replace(b"faces/~000002.jpg", raw))
    with (
        pytest.raises(DataError, match=r"unexpected member 'faces/': a folder, or a name cut short"),
        open_zip(path, 9, 99),
    ):
        pass


@pytest.mark.parametrize("large", [False, True])
def test_a_comment_that_swallows_the_next_member(tmp_path: Path, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)  # from here on the count takes 64 bits
    path = zipped(tmp_path / "a.npz", ("x.npy", X), ("y.npy", Y), ("z.npy", Y))
    assert set(read_npz(path, ("x", "y", "z"))) == {"x", "y", "z"}
    data = bytearray(path.read_bytes())
    second = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 1)
    data[second + 32 : second + 34] = struct.pack("<H", 46 + len("z.npy"))
    path.write_bytes(data)
    refused(lambda: read_npz(path, ("x", "y")), r"a\.npz: truncated or corrupt \(its directory lists 2 of 3 files")


@pytest.mark.parametrize("order", "<>")
def test_characters_that_do_not_exist(tmp_path: Path, order: str) -> None:
    words = np.array(["one", "two"], f"{order}U3")
    assert read_npz(zipped(tmp_path / "a.npz", ("x.npy", npy(words))), ("x",))["x"].tolist() == ["one", "two"]
    words.view(f"{order}u4")[1] = 0x110000
    path = zipped(tmp_path / "b.npz", ("x.npy", npy(words)))
    refused(lambda: read_npz(path, ("x",)), r"b\.npz: array 'x' is corrupt: it holds characters that do not exist")


# --- labels do not vanish


@pytest.mark.parametrize("name", ["z.npy", "y.nqy", "y", "Y.npy", "y_train.npy"])
def test_a_damaged_name_does_not_lose_the_labels(tmp_path: Path, name: str) -> None:
    path = zipped(tmp_path / "a.npz", ("x.npy", X), (name, Y))
    refused(Folder(str(path)).load, r"a\.npz: holds '")


def test_other_arrays_beside_labels_are_left_alone(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", ("x.npy", X), ("y.npy", Y), ("names.npy", npy(np.array(["a", "b"]))))
    assert Folder(str(path)).load().classes == 2
    both = zipped(tmp_path / "b.npz", *((f"{n}.npy", X) for n in ("x", "x_train", "x_test")))
    refused(Folder(str(both)).load, r"b\.npz: holds 'x' beside")


def test_an_image_with_attributes_twice(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("2\nMale\n000001.jpg 1\n000001.jpg -1\n")
    refused(lambda: read_attribute(tmp_path / "list.txt", "Male"), "line 4 names image 000001.jpg for the second time")


# --- memory is bounded before anything is unpacked


def test_an_npz_bomb_is_refused_by_its_directory(tmp_path: Path) -> None:
    bomb = npy(np.zeros((UNPACKED_FREELY // 64, 8, 8), np.uint8))
    path = zipped(tmp_path / "bomb.npz", ("x.npy", bomb), packed=True)
    assert EXPANSION_AT_MOST * path.stat().st_size < len(bomb)
    refused(lambda: read_npz(path, ("x",)), r"bomb\.npz: its .* bytes unpack to more than .* save it uncompressed")
    plain = zipped(tmp_path / "plain.npz", ("x.npy", bomb))
    assert read_npz(plain, ("x",))["x"].shape == (UNPACKED_FREELY // 64, 8, 8)


def test_an_npz_of_many_arrays(tmp_path: Path) -> None:
    path = zipped(tmp_path / "many.npz", *((f"{i}.npy", b"") for i in range(1001)))
    refused(lambda: read_npz(path, ("x",)), r"many\.npz: holds 1,001 files")


def test_an_unusual_compression(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x.npy", X)
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[60:80] = bytes(20)
    (tmp_path / "a.npz").write_bytes(data)
    refused(lambda: read_npz(tmp_path / "a.npz", ("x",)), r"a\.npz: truncated or corrupt")


@pytest.mark.parametrize("header", [b"{'descr': '<i8', 'fo}", b"(" * 9000, b"{" * 50, b"\xff\n\x00"])
def test_a_header_that_is_no_header(tmp_path: Path, header: bytes) -> None:
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    path = zipped(tmp_path / "a.npz", ("x.npy", content))
    refused(lambda: read_npz(path, ("x",)), r"a\.npz: array 'x' has no valid header")


def test_a_table_in_a_gzip_bomb(tmp_path: Path) -> None:
    row = b"0,0,0,0,0,0,0,0\n"
    text = b"a,b,c,d,e,f,g,label\n" + row * (UNPACKED_FREELY // len(row))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text))
    refused(Table(str(tmp_path / "t.csv.gz")).load, r"t\.csv\.gz: its .* bytes unpack to more than")


def test_a_parquet_bomb_is_refused_by_its_footer(tmp_path: Path) -> None:
    table = pyarrow.table({"a": np.zeros(UNPACKED_FREELY // 8 + 1, np.int8)})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    refused(Table(str(tmp_path / "t.parquet"), label=None).load, r"t\.parquet: its .* bytes unpack to more than")


def test_one_long_word_of_parquet_many_times(tmp_path: Path) -> None:
    words = pyarrow.DictionaryArray.from_arrays(np.zeros(40, np.int32), ["x" * (1 << 20)])
    table = pyarrow.table({"a": np.arange(40.0), "label": words})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet", store_schema=False)  # read as words, not as categories
    refused(Table(str(tmp_path / "t.parquet")).load, r"t\.parquet: its .* bytes unpack to more than")


def test_words_of_parquet_are_what_pandas_reads(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.arange(6.0), "label": ["no", "yes", "ü", "no", "yes", "ü"]})
    frame["b"] = pd.Categorical(["u", "v", "u", "v", "u", "v"], categories=["v", "u", "w"])
    frame.to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), pd.read_parquet(tmp_path / "t.parquet"))


def test_more_columns_than_any_table_has(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b",".join(b"c%d" % i for i in range(100_001)) + b"\n1\n2\n")
    refused(Table(str(path)).load, "has 100,001 columns")
    path.write_bytes(b"a," * (1 << 20) + b"\n1\n2\n")
    refused(Table(str(path)).load, "does not end its first line")


def test_tiny_images_are_not_enlarged_beyond_measure(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", ("x.npy", npy(np.zeros((300_000, 1, 1), np.uint8))), packed=True)
    refused(Folder(str(path), size=32).load, "its 300,000 images would take 307,200,000 bytes: lower dataset.size=32")


def png(width: int, height: int, rows: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


def test_many_pixels_in_few_bytes() -> None:
    refused(lambda: decode_image(png(9000, 9000, b""), "bomb.png", 8, grey=False), "bomb.png: has 9000×9000 pixels")


# --- checksums are compared where there are any


def test_a_png_with_any_byte_flipped_is_refused_or_unharmed() -> None:
    rng = np.random.default_rng(0)
    rows = b"".join(b"\0" + rng.integers(0, 256, 24, np.uint8).tobytes() for _ in range(8))
    whole = png(8, 8, rows)
    truth = decode_image(whole, "a.png", 8, grey=False)
    for position in range(len(whole)):
        data = bytearray(whole)
        data[position] ^= 0x04
        try:
            read = decode_image(bytes(data), "a.png", 8, grey=False)
        except DataError as error:
            assert "a.png" in str(error)  # noqa: PT017
        else:
            np.testing.assert_array_equal(read, truth)


def write_parquet(path: Path, **options: Any) -> None:
    frame = pd.DataFrame({"a": np.random.default_rng(0).normal(size=500), "label": [0, 1] * 250})
    pyarrow.parquet.write_table(pyarrow.Table.from_pandas(frame), path, compression="none", **options)


def test_page_checksums_of_parquet_are_compared(tmp_path: Path, flip: Callable[[Path, int], None]) -> None:
    path = tmp_path / "t.parquet"
    value = struct.pack("<d", np.random.default_rng(0).normal(size=500)[100])
    write_parquet(path, write_page_checksum=True, use_dictionary=False)
    flip(path, path.read_bytes().index(value))
    refused(Table(str(path)).load, r"t\.parquet: is not a readable table \(.*(CRC|checksum)")


def test_without_page_checksums_the_data_checksum_tells(tmp_path: Path, flip: Callable[[Path, int], None]) -> None:
    path = tmp_path / "t.parquet"
    value = struct.pack("<d", np.random.default_rng(0).normal(size=500)[100])
    write_parquet(path, use_dictionary=False)
    before = Table(str(path)).load().checksum
    flip(path, path.read_bytes().index(value))
    assert Table(str(path)).load().checksum != before  # the format has nothing that could tell, so it loads
    flip(path, path.read_bytes().rindex(b"parquet-cpp"))  # no value, only who wrote it
    assert Table(str(path)).load().checksum != before


@pytest.mark.parametrize("damage", [(b'"index_columns"', b'"index_colunms"'), (b'"columns"', b'"colunms"')])
def test_damaged_metadata_of_pandas(tmp_path: Path, damage: tuple[bytes, bytes]) -> None:
    frame = pd.DataFrame({"a": [1.0, 2, 3, 4], "label": [0, 1, 0, 1]}, index=[7, 5, 3, 1])
    table = pyarrow.Table.from_pandas(frame)
    metadata = {b"pandas": table.schema.metadata[b"pandas"].replace(*damage)}
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "t.parquet")
    refused(Table(str(tmp_path / "t.parquet")).load, r"t\.parquet: is not a readable table")


def test_a_column_of_parquet_named_twice(tmp_path: Path) -> None:
    table = pyarrow.table([[1.0, 2], [3.0, 4], [0, 1]], names=["a", "a", "label"])
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    refused(Table(str(tmp_path / "t.parquet")).load, r"t\.parquet: has two columns named 'a'")


# --- messages are one line, entries are private


def test_names_with_line_ends_stay_one_line(tmp_path: Path) -> None:
    (tmp_path / "t\n1.csv").write_text('"a\nb",c\nx,2\ny,4\n')
    path = str(tmp_path / "t\n1.csv")
    refused(Table(path).load, "has the columns a�b, c")
    refused(Table(path, label=None).load, "column 'a�b' is not numeric")
    refused(Table(path, label="c", bounds={"d": [0, 1]}).load, "there are a�b")
    refused(Table(path, label="c", bounds={}).load, "column 'a�b' holds words")


def test_a_source_file_of_any_size_is_not_hashed(tmp_path: Path) -> None:
    sparse(tmp_path / "big")
    refused(lambda: digests({"big": tmp_path / "big"}), "more than the 8,589,934,592 that are read")


def test_decoded_arrays_are_private_from_the_start_whatever_the_umask(cache: Path) -> None:
    def decode(builder: Builder) -> dict[str, Any]:
        builder.put("x", np.arange(4))
        builder.empty("none", (0, 3), np.float32)
        assert {f.stat().st_mode & 0o777 for f in builder.folder.iterdir()} == {0o600}
        assert builder.folder.stat().st_mode & 0o777 == 0o700
        return {}

    before = os.umask(0)
    try:
        cached("demo", {}, decode)
    finally:
        os.umask(before)
    files = [f for f in (cache / "decoded").rglob("*") if f.is_file()]
    assert len(files) == 3
    assert {f.stat().st_mode & 0o777 for f in files} == {0o600}
