"""`task=report`: everything on record as a folder of static pages."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from dpot.errors import UsageError
from dpot.reporting import pages
from dpot.reporting.gather import gather
from dpot.tasks.base import Answer, Task


class Report(Task):
    """Gather records, tables, figures, claims and audits; write the pages."""

    def __init__(self, folder: str | None = None, own_runs: bool = True) -> None:
        self.folder, self.own_runs = folder, own_runs

    def run(self, cfg: DictConfig) -> Answer:
        """Write the report and say where it is."""
        folder = Path(self.folder) if self.folder else Path(cfg.output_root) / "report"
        occupied = folder.is_dir() and any(folder.iterdir()) and not (folder / "assets" / "report.js").exists()
        if occupied:
            raise UsageError(f"task.folder={folder}: there is something else in it; name an empty folder")
        written = pages.write(folder, gather(cfg.output_root if self.own_runs else None))
        index = (folder / "index.html").resolve()
        data = {"folder": str(folder), "index": index.as_uri(), "pages": written}
        return Answer(data, lambda console: console.print(f"{len(written)} pages: {index.as_uri()}", highlight=False))
