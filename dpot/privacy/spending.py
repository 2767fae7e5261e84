"""What one private data set has released so far, over all runs: a small file that only its owner can read.

    account = Spending(path).account(owner)     # owner: a name of what this run releases
    account.begin("first round", entries)       # on the disk before any noise is drawn
    ...                                         # the noise is drawn
    account.made("first round")                 # on the disk before the release is
    Spending(path).total(budget)                # ε of everything, in how many releases

A part that was begun and not made is what a killed run leaves: nothing of it is on the disk, so the next run of the
same owner may draw it again without a second entry. A part that was made counts again if it is begun again, because the
first one may have been published. So what lies on the disk is never more than what is entered, whenever a run is
killed; the file may count a release that was never seen, and never misses one that was.

Every change is read, made and written under a lock, to a temporary file that is flushed and renamed. A file that cannot
be read is refused, because beginning a new one would forget what was released.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from dpot.disk import flush_folder, write_atomically
from dpot.errors import DataError
from dpot.privacy.accountants import own_epsilon
from dpot.privacy.budget import Budget
from dpot.privacy.errors import whole
from dpot.privacy.events import Event
from dpot.privacy.groups import for_group
from dpot.privacy.ledger import Entry
from dpot.privacy.sensitivity import SOUND_BOUNDS

VERSION = 1
PRIVATE = 0o600


@dataclass(frozen=True)
class Total:
    """What a data set has released: the ε of everything under each neighbouring relation."""

    releases: int
    delta: float
    epsilons: Mapping[str, float]  # by relation; infinite where no ε covers it

    def sentence(self) -> str:
        """For the statement: "This data set has released ε = 2.1 at δ = 1e-05 in 3 releases."."""
        said = [
            f"ε = {epsilon:.4g}{f' ({relation})' if len(self.epsilons) > 1 else ''}"
            if math.isfinite(epsilon)
            else "values without noise, which no ε covers,"
            for relation, epsilon in self.epsilons.items()
        ]
        times = f"{self.releases} release{'' if self.releases == 1 else 's'}"
        apart = "; they are for different neighbouring data sets and do not add up" if len(said) > 1 else ""
        return f"This data set has released {' and '.join(said)} at δ = {self.delta:g} in {times}{apart}."


class Spending:
    """The file of one data set."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, folder: Path, checksum: str) -> Spending:
        """The file of the data with this checksum."""
        return cls(folder / f"{hashlib.sha256(checksum.encode()).hexdigest()[:24]}.json")

    def account(self, owner: str, fresh: bool = False) -> Account:
        """What one run writes with. `fresh`: it draws anew on request, and what it drew before stays counted."""
        account = Account(self, owner)
        if fresh:
            account.close()
        return account

    def releases(self) -> int:
        """How often something was released."""
        return sum(max(part["times"] for part in parts) for parts in self._read().values())

    def total(self, budget: Budget) -> Total | None:
        """Everything that was entered, added up on the terms of a budget; None if nothing was."""
        assert budget.delta is not None
        bound = budget.bound if budget.bound in SOUND_BOUNDS else "exact"  # a paper's claim is no account
        by_relation: dict[str, dict[Event, int]] = {}
        for parts in self._read().values():
            for part in parts:
                for entry in part["entries"]:
                    event = Event.from_dict(entry["event"])
                    own = by_relation.setdefault(str(event.relation or "none"), {})
                    own[event] = own.get(event, 0) + entry["count"] * part["times"]
        if not by_relation:
            return None
        bare = by_relation.pop("none", {})  # without any relation: it spoils every sum
        epsilons = {
            relation: own_epsilon(for_group(spending, budget.most), budget.delta, bound, budget.conversion)
            for relation, spending in sorted(by_relation.items())
        }
        if bare:
            epsilons = dict.fromkeys(epsilons or {"none": 0.0}, math.inf)
        return Total(self.releases(), budget.delta, epsilons)

    def change(self, change: Callable[[dict[str, list[dict[str, Any]]]], None]) -> None:
        """Read, change and write, while no other process does; nothing is written where nothing changed."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(self.path.with_suffix(".lock"), mode=PRIVATE):
                owners = self._read()
                before = json.dumps(owners)
                change(owners)
                if json.dumps(owners) != before:
                    self._write(owners)
        except OSError as error:
            raise DataError(
                f"{self.path}: cannot be written ({error.strerror or error}): what is released must be counted first; "
                "set DPOT_CACHE to a folder with space that you may write in"
            ) from None

    def _write(self, owners: Mapping[str, Any]) -> None:
        for left in self.path.parent.glob(f".{self.path.name}.*.tmp"):  # by a killed process: the lock is ours
            left.unlink(missing_ok=True)
        content = {"version": VERSION, "owners": owners}
        write_atomically(self.path, json.dumps(content | {"digest": _digest(content)}, indent=1) + "\n", PRIVATE)
        flush_folder(self.path.parent)

    def _read(self) -> dict[str, list[dict[str, Any]]]:
        try:
            stored = json.loads(self.path.read_bytes())
            digest = stored.pop("digest")
            if stored["version"] != VERSION or digest != _digest(stored):
                raise ValueError("its digest or its version is another")
            for parts in stored["owners"].values():
                for part in parts:
                    whole("times", part["times"])
                    [(Event.from_dict(entry["event"]), whole("count", entry["count"])) for entry in part["entries"]]
            return dict(stored["owners"])
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror}): check its permissions") from None
        except Exception as error:
            raise DataError(
                f"{self.path}: damaged ({type(error).__name__}), so what these data have released is not known; put "
                "back a copy, or delete it and add up earlier releases yourself"
            ) from None


@dataclass
class Account:
    """The part of the file that belongs to one owner."""

    spending: Spending
    owner: str
    _opened: dict[str, int] = field(default_factory=dict)

    def numbered(self, name: str) -> str:
        """The name of a release that has no file of its own; several of one name are told apart by their order."""
        self._opened[name] = self._opened.get(name, 0) + 1
        return name if self._opened[name] == 1 else f"{name} ({self._opened[name]})"

    def begin(self, name: str, entries: Sequence[Entry]) -> None:
        """Enter what is about to be drawn."""
        told = [entry.to_dict() for entry in entries]

        def change(owners: dict[str, list[dict[str, Any]]]) -> None:
            part = self._part(owners, name, told)
            if part is None:
                owners.setdefault(self.owner, []).append({"name": name, "times": 1, "open": True, "entries": told})
            elif not part["open"]:
                part["times"], part["open"] = part["times"] + 1, True

        self.spending.change(change)

    def made(self, name: str) -> None:
        """It will be on the disk in a moment: to begin it again counts again."""
        self._set(False, name)

    def lost(self, name: str) -> None:
        """It could not be written, and nothing of it is left: as if it had only been begun."""
        self._set(True, name)

    def found(self, name: str, entries: Sequence[Entry]) -> None:
        """It is on the disk already: entered, if it is not yet."""
        told = [entry.to_dict() for entry in entries]

        def change(owners: dict[str, list[dict[str, Any]]]) -> None:
            part = self._part(owners, name, told)
            if part is None:
                owners.setdefault(self.owner, []).append({"name": name, "times": 1, "open": False, "entries": told})
            else:
                part["open"] = False

        self.spending.change(change)

    def close(self) -> None:
        """All that this owner has begun is a result now."""
        self._set(False)

    def _set(self, opened: bool, name: str | None = None) -> None:
        def change(owners: dict[str, list[dict[str, Any]]]) -> None:
            for part in owners.get(self.owner, []):
                if name is None or part["name"] == name:
                    part["open"] = opened

        self.spending.change(change)

    def _part(self, owners: Mapping[str, Any], name: str, told: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The entry of this very release; one of the same name with other events is another release."""
        same = (p for p in owners.get(self.owner, ()) if p["name"] == name and p["entries"] == told)
        return next(same, None)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
