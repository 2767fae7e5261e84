"""Epochs of small optimiser steps; on a GPU a step is captured once and replayed.

A classifier's step is a dozen kernels of a few microseconds: launched one by one they cost the host ten times what
the device needs. No warm-up has to be undone, for the first steps are plain ones that count.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Optimizer

from dpot.precision import fast_products

WARM_UP_STEPS = 3  # libraries initialise, the optimiser allocates its state
log = logging.getLogger("dpot")


class Epochs:
    """Runs loss(rows), its backward pass and an optimiser step for each batch of rows in an order.

    The loss reads fixed tensors and draws from torch's global generator at most (dropout). Adam must be made with
    `capturable` on a GPU, so that it counts its steps there.
    """

    def __init__(
        self,
        loss: Callable[[Tensor], Tensor],
        optimiser: Optimizer,
        batch: int,
        device: torch.device,
        fast: bool = False,
    ) -> None:
        self._loss, self._optimiser, self._batch, self._fast = loss, optimiser, batch, fast
        self._total = torch.zeros((), dtype=torch.float64, device=device)
        self._turn = torch.zeros(1, dtype=torch.int64, device=device)
        self._order = torch.zeros(0, dtype=torch.int64, device=device)
        self._slope: Tensor | None = None  # what a backward pass begins with, made once
        self._plain_steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captures = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self._captures else None

    def run(self, order: Tensor) -> float:
        """One epoch over the rows in this order; the mean loss. Every epoch has the same number of rows."""
        if len(self._order) != len(order):
            self._order = order.clone()
        else:
            self._order.copy_(order)
        self._turn.zero_()
        self._total.zero_()
        for _ in range(len(order) // self._batch):
            self._next()
        rest = len(order) % self._batch
        if rest:
            self._step(order[-rest:])
        return float(self._total) / len(order)

    def _next(self) -> None:
        if self._graph is not None:
            self._graph.replay()
            return
        if not self._captures:
            self._step_in_order()
            return
        if self._plain_steps >= WARM_UP_STEPS:
            self._capture()
            self._next()
            return
        assert self._stream is not None
        self._plain_steps += 1
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._step_in_order()
        torch.cuda.current_stream().wait_stream(self._stream)

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self._stream):
                self._step_in_order()
            self._graph = graph
        except RuntimeError as error:
            log.warning("a classifier's step is not captured and will be slow: %s", str(error).splitlines()[0])
            self._captures = False

    def _step_in_order(self) -> None:
        full = len(self._order) // self._batch * self._batch
        self._step(self._order[:full].view(-1, self._batch).index_select(0, self._turn).squeeze(0))
        self._turn.add_(1)

    def _step(self, rows: Tensor) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        with fast_products() if self._fast else contextlib.nullcontext():
            loss = self._loss(rows)
            self._slope = torch.ones_like(loss) if self._slope is None else self._slope
            loss.backward(self._slope)
        self._optimiser.step()
        self._total.add_(loss.detach(), alpha=len(rows))
