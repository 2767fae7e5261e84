"""task=verify: a folder in order says so, and each file in it that was changed is named."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from dpot.composing import compose_config
from dpot.errors import DataError, UsageError
from dpot.launch import run
from dpot.privacy.statement import Statement

SMALL = ["task=synthesize", "profile=smoke", "profile.steps=1", "device=cpu", "loss.rounds=1", "privacy.epsilon=10"]
SMALL += ["task.utility=false", "dataset=digits", "dataset.size=8", "generator.width=4", "task.count=10"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, whole = tmp_path_factory.mktemp("finished"), Statement.of
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Statement, "of", lambda ledger, noise, _=None: whole(ledger, noise, ["analytic_gaussian"]))
        record = run(compose_config([*SMALL, f"output_root={root}"])).data
    return Path(record["files"]["release"]).parent


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def verify(path: Path, **settings: str) -> dict[str, Any]:
    given = [f"task.{name}={value}" for name, value in settings.items()]
    return run(compose_config(["task=verify", f"task.path={path}", *given])).data


def test_a_folder_in_order(folder: Path) -> None:
    found = verify(folder)
    assert "(10, 1e-05)-differentially private" in found["headline"]
    assert len(found["digest"]) == 64
    assert verify(folder / "record.json") == found
    assert verify(folder / "release.safetensors")["digest"] == found["digest"]


def lower(path: Path, *keys: str) -> None:
    """Write a smaller ε where the keys lead."""
    content = json.loads(path.read_text())
    inner = content
    for key in keys:
        inner = inner[key]
    inner["epsilon"] = 0.1
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("record.json", r"record\.json: the statement says ε = 0\.1, its entries come to"),
        ("privacy.json", r"says ε = 0\.1, its entries come to"),
        ("privacy.md", r"privacy\.md: is not what the record's statement is shown as"),
        ("privacy.html", r"privacy\.html: is not"),
        ("release.safetensors", r"release\.safetensors: was changed or damaged"),
    ],
)
def test_a_changed_file_is_named(folder: Path, name: str, why: str) -> None:
    path = folder / name
    if name.endswith(".json"):
        lower(path, *(["privacy"] if name == "record.json" else []))
    else:
        before = path.read_bytes()
        path.write_bytes(before.replace(b"(10, ", b"(1, ", 1) if b"(10, " in before else before[:-1] + b"\1")
        assert path.read_bytes() != before
    with pytest.raises(DataError, match=why):
        verify(folder)


def test_the_registry_s_record_states_the_same(folder: Path) -> None:
    path = folder / "privacy.registry.yaml"
    whole = path.read_text()
    for old, new, why in (
        ("delta: 1.0e-05", "delta: 1.0e-09", "another"),
        ("tier: 3", "tier: 7", "is not one of"),
    ):
        assert old in whole
        path.write_text(whole.replace(old, new))
        with pytest.raises(DataError, match=why):
            verify(folder)


def test_a_release_of_another_run_does_not_fit(folder: Path) -> None:
    content = json.loads((folder / "record.json").read_text())
    content["privacy"]["not_covered"].append("nothing")
    (folder / "record.json").write_text(json.dumps(content))
    told = Statement.from_dict(content["privacy"])
    (folder / "privacy.md").write_text(told.to_markdown())
    (folder / "privacy.html").write_text(told.to_html())
    with pytest.raises(DataError, match="another statement than the one inside release"):
        verify(folder)


def test_signatures(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    release, key = folder / "release.safetensors", tmp_path / "curator.key"
    public = tmp_path / "curator.key.pub"
    public.write_text("00" * 32)
    with pytest.raises(DataError, match="not signed"):
        verify(release, key=str(public))
    assert verify(release, sign=str(key))["signed_with"]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert verify(folder, key=str(public))["signed_with"] == public.read_text().strip()
    other = tmp_path / "other.key"
    verify(release, sign=str(other))  # somebody else's signature takes the place of the curator's
    with pytest.raises(DataError, match="which is not the one of"):
        verify(release, key=str(public))
    signature = release.with_name(release.name + ".sig")
    stored = json.loads(signature.read_text())
    signature.write_text(json.dumps(stored | {"signature": "00" * 64}))
    with pytest.raises(DataError, match="not a signature of this file"):
        verify(release)
    signature.write_text("{}")
    with pytest.raises(DataError, match="cannot be read as a signature"):
        verify(release)


def test_without_the_library_one_line_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(UsageError, match=r"pip install 'dpot\[sign\]'"):
        verify(folder, sign=str(folder / "key"))


def test_a_path_is_needed() -> None:
    with pytest.raises(UsageError, match=r"task\.path"):
        run(compose_config(["task=verify"]))
