"""The classifiers that judge synthetic data: trained on it, tested on real images.

Each is one function (x, y, classes, generator) → a fit that ends in `predict` (stepping.side_by_side runs it), on
whichever device x lies, so that 60,000 samples take seconds on a GPU. Where a protocol was published with
scikit-learn, the same objective and stopping rule are used here; tests hold them against scikit-learn itself.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpot.evaluation.stepping import Epochs, Fit, settled
from dpot.models.pooling import ChannelDropout, ConvPoolFirst, PooledConv2d

Predict = Callable[[Tensor], Tensor]
ITERATIONS = 50  # of L-BFGS before the others' turn; a turn begins with an evaluation of its own


def logistic_regression(
    x: Tensor, y: Tensor, classes: int, *, C: float = 1.0, max_iter: int = 5000, tolerance: float = 1e-4
) -> Fit[Predict]:
    """Multinomial logistic regression with an L2 penalty, by L-BFGS.

    min_W  1/n Σ log-loss(x_i, y_i)  +  ‖W‖² / (2 C n),   intercept free:
    scikit-learn's LogisticRegression(C, max_iter, solver="lbfgs"). The problem is convex, so the optimum is the
    same whoever finds it; the stopping rule max|gradient| ≤ tolerance is scikit-learn's default too.
    """
    n, features = x.shape
    weight = torch.zeros(classes, features, dtype=x.dtype, device=x.device, requires_grad=True)
    bias = torch.zeros(classes, dtype=x.dtype, device=x.device, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weight, bias],
        max_iter=ITERATIONS,
        max_eval=max_iter,  # its own bound could end a turn before the iterations do
        tolerance_grad=tolerance,
        tolerance_change=torch.finfo(
            x.dtype
        ).eps,  # below that, steps are rounding errors and the rest of them lead nowhere
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(F.linear(x, weight, bias), y) + weight.square().sum() / (2 * C * n)
        value.backward()
        return value

    state, done = optimiser.state[weight], 0
    while done < max_iter:
        optimiser.step(loss)
        yield
        if state["n_iter"] < done + ITERATIONS:  # it ended by itself
            break
        done = state["n_iter"]
    return lambda new: F.linear(new, weight, bias).detach().argmax(1)


def multilayer_perceptron(
    x: Tensor,
    y: Tensor,
    classes: int,
    generator: torch.Generator,
    *,
    hidden: int = 100,
    alpha: float = 1e-4,
    batch: int = 200,
    max_epochs: int = 200,
    tolerance: float = 1e-4,
    patience: int = 10,
) -> Fit[Predict]:
    """One hidden layer of ReLUs by Adam: the objective and stopping rule of scikit-learn's MLPClassifier defaults.

    Glorot-uniform weights, penalty α/2·‖W‖²/batch, stop when the epoch's training loss has not improved by
    `tolerance` for `patience` epochs.
    """
    device, n, sizes = x.device, len(x), (x.shape[1], hidden, classes)
    parameters: list[Tensor] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        bound = math.sqrt(6 / (fan_in + fan_out))
        for shape in ((fan_out, fan_in), (fan_out,)):
            drawn = torch.rand(shape, generator=generator, device=device, dtype=x.dtype) * 2 - 1
            parameters.append((drawn * bound).requires_grad_())
    w1, b1, w2, b2 = parameters

    zeros = [torch.zeros_like(w) for w in (w1, w2)]

    def logits(inputs: Tensor) -> Tensor:
        return F.linear(torch.relu(F.linear(inputs, w1, b1)), w2, b2)

    def loss(rows: Tensor) -> Tensor:
        # the sum of squares as a squared distance from zero: one kernel each way instead of five
        squares = F.mse_loss(w1, zeros[0], reduction="sum") + F.mse_loss(w2, zeros[1], reduction="sum")
        error = F.cross_entropy(logits(x.index_select(0, rows)), y.index_select(0, rows))
        return torch.add(error, squares, alpha=0.5 * alpha / len(rows))

    epochs = Epochs(loss, adam(parameters, 1e-3, device), min(batch, n), device)
    best, waited = math.inf, 0
    for _ in range(max_epochs):
        mean = yield from epochs.run(torch.randperm(n, generator=generator, device=device))
        waited = 0 if mean < best - tolerance else waited + 1
        best = min(best, mean)
        if waited > patience:
            break
    return lambda new: logits(new).argmax(1)


def train_with_patience(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    x: Tensor,
    y: Tensor,
    generator: torch.Generator,
    *,
    batch: int,
    max_epochs: int,
    patience: int,
    hold_out: float = 0.1,
) -> Fit[Predict]:
    """Train, keep the epoch with the best accuracy on a held-out part of the *synthetic* data (DP-Sinkhorn)."""
    order = torch.randperm(len(x), generator=generator, device=x.device)
    held = max(1, int(hold_out * len(x)))
    held_x, held_y, rows_in = x[order[:held]], y[order[:held]], order[held:]
    best, waited, kept = -1.0, 0, copy.deepcopy(network.state_dict())

    def loss(rows: Tensor) -> Tensor:
        return F.cross_entropy(network(x.index_select(0, rows)), y.index_select(0, rows))

    epochs = Epochs(loss, optimiser, min(batch, len(rows_in)), x.device, fast=True)
    for _ in range(max_epochs):
        network.train()
        yield from epochs.run(rows_in[torch.randperm(len(rows_in), generator=generator, device=x.device)])
        right = (predict(network)(held_x) == held_y).float().mean()
        yield from settled(x.device)
        accuracy = float(right)
        if accuracy > best:
            best, waited, kept = accuracy, 0, copy.deepcopy(network.state_dict())
        else:
            waited += 1
            if waited >= patience:
                break
    network.load_state_dict(kept)
    return predict(network)


def adam(
    parameters: Iterable[Tensor], rate: float, device: torch.device, weight_decay: float = 0.0
) -> torch.optim.Adam:
    """Adam; on a GPU as one kernel that counts its steps there, so that it can be captured."""
    on_gpu = device.type == "cuda"
    optimiser = torch.optim.Adam(parameters, lr=rate, weight_decay=weight_decay, fused=on_gpu, capturable=on_gpu)
    optimiser._warned_capturable_if_run_uncaptured = True  # the first steps and an epoch's rest are plain ones
    return optimiser


def predict(network: nn.Module) -> Predict:
    """The network's label for each row, in chunks, without gradients."""

    @torch.no_grad()
    def labels(new: Tensor) -> Tensor:
        network.eval()
        return torch.cat([network(part).argmax(1) for part in new.split(10_000)])

    return labels


class SmallCNN(nn.Sequential):
    """conv32-conv64-conv128, each with a border, pooling and dropout, FC 128."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        colours, height, width = shape
        first = [nn.Conv2d(colours, 32, 3, padding=1), nn.MaxPool2d(2, ceil_mode=True), nn.ReLU(), ChannelDropout(0.25)]
        later = [PooledConv2d(32, 64, 0.25), PooledConv2d(64, 128, 0.25)]
        for _ in range(3):
            height, width = -(-height // 2), -(-width // 2)
        last = [nn.Linear(128 * height * width, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes)]
        super().__init__(nn.Unflatten(1, shape), ConvPoolFirst(*first, *later, nn.Flatten(), *last))
        self.to(memory_format=torch.channels_last)


class ThreeConvolutions(nn.Sequential):
    """conv32-pool-conv64-pool-conv128, FC 128, dropout of half the channels: DP-Sinkhorn's CNN (241,546 weights)."""

    least_side = 18  # of an image of which something is left after three convolutions without a border

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        colours, height, width = shape
        first = [nn.Conv2d(colours, 32, 3), nn.MaxPool2d(2), nn.ReLU(), ChannelDropout(0.5)]
        later = [PooledConv2d(32, 64, 0.5, border=False), nn.Conv2d(64, 128, 3), nn.ReLU(), nn.Flatten()]
        height, width = (((side - 2) // 2 - 2) // 2 - 2 for side in (height, width))
        last = [nn.Linear(128 * height * width, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes)]
        super().__init__(nn.Unflatten(1, shape), ConvPoolFirst(*first, *later, *last))
        self.to(memory_format=torch.channels_last)
