"""DPImageBench's protocol: three large networks trained on synthetic images, and an FID against the private ones.

60,000 synthetic images, permuted; the first 55,000 are learned from, the others can serve as validation images. After
every epoch the network with averaged weights (and BatchNorm's statistics as they are) is measured on validation images;
the best epoch is tested. The benchmark takes *private* images for that, without noise, up to 200 times a network. So
the accuracies by its way of choosing (`resnet`, `mean`, `best`) are covered by no ε; those that were chosen by the
held-out synthetic images (`resnet_sound`, `mean_sound`, `best_sound`) are covered.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpot.errors import UsageError
from dpot.evaluation.bench_networks import Name, network_of
from dpot.evaluation.classifiers import adam
from dpot.evaluation.downstream import Accuracies, Downstream, Draw
from dpot.evaluation.fid import FrechetInception
from dpot.evaluation.stepping import Epochs, Fit, settled
from dpot.ranges import Count
from dpot.training.ema import EMA

SAMPLES, LEARNED = 60_000, 55_000
NETWORKS: tuple[Name, ...] = ("resnet", "wrn", "resnext")
SENSITIVE, SYNTHETIC, LAST = "", "_sound", "_last"  # how the epoch was chosen: what the names of accuracies end with
DECAY = 0.9999  # of the averaged weights
FACTOR = 0.2  # by which the learning rate falls
PREDICTED_AT_ONCE = 2_000


@dataclass(frozen=True)
class Recipe:
    """How the networks are trained."""

    epochs: int
    falls: int  # the learning rate does, after so many epochs each time
    batch: int
    rate: float
    momentum: float | None = None  # None: Adam
    weight_decay: float = 0.0

    def optimiser(self, network: nn.Module, device: torch.device) -> torch.optim.Optimizer:
        """Adam, or SGD with momentum."""
        if self.momentum is None:
            return adam(network.parameters(), self.rate, device)
        fused = device.type == "cuda"
        options: dict[str, Any] = {"momentum": self.momentum, "weight_decay": self.weight_decay, "fused": fused}
        return torch.optim.SGD(network.parameters(), lr=self.rate, **options)

    def shortened(self, epochs: int | None) -> Recipe:
        """The same learning rates over fewer epochs."""
        if epochs is None:
            return self
        falls = max(1, round(self.falls * epochs / self.epochs))
        return Recipe(epochs, falls, self.batch, self.rate, self.momentum, self.weight_decay)


CIFAR = Recipe(epochs=200, falls=60, batch=126, rate=0.1, momentum=0.9, weight_decay=5e-4)
OTHERS = Recipe(epochs=50, falls=20, batch=256, rate=0.01)


class ImageBench(Downstream):
    """The whole protocol; what is given shortens it, and the record then says that it is not the protocol.

    networks: which of the three. epochs: of each; None: 200 for CIFAR, 50 for others. bfloat16: matrix units of a GPU
    work in it; weights, norms and losses are in single precision.
    """

    def __init__(
        self,
        networks: Sequence[Name] = NETWORKS,
        epochs: Count | None = None,
        samples: Count = SAMPLES,
        passes: Count = 1,
        bfloat16: bool = True,
    ) -> None:
        unknown = [name for name in networks if name not in NETWORKS]
        if unknown:
            raise UsageError(f"classifier.networks: {unknown[0]} is none of {', '.join(NETWORKS)}")
        self.kinds: list[Any] = list(networks)
        self.epochs, self.samples, self.passes, self.bfloat16 = epochs, samples, passes, bfloat16
        self.validation: tuple[Tensor, Tensor] | None = None
        self.recipe, self.cifar = OTHERS, False
        self.frechet = FrechetInception(samples=SAMPLES, reference="train", round_to_bytes=False)

    def meet(self, data: str, validation: tuple[Tensor, Tensor] | None) -> None:
        """Which networks and validation images."""
        self.cifar = "cifar" in data
        self.recipe, self.validation = CIFAR if self.cifar else OTHERS, validation

    def check(self, shape: tuple[int, ...], samples: int | None) -> None:
        """Refuse what could not be judged so."""
        if (samples or self.samples) < 24:
            raise UsageError("classifier.samples, profile.samples: the benchmark's networks need at least 24 images")
        if min(shape[1:]) < 4:
            raise UsageError("classifier: the benchmark's networks halve images twice: 4×4 or more are needed")

    def exams(self, draw: Draw, test_x: Tensor, test_y: Tensor, classes: int, seed: int) -> Iterator[Fit[Any]]:
        """A training for each pass and network; each gives its accuracies, by how the epoch is chosen."""
        for index in range(self.passes if self.kinds else 0):
            x, y = draw(self.samples)
            order = torch.from_numpy(np.random.default_rng(0).permutation(len(x))).to(x.device)
            learned = round(len(x) * LEARNED / SAMPLES)
            images, labels = prepared(x[order]), y[order]
            chosen_by = {SYNTHETIC: (images[learned:], labels[learned:])}
            if self.validation is not None:
                own_x, own_y = (part.to(x.device) for part in self.validation)
                chosen_by[SENSITIVE] = prepared(own_x), own_y
            test = prepared(test_x), test_y
            for kind in self.kinds:
                generator = torch.Generator(x.device).manual_seed(1000 * seed + index)
                yield self._judged(kind, (images[:learned], labels[:learned]), chosen_by, test, classes, generator)

    def gather(self, results: Sequence[Any]) -> Accuracies:
        """By network and way of choosing, then their mean and their best."""
        found: Accuracies = {}
        ways = (SENSITIVE, SYNTHETIC, LAST) if self.validation is not None else (SYNTHETIC, LAST)
        for way in ways:
            for i, kind in enumerate(self.kinds):
                found[kind + way] = [result[way] for result in results[i :: len(self.kinds)]]
            per_pass = list(zip(*(found[kind + way] for kind in self.kinds), strict=True))
            if way != LAST and per_pass:
                found["mean" + way] = [statistics.fmean(values) for values in per_pass]
                found["best" + way] = [max(values) for values in per_pass]
        return found

    def remarks(self) -> dict[str, str]:
        """What a record must say beside the accuracies: whether this was the protocol."""
        recipe, short = self.recipe.shortened(self.epochs), []
        if recipe.epochs != self.recipe.epochs:
            short.append(f"{recipe.epochs} of {self.recipe.epochs} epochs")
        if self.samples != SAMPLES:
            short.append(f"{self.samples:,} of {SAMPLES:,} samples")
        if set(self.kinds) != set(NETWORKS):
            short.append(f"of its three networks {', '.join(self.kinds)}")
        if self.validation is None:
            short.append("no private validation images: use one of the data sets bench_...")
        return {"protocol": "not DPImageBench's protocol: " + "; ".join(short) if short else "DPImageBench"}

    def uncovered(self) -> list[str]:
        """What no ε covers in the accuracies."""
        found = ["the number N of training records, which the benchmark takes to be public: its δ is 1/(N·ln N)"]
        if self.validation is not None:
            looks = self.recipe.shortened(self.epochs).epochs * len(self.kinds)
            found.append(
                f"the epoch at which each classifier was tested: it was chosen by the accuracy on "
                f"{len(self.validation[1]):,} private validation images, without noise, {looks} times; accuracies "
                "whose names end in _sound were chosen by synthetic images instead, and are covered"
            )
        return found

    def _judged(
        self,
        kind: Name,
        learned: tuple[Tensor, Tensor],
        chosen_by: Mapping[str, tuple[Tensor, Tensor]],
        test: tuple[Tensor, Tensor],
        classes: int,
        generator: torch.Generator,
    ) -> Fit[dict[str, float]]:
        (images, labels), device = learned, learned[0].device
        torch.manual_seed(generator.initial_seed())  # the network's weights, dropout
        network = network_of(kind, images.shape[1], classes, self.cifar).to(device)
        recipe = self.recipe.shortened(self.epochs)
        optimiser = recipe.optimiser(network, device)
        average = EMA(network, DECAY)
        average.updates.fill_(1)  # the benchmark's decay is (1 + t)/(10 + t) at the t-th step

        def loss(rows: Tensor) -> Tensor:
            with self._precision(device):
                logits = network(images.index_select(0, rows).contiguous(memory_format=torch.channels_last))
            return F.cross_entropy(logits.float(), labels.index_select(0, rows))

        best = dict.fromkeys(chosen_by, -1.0)
        kept: dict[str, dict[str, Tensor]] = {}
        for epoch in range(recipe.epochs):
            if epoch % recipe.falls == 0:  # a captured step has its learning rate in it: a new one for each
                for group in optimiser.param_groups:
                    group["lr"] = recipe.rate * FACTOR ** (epoch // recipe.falls)
                batch = min(recipe.batch, len(images))
                epochs = Epochs(loss, optimiser, batch, device, fast=True, after=average.update)
            network.train()
            yield from epochs.run(torch.randperm(len(images), generator=generator, device=device))
            right = {way: self._right(average.module, *validation) for way, validation in chosen_by.items()}
            yield from settled(device)
            for way, found in right.items():
                if float(found) >= best[way]:
                    best[way], kept[way] = float(found), copy.deepcopy(average.module.state_dict())
        kept[LAST] = copy.deepcopy(average.module.state_dict())
        accuracies = {}
        for way, state in kept.items():
            average.module.load_state_dict(state)
            accuracies[way] = 100 * float(self._right(average.module, *test))
        return accuracies

    @torch.no_grad()
    def _right(self, network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        """The share of images whose label is found."""
        network.eval()
        with self._precision(images.device):
            found = [network(part).argmax(1) for part in images.split(PREDICTED_AT_ONCE)]
        return (torch.cat(found) == labels).float().mean()

    def _precision(self, device: torch.device) -> torch.autocast:
        return torch.autocast(device.type, torch.bfloat16, enabled=self.bfloat16 and device.type == "cuda")


def prepared(images: Tensor) -> Tensor:
    """Pixels from -1 to 1, in the layout in which a GPU convolves without rearranging."""
    return (2 * images - 1).contiguous(memory_format=torch.channels_last)
