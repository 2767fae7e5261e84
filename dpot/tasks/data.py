"""`dpot task=data`: which data sets are at hand, their size, licence and source; fetch and verify them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from dpot import config
from dpot.data.base import Source, Status
from dpot.data.cache import cache_size, forget
from dpot.data.files import cache_root, given_root
from dpot.data.pairs import Adaptation
from dpot.data.weights import LICENCE, SOURCE, fetch_weights, inception_weights, weights_status
from dpot.errors import DataError, DpotError
from dpot.tasks.base import Answer, Task

log = logging.getLogger("dpot.data")

WEIGHTS = "inception"
OWN = ("folder", "table")  # the user's files, at a path of the user's


class Data(Task):
    """List every choice of the group `dataset`, and the Inception weights; exit code 1 if one is damaged."""

    def __init__(
        self,
        fetch: str | list[str] | None = None,
        verify: bool = False,
        forget: str | list[str] | None = None,
    ) -> None:
        self.fetch = [fetch] if isinstance(fetch, str) else list(fetch or [])
        self.verify = verify
        self.forget = [forget] if isinstance(forget, str) else list(forget or [])

    def run(self, cfg: DictConfig) -> Answer:
        """Fetch if asked, then list, then verify if asked."""
        root = cfg.data_root
        sources = catalogue()
        forgotten = self._forget(sources)
        fetched = self._fetch(sources, root)
        checked: dict[str, str | None] = {}
        rows = [self._row(name, source, root, checked) for name, source in sources.items()]
        rows.append(self._weights_row(root))
        damaged = [row["name"] for row in rows if row["problem"]]
        data = {
            "data_root": str(given_root(root)) if given_root(root) else None,
            "cache": {"path": str(cache_root()), "bytes": cache_size()},
            "fetched": [str(path) for path in fetched],
            "forgotten": forgotten,
            "datasets": rows,
        }
        return Answer(data, lambda console: show(console, data), exit_code=1 if damaged else 0)

    def _forget(self, sources: dict[str, Source | Adaptation]) -> list[str]:
        """Delete decoded records: of own data, of a data set, or all."""
        for name in self.forget:
            if name not in (*sources, "own", "all"):
                raise config.unknown("task.forget", name, ["own", "all", *sources])
        if not self.forget:
            return []
        wanted = [one for name in self.forget for one in (OWN if name == "own" else (name,))]
        names = [source.name for name in wanted if isinstance(source := sources.get(name), Source)]
        return forget(None if "all" in self.forget else names)

    def _fetch(self, sources: dict[str, Source | Adaptation], root: str | None) -> list[Path]:
        """Download each data set asked for; all are tried before the first failure is told."""
        names = self.fetch
        if names == ["all"]:
            names = [n for n, s in sources.items() if isinstance(s, Source) and s.downloadable] + [WEIGHTS]
        fetched: list[Path] = []
        failures: list[str] = []
        for name in names:
            if name != WEIGHTS and name not in sources:
                raise config.unknown("task.fetch", name, [*sources, WEIGHTS, "all"])
            try:
                if name == WEIGHTS:
                    fetched += fetch_weights(root)
                    inception_weights(root, download=False)
                else:
                    fetched += sources[name].fetch(root)
                    sources[name].load(root, download=False)
            except DataError as error:
                failures.append(f"{name}: {error}" if name not in str(error) else str(error))
        if failures:
            raise DataError("; ".join(failures))
        return fetched

    def _row(
        self, name: str, source: Source | Adaptation, root: str | None, checked: dict[str, str | None]
    ) -> dict[str, Any]:
        status = source.status(root)
        sides = source.sources if isinstance(source, Adaptation) else (source,)
        problem = None
        if self.verify and status.present:
            problems = [self._problem(side, root, checked) for side in sides]
            problem = next((p for p in problems if p), None)
        return row(
            name,
            status,
            licence=source.licence,
            source=", ".join(dict.fromkeys(side.source for side in sides)),
            downloadable=all(side.downloadable for side in sides),
            verified=None if not self.verify or not status.present else problem is None,
            problem=problem,
        )

    def _problem(self, source: Source, root: str | None, checked: dict[str, str | None]) -> str | None:
        """What is wrong with a data set's files, or None; each is read once although pairs share them."""
        key = json.dumps([source.name, vars(source)], sort_keys=True, default=str)
        if key not in checked:
            log.info("verifying %s", source.name)
            try:
                source.load(root, download=False, verify=True)
                checked[key] = None
            except DpotError as error:
                checked[key] = str(error)
        return checked[key]

    def _weights_row(self, root: str | None) -> dict[str, Any]:
        status = weights_status(root)
        problem = None
        if self.verify and status.present:
            try:
                inception_weights(root, download=False, verify=True)
            except DataError as error:
                problem = str(error)
        verified = None if not self.verify or not status.present else problem is None
        return row(
            WEIGHTS, status, licence=LICENCE, source=SOURCE, downloadable=True, verified=verified, problem=problem
        )


def catalogue() -> dict[str, Source | Adaptation]:
    """Every choice of the config group `dataset`, built with the values of its file."""
    return {
        name: config.instantiate(_load(config.CONF_DIR / "dataset" / f"{name}.yaml"), f"dataset={name}")
        for name in config.options("dataset")
    }


def _load(path: Path) -> DictConfig:
    node = OmegaConf.load(path)
    assert isinstance(node, DictConfig)
    return node


def row(
    name: str,
    status: Status,
    *,
    licence: str,
    source: str,
    downloadable: bool,
    verified: bool | None,
    problem: str | None,
) -> dict[str, Any]:
    """One data set of the JSON answer."""
    return {
        "name": name,
        "present": status.present,
        "built_in": status.built_in,
        "bytes": status.size,
        "files": [str(path) for path in status.files],
        "licence": licence,
        "source": source,
        "note": status.note,
        "downloadable": downloadable,
        "missing": status.place,
        "verified": verified,
        "problem": problem,
    }


def show(console: Console, data: dict[str, Any]) -> None:
    """The answer for people: a table, then what is missing and what is damaged."""
    table = Table("data set", "at hand", "MB", "licence", "source", title=f"data root: {data['data_root'] or 'none'}")
    table.columns[2].justify = "right"
    for entry in data["datasets"]:
        table.add_row(
            entry["name"],
            _at_hand(entry),
            f"{entry['bytes'] / 1e6:.1f}" if entry["bytes"] else "",
            entry["licence"],
            entry["source"],
        )
    console.print(table)
    missing: dict[str, list[str]] = {}  # pairs that lack the same file share a line
    for entry in data["datasets"]:
        if not entry["present"]:
            missing.setdefault(_remedy(entry), []).append(entry["name"])
    for remedy, names in missing.items():
        console.print(f"{', '.join(names)}: {remedy}", markup=False, highlight=False)
    for entry in data["datasets"]:
        if entry["problem"]:
            console.print(f"[red]damaged[/red] {entry['name']}: ", end="")
            console.print(entry["problem"], markup=False, highlight=False)
    for name in data["forgotten"]:
        console.print(f"forgotten: {name}", markup=False, highlight=False)
    for path in data["fetched"]:
        console.print(f"fetched {path}", markup=False, highlight=False)


def _at_hand(entry: dict[str, Any]) -> str:
    if entry["problem"]:
        return "damaged"
    if entry["built_in"]:
        return "built in"
    if not entry["present"]:
        return "your path" if entry["name"] in OWN else "no"
    verified = ", verified" if entry["verified"] else ""
    return (entry["note"] or "yes") + verified


def _remedy(entry: dict[str, Any]) -> str:
    if entry["downloadable"]:
        return f"dpot task=data task.fetch={entry['name']}, or {entry['missing']}"
    return str(entry["missing"])
