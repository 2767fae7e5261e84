"""What work side by side on one device needs: a generator for each job, and recordings that nothing spoils."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import torch


class Ambient:
    """What stands in for torch's global generator (dropout, calls without generator=) during one job's steps.

    Each job has its own, seeded from the global one when the job is built: jobs side by side do not take
    numbers from each other, and a checkpoint knows all the randomness of its job. Never the source of
    privacy noise, since it follows the experiment seed.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.generator = torch.Generator(device)
        self.generator.manual_seed(int(torch.randint(2**62, ())))

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Inside, torch's global generator of this device is this one."""
        if self.device.type == "cuda":
            everyone = torch.cuda.default_generators[self.device.index]
            before = everyone.graphsafe_get_state()
            everyone.graphsafe_set_state(self.generator)  # shares the state, so it may happen in a capture
            try:
                yield
            finally:
                everyone.graphsafe_set_state(before)
        else:
            kept = torch.get_rng_state()
            torch.set_rng_state(self.generator.get_state())
            try:
                yield
            finally:
                self.generator.set_state(torch.get_rng_state())
                torch.set_rng_state(kept)


@contextlib.contextmanager
def recording(graph: torch.cuda.CUDAGraph, **options: Any) -> Iterator[None]:
    """torch.cuda.graph, safe from what else the process does.

    Python collects no garbage meanwhile: an old graph that is destroyed would spoil the new one (torch itself collected
    before every recording until 2.8, and does not any more). And the graph has scratch memory of its own for matrix
    products. torch keeps that memory by the stream on which a product was called, and uses it for other graphs too. It
    hands out the same 32 streams over and over, so that two graphs which run at once could write to the same memory.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        torch._C._cuda_clearCublasWorkspaces()  # those that were made before are not used in this graph,
        with torch.cuda.graph(graph, **options):
            yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()  # nor are this graph's afterwards
        if collects:
            gc.enable()
