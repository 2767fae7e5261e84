"""Trackers: where the metrics of a training go when it has ended. The record is our own; a tracker is a window."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from dpot.errors import UsageError

log = logging.getLogger("dpot")


class Tracker(Protocol):
    """Takes the metrics of a training and its summary."""

    def start(self, directory: Path, config: Mapping[str, Any]) -> None: ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def finish(self, summary: Mapping[str, Any]) -> None: ...


class NoTracker:
    """Keeps nothing."""

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Nothing to open."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Nothing to keep."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Nothing to close."""


class CsvTracker:
    """Appends to metrics.csv in the run's directory, one row per (step, metric): any metric at any time."""

    def __init__(self, filename: str = "metrics.csv") -> None:
        if Path(filename).name != filename or not filename.endswith(".csv") or not filename.isprintable():
            raise UsageError(
                f"tracker.filename={filename!r}: the name of a .csv file in the run's folder, no path to it"
            )
        self.filename = filename

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Open the file; a resumed run goes on in it."""
        path = directory / self.filename
        is_new = not path.exists()
        self._file = path.open("a", newline="")
        self._writer = csv.writer(self._file)
        if is_new:
            self._writer.writerow(["step", "metric", "value"])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row per metric."""
        self._writer.writerows([step, name, value] for name, value in metrics.items())
        self._file.flush()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Close the file."""
        self._file.close()


class WandbTracker:
    """Weights & Biases, online, offline or disabled. It leaves its files in the run's directory."""

    def __init__(
        self,
        project: str = "dpot",
        mode: Literal["online", "offline", "disabled"] = "offline",
        entity: str | None = None,
        group: str | None = None,
    ) -> None:
        self.settings = {"project": project, "mode": mode, "entity": entity, "group": group}

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Open the run. wandb is imported here: nobody else pays for it."""
        import wandb

        os.environ.setdefault("WANDB_SILENT", "true")
        self._run = wandb.init(
            dir=str(directory),
            config=dict(config),
            name=directory.name,
            **self.settings,  # type: ignore[arg-type]
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send metrics at a step."""
        self._run.log(dict(metrics), step=step)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary and close."""
        self._run.summary.update(dict(summary))
        self._run.finish()
