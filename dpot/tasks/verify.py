"""`task=verify`: whether a release, or the folder of a run, is as it was written and says what its entries say.

dpot task=verify task.path=release.safetensors
dpot task=verify task.path=release.safetensors task.key=curator.key.pub
dpot task=verify task.path=release.safetensors task.sign=curator.key
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig
from rich.console import Console

from dpot.errors import DataError, DpotError, UsageError
from dpot.methods.verify import verified
from dpot.privacy import registry
from dpot.privacy.signing import check_signature, sign
from dpot.privacy.statement import Statement
from dpot.record import RECORD, Record
from dpot.synthesis import Synthesizer
from dpot.tasks.base import Answer, Task

RELEASE = "release.safetensors"


class Verify(Task):
    """A file or a folder → what was found in order; the first thing that is not ends it with an error.

    path: a release, a folder of outputs/runs, or its record.json. key: the curator's public key, with which the
    release must be signed. sign: the curator's private key, to sign a release that is in order; it is made if it is
    not there, with the public one beside it.
    """

    def __init__(self, path: str | None = None, key: str | None = None, sign: str | None = None) -> None:
        self.path, self.key, self.sign = path, key, sign

    def run(self, cfg: DictConfig) -> Answer:
        """Check everything that is there."""
        if self.path is None:
            raise UsageError("task.path: give a release (release.safetensors) or the folder of a run")
        path = Path(self.path).expanduser()
        if path.name == RECORD:
            path = path.parent
        found: dict[str, Any] = {"path": str(path)}
        statement = self._folder(path, found) if path.is_dir() else self._release(path, found)
        found["headline"] = statement.headline()

        def show(console: Console) -> None:
            for line in found["checked"]:
                console.print(f"in order: {line}", highlight=False)
            console.print(found["headline"], highlight=False)

        return Answer(found, show)

    def _release(self, path: Path, found: dict[str, Any]) -> Statement:
        release = Synthesizer.load(path, device="cpu").release_
        statement = _checked(release.statement, path)
        found |= {"digest": release.digest, "signed_with": None}
        found.setdefault("checked", []).extend(
            [
                f"{path.name}: release, generator and statement as they were written (SHA-256 {release.digest})",
                f"{path.name}: ε = {statement.epsilon:.6g} follows from {len(statement.entries)} entries",
            ]
        )
        if self.sign is not None:
            sign(path, release.digest, Path(self.sign).expanduser())
        signer = check_signature(path, release.digest, Path(self.key).expanduser() if self.key else None)
        if signer:
            found["signed_with"] = signer
            whose = "the key given" if self.key else "a key that was not compared with the curator's; give task.key"
            found["checked"].append(f"{path.name}: signed with {signer}, {whose}")
        return statement

    def _folder(self, folder: Path, found: dict[str, Any]) -> Statement:
        record = Record.load(folder)
        found["checked"] = []
        told = Statement.from_dict(record.privacy)
        if told.entries or told.budget is not None:
            told = _checked(told.to_dict(), folder / RECORD)
            found["checked"].append(f"{RECORD}: the statement follows from {len(told.entries)} entries")
        pages = {"statement": told.to_markdown(), "statement_page": told.to_html()}
        for name, text in pages.items():
            if name in record.files and (folder / record.files[name]).read_text() != text:
                raise DataError(
                    f"{folder / record.files[name]}: is not what the record's statement is shown as; it was changed, "
                    "or written by another version of dpot"
                )
            found["checked"].append(f"{record.files.get(name, name)}: shows this statement")
        if "statement_registry" in record.files:
            _check_registry(folder / record.files["statement_registry"], told)
            found["checked"].append(f"{record.files['statement_registry']}: passes the registry's checks")
        if RELEASE in record.files.values():
            released = self._release(folder / RELEASE, found)
            stored = json.loads((folder / record.files["statement_data"]).read_text())
            for where, other in ((RECORD, told), (record.files["statement_data"], _checked(stored, folder))):
                if other != released:
                    raise DataError(f"{folder / where}: another statement than the one inside {RELEASE}")
        elif self.key or self.sign:
            raise UsageError(f"task.path={folder}: there is no {RELEASE} to sign here")
        return told


def _checked(stored: Any, where: Path) -> Statement:
    try:
        return verified(stored, accountants=True)
    except DpotError as error:
        raise DataError(f"{where}: {error}") from None


def _check_registry(path: Path, told: Statement) -> None:
    text = path.read_text()
    wrong = registry.problems(text)
    if wrong:
        raise DataError(f"{path}: {wrong[0]}")
    content = yaml.safe_load(text)["deployment"]
    stated = content["privacy_loss"].get("privacy_parameters", {"epsilon": None, "delta": told.delta})
    if stated != {"epsilon": told.epsilon if told.entries else None, "delta": told.delta}:
        raise DataError(f"{path}: another (ε, δ) than the record's statement")
