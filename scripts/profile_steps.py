"""Where the time of a training step goes on a GPU: its kernels by time, and steps a second alone and side by side.

    python scripts/profile_steps.py [names] [--together 1 10] [--seconds 3] [--shown 16] [--benchmark]

The steps are those of count_operations.py, which counts their kernels without a GPU, the sketch's two fits, and the
classifiers that judge. Many trainings side by side tell what fills the GPU from what only waits: the first costs time
then, the second does not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import get_args

import torch
import torch.nn.functional as F
from count_operations import MNIST, engines, generation_problem
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from dpot.evaluation.downstream import Kind, dp_sinkhorn_network
from dpot.evaluation.stepping import Epochs, Fit, side_by_side
from dpot.methods.sketch.method import Sketch
from dpot.models.sketch_dcgan import SketchDCGAN
from dpot.training.capture import train_together
from dpot.training.engine import Engine

WARM_UP, PROFILED = 5, 24
FIT_STEPS = 40  # of the fits before the one that is looked at
JUDGED, JUDGED_BATCH = 54_000, 512  # synthetic images a classifier is trained on, and of a step


class Caught(Exception):
    """Carries an engine out of the method that would have run it."""


def sketch_engine(number: int, device: torch.device, records: int = MNIST[0]) -> Engine:
    """An engine that the sketch is about to run: 0 is the first fit, 1 its networks, 2 the second fit."""
    plainly, seen = Engine.run, []

    def run(engine: Engine) -> object:
        seen.append(engine)
        if len(seen) > number:
            raise Caught
        return plainly(engine)

    Engine.run = run  # type: ignore[method-assign,assignment]
    problem = generation_problem(SketchDCGAN, device, (records, *MNIST[1:]))
    problem.max_steps = FIT_STEPS
    try:
        Sketch().fit(problem)
    except Caught:
        pass
    finally:
        Engine.run = plainly  # type: ignore[method-assign]
    return seen[number]


def kernels(run: Callable[[], object], steps: int, device: torch.device) -> list[tuple[float, float, str]]:
    """(µs a step, launches a step, name) of the kernels, or on a CPU of the operations, the longest first."""
    cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as found:
        run()
        if cuda:
            torch.cuda.synchronize()
    rows = []
    for one in found.key_averages():
        spent = one.self_device_time_total if cuda else one.self_cpu_time_total
        if spent > 0:  # calls of the driver are listed too
            rows.append((spent / steps, one.count / steps, one.key))
    return sorted(rows, reverse=True)


def training_kernels(engine: Engine) -> list[tuple[float, float, str]]:
    """Of a training's step."""
    engine.open(WARM_UP + PROFILED)

    def steps(count: int) -> None:
        for _ in range(count):
            engine.one_step()

    steps(WARM_UP)
    return kernels(partial(steps, PROFILED), PROFILED, engine.device)


def report(name: str, rows: list[tuple[float, float, str]], shown: int) -> None:
    """Print the longest."""
    print(f"{name}: {sum(row[0] for row in rows):.0f} µs in {sum(row[1] for row in rows):.0f} kernels")
    for spent, launches, kernel in rows[:shown]:
        print(f"  {spent:8.1f} µs {launches:6.1f} × {kernel[:100]}")


def steps_per_second(make: Callable[[], Engine], together: int, seconds: float) -> float:
    """All trainings' steps together; two lengths, whose difference holds neither warm-up nor capture."""

    def spent(steps: int) -> float:
        jobs = [make() for _ in range(together)]
        for job in jobs:
            job.steps = steps
        began = time.perf_counter()
        train_together(jobs)
        return time.perf_counter() - began

    few = 8
    first = spent(few)
    many = max(2 * few, int(few * seconds / first))
    while (more := spent(many)) < seconds and many < 10**6:
        many = min(4 * many, int(many * 1.3 * seconds / more) + 1)
    return together * (many - few) / (more - spent(few))


def judged(kind: Kind, x: Tensor, number: int) -> Iterator[Fit[float]]:
    """A classifier's epochs, without end; the first holds its captures."""
    y = torch.arange(len(x), device=x.device) % 10
    network, optimiser, _ = dp_sinkhorn_network(kind, 784, (1, 28, 28), 10, x.device)

    def loss(chosen: Tensor) -> Tensor:
        return F.cross_entropy(network(x.index_select(0, chosen)), y.index_select(0, chosen))

    epochs = Epochs(loss, optimiser, JUDGED_BATCH, x.device, fast=True)
    rows = torch.Generator(x.device).manual_seed(number)
    while True:
        yield epochs.run(torch.randperm(len(x), generator=rows, device=x.device))


def judging_per_second(kind: Kind, together: int, seconds: float, device: torch.device) -> float:
    """Steps of so many classifiers side by side, all together; the first epoch, with its captures, is not counted."""
    x = torch.rand(together, JUDGED, 784, device=device)
    done, began = 0, 0.0

    def trained(number: int) -> Fit[None]:
        nonlocal done, began
        epochs = judged(kind, x[number], number)
        yield from next(epochs)
        began, done = time.perf_counter(), 0  # as the last to get here sets it
        while time.perf_counter() < began + seconds:
            yield from next(epochs)
            done += JUDGED // JUDGED_BATCH

    side_by_side((trained(number) for number in range(together)), device)
    return done / (time.perf_counter() - began)


def judging_kernels(kind: Kind, device: torch.device) -> list[tuple[float, float, str]]:
    """Of a classifier's step."""
    rows: list[tuple[float, float, str]] = []

    def trained() -> Fit[None]:
        epochs = judged(kind, torch.rand(PROFILED * JUDGED_BATCH, 784, device=device), 0)
        for _ in range(WARM_UP):
            yield from next(epochs)
        rows.extend(kernels(lambda: list(next(epochs)), PROFILED, device))  # all of it in this turn

    side_by_side([trained()], device)
    return rows


def main() -> None:
    """Profile and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only steps whose name holds one of these")
    parser.add_argument("--together", type=int, nargs="*", default=[1, 10])
    parser.add_argument("--seconds", type=float, default=3.0, help="per measurement, about")
    parser.add_argument("--shown", type=int, default=16, help="kernels of a step")
    parser.add_argument("--benchmark", action="store_true", help="convolutions by the fastest of cuDNN's algorithms")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = options.benchmark
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    sketch = {
        "sketch, first fit": partial(sketch_engine, 0, device),
        "sketch, second fit": partial(sketch_engine, 2, device),
    }
    for name, make in (engines(device) | sketch).items():
        if options.names and not any(part in name for part in options.names):
            continue
        report(name, training_kernels(make()), options.shown)
        for together in options.together:
            print(f"  {together} together: {steps_per_second(make, together, options.seconds):.0f} steps/s", flush=True)
    for kind in get_args(Kind) if not options.names or "judging" in options.names else ():
        report(f"judging, {kind}", judging_kernels(kind, device), options.shown)
        for together in options.together:
            found = judging_per_second(kind, together, options.seconds, device)
            print(f"  {together} together: {found:.0f} steps/s", flush=True)


if __name__ == "__main__":
    main()
