"""What a task is: something the launcher can run, and the answer it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig
from rich.console import Console


@dataclass
class Answer:
    """What a task found: `data` is the one JSON document of `output=json`, `show` prints it for people."""

    data: dict[str, Any]
    show: Callable[[Console], None] = field(default=lambda console: None)
    exit_code: int = 0


class Task(ABC):
    """A task is built from its config node (its parameters) and run with the whole config."""

    @abstractmethod
    def run(self, cfg: DictConfig) -> Answer:
        """Do the work and answer. Progress goes to stderr; stdout belongs to the launcher."""

    def run_together(self, cfgs: Sequence[DictConfig]) -> list[Answer]:
        """Several runs of this task (seeds, rows of a table); a task that can train them side by side does so."""
        return [self.run(cfg) for cfg in cfgs]
