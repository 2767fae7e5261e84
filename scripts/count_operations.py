"""How many kernels one training step launches on a GPU, counted without one.

    python scripts/count_operations.py [names]

Small trainings are bound by the number of kernels of a step, not by their arithmetic. Counted are the operations that
write memory (views and allocations do not), as a GPU would run them: a Triton kernel as one, dropout and optimiser
fused. Some operations (sorts, large sums) are several kernels yet: the table compares steps, it predicts no time.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dpot import kernels
from dpot.evaluation import classifiers, stepping
from dpot.methods.adapt import dann, dp_dann, source_only
from dpot.methods.adapt import dp_swd as dp_swd_adaptation
from dpot.methods.adapt import swd as swd_adaptation
from dpot.methods.adapt.base import AdaptationProblem
from dpot.methods.adapt.sketch import SketchAlignment
from dpot.methods.generate import dp_merf, dp_sinkhorn, dp_swd
from dpot.methods.generate.base import Problem
from dpot.models import layers
from dpot.models.adaptation import network_for
from dpot.models.merf_conv import MerfConv
from dpot.models.pooling import ConvPoolFirst, PooledConv2d
from dpot.models.sinkhorn_biggan import SinkhornBigGAN
from dpot.models.sinkhorn_dcgan import SinkhornDCGAN
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.training import sanitise
from dpot.training.engine import Engine
from dpot.transport import checks, sinkhorn, sliced

CPU = torch.device("cpu")
FREE = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "_unsafe_view", "_local_scalar_dense"}
TWICE = {"slice_backward", "select_backward", "nll_loss_backward"}  # zeros, then what goes into them
SIZES = {"digits": (60_000, 7_291, (1, 28, 28), 10), "office": (2_817, 795, (2_048,), 31)}
ADAPTATIONS = {
    "source training": ("source", source_only.SourceOnly()),
    "DANN": ("alignment", dann.DANN()),
    "SWD alignment": ("alignment", swd_adaptation.SWDAdaptation()),
    "DP-SWD alignment": ("alignment", dp_swd_adaptation.DPSWDAdaptation()),
    "DP-DANN": ("alignment", dp_dann.DPDANN(noise_multiplier=2.0)),
    "sketch's transport": ("transport", SketchAlignment()),
}
MNIST, FACES = (60_000, (1, 28, 28), 10), (9_000, (3, 32, 32), 2)
NOISY_SINKHORN = dp_sinkhorn.DPSinkhorn(noise_multiplier=1.5)
SINKHORN_OF_FACES = dp_sinkhorn.DPSinkhorn(200, l1=0, debias="none", blur=5, power=2, noise_multiplier=1.5)
GENERATIONS = {
    "DP-SWD": (dp_swd.DPSWD(), MerfConv, MNIST),
    "DP-SWD, private labels": (dp_swd.DPSWD(labels="private"), MerfConv, MNIST),
    "DP-MERF": (dp_merf.DPMERF(), MerfConv, MNIST),
    "DP-Sinkhorn": (NOISY_SINKHORN, SinkhornDCGAN, MNIST),
    "DP-Sinkhorn, bfloat16": (NOISY_SINKHORN, partial(SinkhornDCGAN, bfloat16=True), MNIST),
    "DP-Sinkhorn, faces": (SINKHORN_OF_FACES, SinkhornBigGAN, FACES),
}


class Kernels(TorchDispatchMode):
    """Counts, by name, what runs while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.of_step: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name == "convolution":
            self.found["bias of convolution"] += args[2] is not None
        if not (func.is_view or name in FREE or name.startswith(("_record_function", "promote_types"))):
            many = {"convolution_backward": lambda: sum(args[-1]), "im2col": lambda: len(args[0])}  # one per record
            self.found[name] += many[name]() if name in many else 2 if name in TWICE else 1
        return func(*args, **(kwargs or {}))


COUNT = Kernels()


class Launch:
    """Stands in for a Triton kernel: counted, not run. What it would write is left as it is."""

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> None:
            COUNT.found["a Triton kernel"] += 1

        return launch


def as_on_a_gpu() -> None:
    """The paths a GPU takes: Triton kernels, no reading of values, one operation for a dropout, fused optimisers."""
    for file in map(kernels.__getattr__, kernels.__all__):
        for name in [name for name in vars(file) if name.endswith("_kernel")]:
            setattr(file, name, Launch())
    sliced.fits_kernel = sinkhorn.fits_kernel = lambda x, y: True
    ConvPoolFirst._takes = lambda self, x, first: not first._forward_hooks  # type: ignore[method-assign]
    PooledConv2d._takes = lambda self, wide: True  # type: ignore[method-assign]
    layers.NarrowConv2d._takes = lambda self, x: True  # type: ignore[method-assign]
    layers._fits = sanitise._fits = lambda x: True  # type: ignore[assignment]
    checks.check_finite = lambda x, name: None
    torch.nn.functional.dropout = lambda x, p, training=True, inplace=False: torch.native_dropout(x, p, training)[0]
    torch.optim.Adam = partial(torch.optim.Adam, fused=True)  # type: ignore[misc,assignment]
    dp_sinkhorn.OPTIMIZERS["adam"] = torch.optim.Adam
    classifiers.adam = lambda parameters, rate, device: torch.optim.Adam(parameters, rate)


def of_engine(make: Callable[[], Engine]) -> Counter[str]:
    """Operations of the second step: the first one makes the optimiser's state."""
    engine = make()
    engine.open(2)
    engine.one_step()
    COUNT.found.clear()
    with COUNT:
        engine.one_step()
    return COUNT.found.copy()


def means(device: torch.device) -> dict[str, Any]:
    """Budget, ledger, generators."""
    random, noise = torch.Generator(device).manual_seed(0), NoiseSource(device=device)
    return {"budget": Budget(10.0, 1e-5), "ledger": Ledger(1e-5, None), "noise": noise, "random": random}


def adaptation_engine(name: str, data: str, device: torch.device) -> Engine:
    """One stage of a method that moves a classifier from one domain to another."""
    (stage, method), (many, few, shape, classes) = ADAPTATIONS[name], SIZES[data]
    source, target = torch.rand(many, *shape, device=device), torch.rand(few, *shape, device=device)
    labels, network = torch.arange(many, device=device) % classes, network_for(shape, classes).to(device)
    given = {"source": source, "labels": labels, "target": target, "classes": classes, "network": network}
    return dict(method.stages(AdaptationProblem(**given, **means(device))))[stage]()


def generation_problem(model: Any, device: torch.device, data: tuple[int, tuple[int, ...], int] = MNIST) -> Problem:
    """So many records of a shape and so many classes, and a generator to train on them."""
    count, shape, classes = data
    images, labels = torch.rand(count, *shape, device=device), torch.arange(count, device=device) % classes
    made = model(classes=classes, shape=shape).to(device)
    return Problem(images=images, labels=labels, classes=classes, generator=made, **means(device))


def generation_engine(name: str, device: torch.device) -> Engine:
    """A method that trains a generator."""
    method, model, data = GENERATIONS[name]
    return method.prepare(generation_problem(model, device, data))


def engines(device: torch.device = CPU) -> dict[str, Callable[[], Engine]]:
    """What makes the engine of each training, by its name."""
    made: dict[str, Callable[[], Engine]] = {}
    for data in SIZES:
        made |= {f"{name}, {data}": partial(adaptation_engine, name, data, device) for name in ADAPTATIONS}
    del made["sketch's transport, office"]  # it only exists for images
    return made | {name: partial(generation_engine, name, device) for name in GENERATIONS}


def of_classifier(name: str) -> Counter[str]:
    """A step of a judging classifier; of the logistic regression, which has none, ten iterations."""
    x, y, random = torch.rand(500, 784), torch.arange(500) % 10, torch.Generator()
    COUNT.found.clear()
    if name == "MLP":
        fit = classifiers.multilayer_perceptron(x, y, 10, random, max_epochs=1)
    elif name == "CNN":
        network = classifiers.SmallCNN((1, 28, 28), 10)
        adam = torch.optim.Adam(network.parameters())
        fit = classifiers.train_with_patience(network, adam, x, y, random, batch=100, max_epochs=1, patience=1)
    else:
        fit = classifiers.logistic_regression(x, y, 10, max_iter=10)
    is_regression = name.startswith("logistic")
    with COUNT if is_regression else nullcontext():
        stepping.side_by_side([fit], x.device)
    return COUNT.found.copy() if is_regression else COUNT.of_step


def counted(step: Any) -> Any:
    """The same step of a classifier, counted anew at each call."""

    def run(self: Any, count: int) -> None:
        for _ in range(count):
            COUNT.found.clear()
            with COUNT:
                step(self, 1)
            COUNT.of_step = COUNT.found.copy()  # before what it learned is tried out

    return run


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only steps whose name holds one of these")
    wanted = parser.parse_args().names
    as_on_a_gpu()
    stepping.Epochs._steps_in_order = counted(stepping.Epochs._steps_in_order)  # type: ignore[method-assign]
    steps: dict[str, Any] = {name: partial(of_engine, make) for name, make in engines().items()}
    steps |= {f"judge: {name}": partial(of_classifier, name) for name in ("CNN", "MLP", "logistic regression ×10")}
    print("| step | operations | most frequent |", "|---|---|---|", sep="\n")
    for name, count in steps.items():
        if not wanted or any(part in name for part in wanted):
            found = count()
            most = ", ".join(f"{times} {operation}" for operation, times in found.most_common(10))
            print(f"| {name} | {found.total()} | {most} |", flush=True)


if __name__ == "__main__":
    main()
