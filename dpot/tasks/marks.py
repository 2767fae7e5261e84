"""Accuracies that were measured before a run was stopped: they are not measured twice."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from dpot.evaluation.stepping import Fit
from dpot.record import write_atomically

log = logging.getLogger("dpot")


class Marks:
    """What the exams of a run gave so far, in a file; it counts for one trained model, code and data alone."""

    def __init__(self, path: Path, model: nn.Module, code_and_data: str) -> None:
        self.path, self.key = path, f"{_digest(model)} {code_and_data}"
        self._found: dict[str, float] = self._read()

    def of(self, exams: Iterator[Fit[float]]) -> Iterator[Fit[float]]:
        """The exams; one whose mark is known ends with it at once.

        Its samples are drawn all the same, so that those of the later ones are what they would have been.
        """
        for number, exam in enumerate(exams):
            yield self._sat(str(number), exam)

    def _sat(self, number: str, exam: Fit[float]) -> Fit[float]:
        if number not in self._found:
            self._found[number] = yield from exam
            self._write()
        exam.close()
        return self._found[number]

    def _read(self) -> dict[str, float]:
        try:
            kept = json.loads(self.path.read_text())
            return dict(kept["marks"]) if kept["key"] == self.key else {}
        except (OSError, ValueError, KeyError, TypeError):  # none, or broken: they are measured again
            return {}

    def _write(self) -> None:
        try:
            write_atomically(self.path, json.dumps({"key": self.key, "marks": self._found}))
        except OSError as error:
            log.warning("accuracies are not kept before the record is written (%s)", error.strerror)


def _digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for tensor in model.state_dict().values():
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
