"""Recording a GPU's work to replay it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def recording(graph: torch.cuda.CUDAGraph, **options: Any) -> Iterator[None]:
    """torch.cuda.graph while Python collects no garbage: an old graph destroyed meanwhile would spoil the new one.

    torch itself collected before every recording until 2.8, and does not any more.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, **options):
            yield
    finally:
        if collects:
            gc.enable()
