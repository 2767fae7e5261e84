"""Where the time of a training step goes on a GPU: its kernels by time, and steps a second alone and side by side.

    python scripts/profile_steps.py [names] [--together 1 10] [--seconds 3] [--benchmark]

The steps are those of count_operations.py, which counts their kernels without a GPU, the sketch's two fits, and the
classifiers that judge. Many trainings side by side tell what fills the GPU from what only waits: the first costs time
then, the second does not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import get_args

import torch
import torch.nn.functional as F
from count_operations import engines, generation_problem
from torch.profiler import ProfilerActivity, profile

from dpot.evaluation.downstream import Kind, sinkhorn_network
from dpot.evaluation.stepping import Epochs, Fit, side_by_side
from dpot.methods.sketch import Sketch
from dpot.models.sketch_dcgan import SketchDCGAN
from dpot.training.engine import Engine
from dpot.training.together import train_together

WARM_UP, PROFILED, SHOWN = 5, 20, 14
FIT_STEPS = 40  # of the fits before the one that is looked at
JUDGED = 54_000  # synthetic images a classifier is trained on


class Caught(Exception):
    """Carries an engine out of the method that would have run it."""


def sketch_engine(number: int, device: torch.device) -> Engine:
    """An engine that the sketch is about to run: 0 is the first fit, 1 its networks, 2 the second fit."""
    plainly, seen = Engine.run, []

    def run(engine: Engine) -> object:
        seen.append(engine)
        if len(seen) > number:
            raise Caught
        return plainly(engine)

    Engine.run = run  # type: ignore[method-assign,assignment]
    problem = generation_problem(SketchDCGAN(classes=10, shape=(1, 28, 28)), device)
    problem.max_steps = FIT_STEPS
    try:
        Sketch().fit(problem)
    except Caught:
        pass
    finally:
        Engine.run = plainly  # type: ignore[method-assign]
    return seen[number]


def kernels(engine: Engine) -> list[tuple[float, float, str]]:
    """(µs a step, launches a step, name) of the kernels, or on a CPU of the operations, the longest first."""
    activity = ProfilerActivity.CUDA if engine.device.type == "cuda" else ProfilerActivity.CPU
    engine.open(WARM_UP + PROFILED)
    for _ in range(WARM_UP):
        engine.one_step()
    with profile(activities=[activity]) as found:
        for _ in range(PROFILED):
            engine.one_step()
        if engine.device.type == "cuda":
            torch.cuda.synchronize()
    rows = []
    for one in found.key_averages():
        spent = one.self_device_time_total if engine.device.type == "cuda" else one.self_cpu_time_total
        rows.append((spent / PROFILED, one.count / PROFILED, one.key))
    return sorted(rows, reverse=True)


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


def judging_per_second(kind: Kind, together: int, seconds: float, device: torch.device) -> float:
    """Steps of so many classifiers side by side, all together; the first epoch, with its captures, is not counted."""
    x = torch.rand(together, JUDGED, 784, device=device)
    y = torch.arange(JUDGED, device=device) % 10
    done, began = 0, 0.0

    def trained(number: int) -> Fit[None]:
        nonlocal done, began
        network, optimiser, _ = sinkhorn_network(kind, 784, (1, 28, 28), 10, device)
        rows = torch.Generator(device).manual_seed(number)
        epochs = Epochs(
            lambda chosen: F.cross_entropy(network(x[number].index_select(0, chosen)), y.index_select(0, chosen)),
            optimiser,
            128,
            device,
            fast=True,
        )
        yield from epochs.run(torch.randperm(JUDGED, generator=rows, device=device))
        began, done = time.perf_counter(), 0  # as the last to get here sets it
        while time.perf_counter() < began + seconds:
            yield from epochs.run(torch.randperm(JUDGED, generator=rows, device=device))
            done += JUDGED // 128

    side_by_side((trained(number) for number in range(together)), device)
    return done / (time.perf_counter() - began)


def main() -> None:
    """Profile and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only steps whose name holds one of these")
    parser.add_argument("--together", type=int, nargs="*", default=[1, 10])
    parser.add_argument("--seconds", type=float, default=3.0, help="per measurement, about")
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
        rows = kernels(make())
        print(f"{name}: {sum(row[0] for row in rows):.0f} µs in {sum(row[1] for row in rows):.0f} kernels")
        for spent, launches, kernel in rows[:SHOWN]:
            print(f"  {spent:8.1f} µs {launches:6.1f} × {kernel[:100]}")
        for together in options.together:
            print(f"  {together} together: {steps_per_second(make, together, options.seconds):.0f} steps/s", flush=True)
    for kind in get_args(Kind) if not options.names or "judging" in options.names else ():
        for together in options.together:
            found = judging_per_second(kind, together, options.seconds, device)
            print(f"judging, {kind}, {together} together: {found:.0f} steps/s", flush=True)


if __name__ == "__main__":
    main()
