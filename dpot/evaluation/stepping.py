"""Small trainings side by side: on a GPU each on a stream of its own, its steps captured once and replayed.

A classifier's step is a dozen kernels of a few microseconds: launched one by one they cost the host ten times what
the device needs, and a single one of them leaves most of the device idle. So a training here is a generator, a `Fit`:
it yields whenever others may go on, and returns its result.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import Callable, Generator, Iterable
from typing import Generic, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from dpot.graphs import Ambient, recording
from dpot.precision import fast_products

T = TypeVar("T")
Fit: TypeAlias = Generator[None, None, T]

WARM_UP = 3  # plain calls before a capture: libraries initialise, the optimiser allocates its state
TURN = 8  # steps before the others' turn, one graph: started in one go, however long it is
MOST = 24  # trainings side by side
log = logging.getLogger("dpot")


def side_by_side(fits: Iterable[Fit[T]], device: torch.device) -> list[T]:
    """Run all to the end; what each returns, in their order. They are asked for one by one, as there is room.

    On a CPU they run one after the other. Whatever a fit does to torch's global generators stays with it.
    """
    if device.type != "cuda":
        return [_alone(fit) for fit in fits]
    waiting = enumerate(fits)
    running: dict[int, _Lane[T]] = {}
    results: dict[int, T] = {}
    main = torch.cuda.current_stream(device)
    while True:
        for number, fit in itertools.islice(waiting, MOST - len(running)):
            running[number] = _Lane(fit, device)
        if not running:
            break
        for number, lane in list(running.items()):
            try:
                lane.go_on()
            except StopIteration as end:
                results[number] = end.value
                main.wait_stream(lane.stream)
                del running[number]
    return [results[number] for number in sorted(results)]


def _alone(fit: Fit[T]) -> T:
    with torch.random.fork_rng([]):
        while True:
            try:
                next(fit)
            except StopIteration as end:
                result: T = end.value
                return result


class _Lane(Generic[T]):
    """A fit with the stream and the global generator it runs with."""

    def __init__(self, fit: Fit[T], device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self.fit, self.ambient = fit, Ambient(torch.device("cuda", index))
        self.stream = torch.cuda.Stream(device)
        self.stream.wait_stream(torch.cuda.current_stream(device))
        self.begun = False

    def go_on(self) -> None:
        """Up to the next point where others may go on; StopIteration with the result at the end."""
        # Only the beginning, where networks get their weights, draws from the host's generator.
        host = contextlib.nullcontext() if self.begun else torch.random.fork_rng([])
        self.begun = True
        with host, torch.cuda.stream(self.stream), self.ambient():
            next(self.fit)


def settled(device: torch.device) -> Fit[None]:
    """Let others go on until the device has done what this fit has asked of it: reading a value then costs no wait."""
    if device.type == "cuda":
        done = torch.cuda.Event()
        done.record()
        while not done.query():
            yield


class Replayed:
    """A call without arguments that works on fixed tensors; on a GPU captured after a few plain calls."""

    def __init__(self, call: Callable[[], None], device: torch.device) -> None:
        self._call, self._plain_calls = call, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.captures = device.type == "cuda"

    def __call__(self) -> None:
        """The call, or its replay."""
        if self.graph is None and self.captures and self._plain_calls >= WARM_UP:
            self._capture()
        if self.graph is not None:
            self.graph.replay()
            return
        self._plain_calls += 1
        self._call()

    def _capture(self) -> None:
        stream = torch.cuda.current_stream()
        if stream == torch.cuda.default_stream():  # cannot be captured: this fit is not run by side_by_side
            self.captures = False
            return
        graph = torch.cuda.CUDAGraph()
        try:
            with recording(graph, stream=stream):
                self._call()
            self.graph = graph
        except RuntimeError as error:
            log.warning("a classifier's step is not captured and will be slow: %s", str(error).splitlines()[0])
            self.captures = False


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
        after: Callable[[], None] | None = None,
    ) -> None:
        """after: called behind every step of the optimiser, and captured with it."""
        self._loss, self._optimiser, self._batch, self._fast = loss, optimiser, batch, fast
        self._after = after
        self._device = device
        self._total = torch.zeros((), dtype=torch.float64, device=device)
        self._batches_done = torch.zeros(1, dtype=torch.int64, device=device)
        self._order = torch.zeros(0, dtype=torch.int64, device=device)
        self._slope: Tensor | None = None  # what a backward pass begins with, made once
        self.next, self.turn = (Replayed(functools.partial(self._steps_in_order, n), device) for n in (1, TURN))

    def run(self, order: Tensor) -> Fit[float]:
        """One epoch over the rows in this order; the mean loss. Every epoch has the same number of rows."""
        if len(self._order) != len(order):
            self._order = order.clone()
        else:
            self._order.copy_(order)
        self._batches_done.zero_()
        self._total.zero_()
        turns, steps = divmod(len(order) // self._batch, TURN)
        for _ in range(turns):
            self.turn()
            yield
        for _ in range(steps):
            self.next()
        rest = len(order) % self._batch
        if rest:
            self._step(order[-rest:])
        yield from settled(self._device)
        return float(self._total) / len(order)

    def _steps_in_order(self, count: int) -> None:
        full = len(self._order) // self._batch * self._batch
        for _ in range(count):
            self._step(self._order[:full].view(-1, self._batch).index_select(0, self._batches_done).squeeze(0))
            self._batches_done.add_(1)

    def _step(self, rows: Tensor) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        with fast_products() if self._fast else contextlib.nullcontext():
            loss = self._loss(rows)
            self._slope = torch.ones_like(loss) if self._slope is None else self._slope
            loss.backward(self._slope)
        self._optimiser.step()
        if self._after is not None:
            self._after()
        self._total.add_(loss.detach(), alpha=len(rows))
