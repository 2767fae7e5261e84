"""Downstream accuracy: train on synthetic data, test on real data, by the protocol of a paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from dpot.errors import UsageError
from dpot.evaluation import classifiers
from dpot.ranges import Count

Kind = Literal["logreg", "mlp", "cnn"]
Draw = Callable[[int], tuple[Tensor, Tensor]]


class Downstream:
    """A protocol: which classifiers, trained how, on how many samples, how often.

    protocol "merf" is DP-MERF's and DP-SWD's (scikit-learn's objectives), "sinkhorn" is DP-Sinkhorn's (torch, best
    epoch on held-out synthetic data). "gs_wgan" is scikit-learn's objectives plus the CNN.
    """

    def __init__(
        self,
        protocol: Literal["merf", "sinkhorn", "gs_wgan"] = "merf",
        kinds: Sequence[Kind] = ("logreg", "mlp"),
        samples: Count = 60_000,
        passes: Count = 5,
        backend: Literal["torch", "sklearn"] = "torch",
    ) -> None:
        self.protocol, self.kinds, self.samples, self.passes = protocol, list(kinds), samples, passes
        self.backend = backend
        if backend == "sklearn" and (protocol == "sinkhorn" or "cnn" in kinds):
            raise UsageError("classifier.backend=sklearn has no CNN and no patience: use protocol=merf without cnn")

    def evaluate(self, draw: Draw, test_x: Tensor, test_y: Tensor, classes: int, seed: int) -> dict[str, list[float]]:
        """Accuracies in % per classifier, one per pass; each pass draws its own samples."""
        shape = tuple(test_x.shape[1:])
        accuracies: dict[str, list[float]] = {kind: [] for kind in self.kinds}
        for index in range(self.passes if self.kinds else 0):
            x, y = draw(self.samples)
            generator = torch.Generator(x.device).manual_seed(1000 * seed + index)
            for kind in self.kinds:
                predict = self._fit(kind, x.flatten(1), y, classes, shape, generator)
                correct = predict(test_x.flatten(1)) == test_y
                accuracies[kind].append(100 * float(correct.float().mean()))
        return accuracies

    def _fit(
        self,
        kind: Kind,
        x: Tensor,
        y: Tensor,
        classes: int,
        shape: tuple[int, ...],
        generator: torch.Generator,
    ) -> classifiers.Predict:
        if self.backend == "sklearn":
            return _sklearn(kind, x, y, int(generator.initial_seed()))
        if self.protocol != "sinkhorn" and kind == "logreg":
            return classifiers.logistic_regression(x, y, classes)
        if self.protocol != "sinkhorn" and kind == "mlp":
            return classifiers.multilayer_perceptron(x, y, classes, generator)
        with torch.random.fork_rng([x.device] if x.device.type == "cuda" else []):
            torch.manual_seed(generator.initial_seed())
            if self.protocol == "sinkhorn":
                network, optimiser, patience = _sinkhorn_network(kind, x.shape[1], shape, classes, x.device)
            else:  # GS-WGAN's CNN: its optimiser was not published; Adam's defaults and a short patience
                network = classifiers.SmallCNN(shape, classes).to(x.device)  # type: ignore[arg-type]
                optimiser, patience = classifiers.adam(network.parameters(), 1e-3, x.device), 5
            return classifiers.train_with_patience(
                network, optimiser, x, y, generator, batch=128, max_epochs=300, patience=patience
            )


def _sinkhorn_network(
    kind: Kind, features: int, shape: tuple[int, ...], classes: int, device: torch.device
) -> tuple[nn.Module, torch.optim.Optimizer, int]:
    """DP-Sinkhorn's networks: LogReg and MLP 784-100-10 by Adam 1e-4, CNN by SGD 1e-3; patience 10, 30, 60."""
    if kind == "logreg":
        network: nn.Module = nn.Linear(features, classes)
        patience = 10
    elif kind == "mlp":
        network = nn.Sequential(nn.Linear(features, 100), nn.ReLU(), nn.Linear(100, classes))
        patience = 30
    else:
        network = classifiers.SmallCNN(shape, classes).to(device)  # type: ignore[arg-type]
        fused = device.type == "cuda"
        return network, torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, fused=fused), 60
    network.to(device)
    return network, classifiers.adam(network.parameters(), 1e-4, device), patience


def _sklearn(kind: Kind, x: Tensor, y: Tensor, seed: int) -> classifiers.Predict:
    """scikit-learn itself, as DP-MERF and DP-SWD ran it."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    model = (
        LogisticRegression(solver="lbfgs", max_iter=5000)
        if kind == "logreg"
        else MLPClassifier(random_state=seed % 2**32)
    )
    model.fit(x.cpu().numpy(), y.cpu().numpy())
    return lambda new: torch.as_tensor(model.predict(new.cpu().numpy()), device=new.device)
