"""What a task is: something the launcher can run, and the answer it gives."""

from __future__ import annotations

import json
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


def dump(data: Any) -> str:
    """One JSON document; non-finite numbers become null, for JSON has no word for them."""
    return json.dumps(_finite(data), indent=2, sort_keys=False, default=str)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(k): _finite(v) for k, v in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(v) for v in data]
    if isinstance(data, float) and (data != data or data in (float("inf"), float("-inf"))):
        return None
    return data
