"""A saved synthesizer that was damaged, or changed on purpose, does not load."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dpot import Synthesizer
from dpot.errors import DataError
from dpot.methods.sealed import read_sealed, seal
from dpot.privacy.statement import Statement

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


@pytest.fixture(scope="module")
def modules() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(SCRIPTS))
        import fuzz_damage  # type: ignore[import-not-found]
        import fuzz_release  # type: ignore[import-not-found]

        yield fuzz_damage, fuzz_release
        logging.disable(logging.NOTSET)  # a fuzzer silences warnings for good
    for name in ("fuzz_damage", "fuzz_release"):
        sys.modules.pop(name)


@pytest.fixture(scope="module", params=["write_marginals", "write_lines"])
def saved(modules: Any, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> bytes:
    """A whole file of either kind; asking one accountant is enough for it."""
    root, whole = tmp_path_factory.mktemp("saved"), Statement.of
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Statement, "of", lambda ledger, noise, _=None: whole(ledger, noise, ["analytic_gaussian"]))
        getattr(modules[1], request.param)(root)
    return (root / "r.safetensors").read_bytes()


def test_none_of_three_hundred_damaged_files_loads(modules: Any, saved: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.safetensors"
    damaged = [content for number in range(310) if (content := modules[0].damaged(Random(number), saved)) != saved]
    assert len(damaged) >= 300  # the others had bytes exchanged for the same ones
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"r\.safetensors") as refused:
            Synthesizer.load(path, device="cpu")
        assert "\n" not in str(refused.value)


def test_changed_on_purpose_it_is_refused_in_one_line_or_harmless(modules: Any, saved: bytes, tmp_path: Path) -> None:
    """The digest is made anew, as a forger would."""
    path, refused = tmp_path / "r.safetensors", []
    for number in range(60):
        path.write_bytes(modules[1].in_release(Random(number), saved))
        try:
            modules[1].load_release(tmp_path)
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > 40
    assert not any("\n" in line for line in refused)


def lowered(facts: dict[str, Any]) -> None:
    facts["statement"]["epsilon"] = 0.1


def unbounded(facts: dict[str, Any]) -> None:
    facts["statement"]["epsilon"] = None


def deformed(facts: dict[str, Any]) -> None:
    facts["shape"] = [facts["shape"][0], 1, 2]


def emptied(facts: dict[str, Any]) -> None:
    facts["statement"] |= {"entries": [], "releases": 0, "epsilon": 0.0}


def quieter(facts: dict[str, Any]) -> None:
    """Entries with ten times the noise, and the ε that follows from it: only the release itself contradicts them."""
    for entry in facts["statement"]["entries"]:
        entry["event"]["noise_multiplier"] *= 10
    facts["statement"]["epsilon"] = 1.0


def fewer(facts: dict[str, Any]) -> None:
    del facts["statement"]["entries"][-1]


def dropped(facts: dict[str, Any]) -> None:
    facts["statement"] = {}


def boasting(facts: dict[str, Any]) -> None:
    facts["statement"]["noise"]["reproducible"] = True


def raised(facts: dict[str, Any]) -> None:
    facts["statement"]["budget"] = 1.0


def unnamed(facts: dict[str, Any]) -> None:
    del facts["extra"]["class_names"]


def vast(facts: dict[str, Any]) -> None:
    facts["extra"]["generator"]["code_size"] = 10**9


def endless(facts: dict[str, Any]) -> None:
    """Layers that would take hours to list."""
    facts["extra"]["generator"]["blocks"] = 10**9


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lowered, r"says ε = 0\.1, its entries come to"),
        (emptied, "has no entries"),
        (unbounded, "says ε = inf, its entries come to"),
        (deformed, "those of a table are|weights: .* not "),
        (quieter, "the statement accounts for"),
        (fewer, "says releases = {all}, its entries say {fewer}"),
        (dropped, "carries no privacy statement"),
        (boasting, "calls itself proved, and is not"),
        (raised, "budget of ε = 1"),
        (unnamed, "columns or classes"),
        (vast, "its generator cannot be read"),
        (endless, "its generator cannot be read"),
    ],
)
def test_a_forged_file_is_refused(
    saved: bytes, tmp_path: Path, change: Callable[[dict[str, Any]], None], why: str
) -> None:
    path = tmp_path / "r.safetensors"
    path.write_bytes(saved)
    tensors, facts, _ = read_sealed(path)
    path.write_bytes(seal(tensors, facts))
    Synthesizer.load(path, device="cpu")  # sealed again without a change, it loads
    releases = facts["statement"]["releases"]
    change(facts)
    path.write_bytes(seal(tensors, facts))
    with pytest.raises(DataError, match=why.format(all=releases, fewer=releases - 1)):
        Synthesizer.load(path, device="cpu")
