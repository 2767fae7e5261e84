"""`task=schema`: a template for the schema of a table, made from the names of its columns and nothing else."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from dpot import config
from dpot.data.files import printable
from dpot.data.schema import template
from dpot.data.table import Table, column_names
from dpot.disk import write_atomically
from dpot.errors import UsageError
from dpot.tasks.base import Answer, Task


class WriteSchema(Task):
    """The names of a table's columns → a file to fill in; an existing file is left alone."""

    def __init__(self, file: str | None = None) -> None:
        self.file = file

    def run(self, cfg: DictConfig) -> Answer:
        """Write the template."""
        source = config.instantiate(cfg.dataset, "dataset")
        if not isinstance(source, Table):
            raise UsageError("task=schema is for tables: dataset=table dataset.path=people.csv")
        _, paths = source.resolve(cfg.data_root, download=False)
        names = column_names(paths["table"])
        if source.label not in (None, "label", *names):  # "label" unless one is named: then there may be none
            raise UsageError(f"dataset.label={source.label}: the columns are {', '.join(map(printable, names))}")
        target = Path(self.file) if self.file else Path(f"{paths['table'].name.split('.')[0]}.schema.yaml")
        if target.exists():
            raise UsageError(f"{printable(target)} is there already: name another file with task.file=...")
        write_atomically(target, template(paths["table"].name, names, source.label))

        def show(console: Console) -> None:
            console.print(f"{target}: fill in what is public about each of {len(names)} columns", highlight=False)

        return Answer({"schema": str(target), "columns": names}, show)
