"""The readers: what is whole is read as numpy would, what is not is refused, whatever byte is missing or wrong."""

from __future__ import annotations

import gzip
import io
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpot.data.formats import (
    check_features,
    check_image_values,
    check_labels,
    npz_shapes,
    parse_idx,
    read_idx,
    read_npz,
    read_plain,
)
from dpot.errors import DataError

WHERE = Path("somewhere.npz")
byte_arrays = hnp.arrays(np.uint8, hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=6))
any_arrays = hnp.arrays(
    st.one_of(hnp.floating_dtypes(), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.unicode_string_dtypes()),
    hnp.array_shapes(max_dims=3, max_side=5),
)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


@given(byte_arrays)
def test_idx_round_trip(array: np.ndarray) -> None:
    parsed = parse_idx(idx(array))
    assert parsed.shape == array.shape
    assert (parsed == array).all()


@given(byte_arrays, st.data())
def test_idx_cut_at_any_byte_is_refused(array: np.ndarray, data: st.DataObject) -> None:
    whole = idx(array)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError):
        parse_idx(whole[:cut])


@given(byte_arrays, st.binary(min_size=1, max_size=9))
def test_idx_with_more_bytes_is_refused(array: np.ndarray, more: bytes) -> None:
    with pytest.raises(ValueError, match="promises"):
        parse_idx(idx(array) + more)


@given(st.binary(max_size=64))
def test_idx_of_any_bytes_is_an_array_or_a_value_error(junk: bytes) -> None:
    try:
        array = parse_idx(junk)
    except ValueError:
        return
    assert idx(array) == junk


@pytest.mark.parametrize("kind", [0x09, 0x0B, 0x0D])
def test_idx_of_other_types_is_refused(kind: int) -> None:
    with pytest.raises(ValueError, match="unsigned bytes"):
        parse_idx(struct.pack(">HBBI", 0, kind, 1, 0))


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_read_idx_names_the_file(tmp_path: Path, write_idx: Callable[[Path, np.ndarray], bytes], ending: str) -> None:
    path = tmp_path / f"images{ending}"
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(path, array)
    assert (read_idx(path, (2, 3, 4))[0] == array).all()
    for wrong in [(2, 3, 5), (1, 3, 4), (2, 12)]:
        with pytest.raises(DataError, match="images"):
            read_idx(path, wrong)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match="images"):
            read_idx(path, (2, 3, 4))


def test_a_gzip_bomb_is_not_inflated(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DataError, match=r"bomb\.gz.*more than the 1,000 bytes"):
        read_plain(path, 1000)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(any_arrays, any_arrays, st.booleans(), st.booleans())
def test_npz_is_read_as_numpy_reads_it(x: np.ndarray, y: np.ndarray, compressed: bool, fortran: bool) -> None:
    if fortran:
        x = np.asfortranarray(x)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.npz"
        (np.savez_compressed if compressed else np.savez)(path, x=x, y=y)
        ours = read_npz(path, ("x", "y"))
        assert npz_shapes(path) == {"x": x.shape, "y": y.shape}
        with np.load(path, allow_pickle=False) as theirs:
            for name in "xy":
                assert ours[name].dtype == theirs[name].dtype
                np.testing.assert_array_equal(ours[name], theirs[name])


def small_npz(compressed: bool) -> bytes:
    buffer = io.BytesIO()
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    (np.savez_compressed if compressed else np.savez)(buffer, x=x, y=np.arange(20))
    return buffer.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
def test_npz_cut_at_any_byte_is_refused(tmp_path: Path, compressed: bool) -> None:
    whole = small_npz(compressed)
    path = tmp_path / "cut.npz"
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=r"cut\.npz"):
            read_npz(path, ("x", "y"))


@pytest.mark.parametrize("compressed", [False, True])
def test_npz_with_any_byte_flipped_is_refused_or_unharmed(tmp_path: Path, compressed: bool) -> None:
    whole = small_npz(compressed)
    path = tmp_path / "flipped.npz"
    path.write_bytes(whole)
    truth = read_npz(path, ("x", "y"))
    refused: list[str] = []
    for position in range(len(whole)):
        data = bytearray(whole)
        data[position] ^= 0x04
        path.write_bytes(data)
        try:
            read = read_npz(path, ("x", "y"))
        except DataError as error:
            refused.append(str(error))
        else:  # time stamps and such
            for name in "xy":
                np.testing.assert_array_equal(read[name], truth[name])
    assert len(refused) > len(whole) // 2
    assert all("flipped.npz" in line for line in refused)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "evil.npz"

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "owned",))

    np.savez(path, x=np.array([Evil()], dtype=object))
    with pytest.raises(DataError, match=r"evil\.npz.*pickled objects"):
        read_npz(path, ("x",))
    assert not (tmp_path / "owned").exists()


def test_npz_that_promises_more_than_it_holds(tmp_path: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w") as archive:
        archive.writestr("x.npy", head.getvalue() + bytes(800))
    with pytest.raises(DataError, match="promises 8,000,000,000,000 bytes"):
        read_npz(tmp_path / "bomb.npz", ("x",))


def test_missing_array_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with pytest.raises(DataError, match=r"no array 'y' \(it has x\)"):
        read_npz(tmp_path / "a.npz", ("x", "y"))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 1, 3]),
        np.array([0, -1, 2]),
        np.array([0, 1]),
        np.array([[0], [1], [2]]),
        np.array([0.0, 1.0, 2.0]),
        np.array(["0", "1", "2"]),
    ],
)
def test_mislabelled(labels: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"somewhere\.npz: mislabelled"):
        check_labels(labels, 3, 3, WHERE)


@pytest.mark.parametrize(
    "values",
    [
        np.array([[1.0, np.nan]]),
        np.array([[1.0, np.inf]]),
        np.array([[1e300]]),
        np.zeros(3),
        np.zeros((0, 3)),
        np.array([["a"]]),
    ],
)
def test_features_must_be_finite_numbers(values: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"somewhere\.npz"):
        check_features(values, WHERE)


@pytest.mark.parametrize("values", [np.array([1.5]), np.array([-0.1]), np.array([np.nan]), np.array([3])])
def test_image_values(values: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"somewhere\.npz"):
        check_image_values(values, WHERE)
