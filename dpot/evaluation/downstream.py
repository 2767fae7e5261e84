"""Downstream accuracy: train on synthetic data, test on real data, by the protocol of a paper.

Accuracies that were measured before a run was stopped are not measured twice (`Marks`).
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dpot.disk import write_atomically
from dpot.errors import UsageError
from dpot.evaluation import classifiers
from dpot.evaluation.fid import FrechetInception
from dpot.evaluation.stepping import Fit, side_by_side
from dpot.ranges import Count

log = logging.getLogger("dpot")
Kind = Literal["logreg", "mlp", "cnn", "cnn_adam"]
Draw = Callable[[int], tuple[Tensor, Tensor]]
Accuracies = dict[str, list[float]]
SKLEARNS = ("merf", "gs_wgan")  # protocols whose LogReg and MLP are scikit-learn's
PATIENCE: dict[Kind, int] = {"logreg": 10, "mlp": 30, "cnn": 60, "cnn_adam": 60}  # of DP-Sinkhorn, in epochs


class Downstream:
    """A protocol: which classifiers, trained how, on how many samples, how often.

    protocol "merf" is DP-MERF's and DP-SWD's (scikit-learn's objectives), "dp_sinkhorn" is that of DP-Sinkhorn's code
    (torch, best epoch on held-out synthetic data), "sinkhorn" the same with smaller batches, momentum and a larger CNN.
    "gs_wgan" is scikit-learn's objectives plus that CNN. "cnn_adam" is how DP-Sinkhorn's code can train its CNN too.
    """

    def __init__(
        self,
        protocol: Literal["merf", "dp_sinkhorn", "sinkhorn", "gs_wgan"] = "merf",
        kinds: Sequence[Kind] = ("logreg", "mlp"),
        samples: Count = 60_000,
        passes: Count = 5,
        backend: Literal["torch", "sklearn"] = "torch",
    ) -> None:
        self.protocol, self.kinds, self.samples, self.passes = protocol, list(kinds), samples, passes
        self.backend = backend
        if "cnn_adam" in kinds and protocol != "dp_sinkhorn":
            raise UsageError("classifier.kinds: cnn_adam is DP-Sinkhorn's: use protocol=dp_sinkhorn, or cnn")
        if backend == "sklearn" and (protocol not in SKLEARNS or "cnn" in kinds):
            raise UsageError("classifier.backend=sklearn has no CNN and no patience: use protocol=merf without cnn")

    frechet: FrechetInception | None = None  # the protocol's own FID, in the place of the task's

    def meet(self, data: str, validation: tuple[Tensor, Tensor] | None) -> None:
        """What will be judged, the name of the data and their validation images: a protocol may depend on it."""

    def remarks(self) -> dict[str, str]:
        """What a record must say beside the accuracies."""
        return {}

    def uncovered(self) -> list[str]:
        """What no ε covers in the accuracies, beside what is always so."""
        return []

    def check(self, shape: tuple[int, ...], samples: int | None) -> None:
        """Refuse what could not be judged so, before anything is trained for it."""
        if (samples or self.samples) < 2:
            raise UsageError("classifier.samples, profile.samples: a classifier needs at least two images")
        least = classifiers.ThreeConvolutions.least_side
        if self.protocol == "dp_sinkhorn" and {"cnn", "cnn_adam"} & set(self.kinds) and min(shape[1:]) < least:
            raise UsageError(
                f"classifier: DP-Sinkhorn's CNN needs images of {least}×{least} or more, not {shape[1]}×{shape[2]}: "
                "use classifier.kinds=[logreg,mlp] or another classifier"
            )

    def evaluate(self, draw: Draw, test_x: Tensor, test_y: Tensor, classes: int, seed: int) -> Accuracies:
        """Accuracies in % per classifier, one per pass; each pass draws its own samples."""
        return self.gather(side_by_side(self.exams(draw, test_x, test_y, classes, seed), test_x.device))

    def exams(self, draw: Draw, test_x: Tensor, test_y: Tensor, classes: int, seed: int) -> Iterator[Fit[Any]]:
        """A training and its accuracy for each pass and classifier; a pass's samples are drawn when it is asked for."""
        shape = tuple(test_x.shape[1:])
        from_minus_one = self.protocol == "dp_sinkhorn"  # to one, black to white; the others see 0 to 1
        test_x = 2 * test_x - 1 if from_minus_one else test_x
        for index in range(self.passes if self.kinds else 0):
            x, y = draw(self.samples)
            x = 2 * x - 1 if from_minus_one else x
            for kind in self.kinds:
                generator = torch.Generator(x.device).manual_seed(1000 * seed + index)
                yield self._exam(self._fit(kind, x.flatten(1), y, classes, shape, generator), test_x, test_y)

    def gather(self, results: Sequence[Any]) -> Accuracies:
        """What the exams gave, in their order, by classifier."""
        return {kind: list(results[i :: len(self.kinds)]) for i, kind in enumerate(self.kinds)}

    def _exam(self, fit: Fit[classifiers.Predict], test_x: Tensor, test_y: Tensor) -> Fit[float]:
        predict = yield from fit
        correct = predict(test_x.flatten(1)) == test_y
        return 100 * float(correct.float().mean())

    def _fit(
        self,
        kind: Kind,
        x: Tensor,
        y: Tensor,
        classes: int,
        shape: tuple[int, ...],
        generator: torch.Generator,
    ) -> Fit[classifiers.Predict]:
        seed = generator.initial_seed()
        if self.backend == "sklearn":
            return _sklearn(kind, x, y, seed)
        if self.protocol in SKLEARNS and kind == "logreg":
            return (yield from classifiers.logistic_regression(x, y, classes))
        if self.protocol in SKLEARNS and kind == "mlp":
            return (yield from classifiers.multilayer_perceptron(x, y, classes, generator))
        torch.manual_seed(seed)  # the network's weights, dropout
        plan: dict[str, int]
        if self.protocol == "dp_sinkhorn":
            network, optimiser, plan = dp_sinkhorn_network(kind, x.shape[1], shape, classes, x.device)
        elif self.protocol == "sinkhorn":
            network, optimiser, plan = sinkhorn_network(kind, x.shape[1], shape, classes, x.device)
        else:  # GS-WGAN's CNN: its optimiser was not published; Adam's defaults and a short patience
            network = classifiers.SmallCNN(shape, classes).to(x.device)  # type: ignore[arg-type]
            optimiser = classifiers.adam(network.parameters(), 1e-3, x.device)
            plan = {"batch": 128, "max_epochs": 300, "patience": 6}
        return (yield from classifiers.train_with_patience(network, optimiser, x, y, generator, **plan))


def dp_sinkhorn_network(
    kind: Kind, features: int, shape: tuple[int, ...], classes: int, device: torch.device
) -> tuple[nn.Module, torch.optim.Optimizer, dict[str, int]]:
    """As DP-Sinkhorn's code trains them: LogReg and MLP 784-100-10 by Adam 1e-4, the CNN by plain SGD 1e-3."""
    plan = {"batch": 512, "max_epochs": 500 if kind == "cnn" else 300, "patience": PATIENCE[kind]}
    if kind in ("cnn", "cnn_adam"):
        network: nn.Module = classifiers.ThreeConvolutions(shape, classes).to(device)  # type: ignore[arg-type]
    else:
        network = _shallow(kind, features, classes).to(device)
    if kind == "cnn":
        return network, torch.optim.SGD(network.parameters(), lr=1e-3, fused=device.type == "cuda"), plan
    return network, classifiers.adam(network.parameters(), 1e-4, device, weight_decay=1e-6), plan


def sinkhorn_network(
    kind: Kind, features: int, shape: tuple[int, ...], classes: int, device: torch.device
) -> tuple[nn.Module, torch.optim.Optimizer, dict[str, int]]:
    """Nearly so: smaller batches, no weight decay, and an SGD with momentum for a larger CNN."""
    plan = {"batch": 128, "max_epochs": 300, "patience": PATIENCE[kind] + 1}
    if kind == "cnn":
        network: nn.Module = classifiers.SmallCNN(shape, classes).to(device)  # type: ignore[arg-type]
        fused = device.type == "cuda"
        return network, torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, fused=fused), plan
    network = _shallow(kind, features, classes).to(device)
    return network, classifiers.adam(network.parameters(), 1e-4, device), plan


def _shallow(kind: Kind, features: int, classes: int) -> nn.Module:
    if kind == "logreg":
        return nn.Linear(features, classes)
    return nn.Sequential(nn.Linear(features, 100), nn.ReLU(), nn.Linear(100, classes))


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


class Marks:
    """What the exams of a run gave so far, in a file; it counts for one trained model, code and data alone."""

    def __init__(self, path: Path, model: nn.Module, code_and_data: str) -> None:
        self.path, self.key = path, f"{_digest(model)} {code_and_data}"
        self._found: dict[str, Any] = self._read()

    def of(self, exams: Iterator[Fit[Any]]) -> Iterator[Fit[Any]]:
        """The exams; one whose mark is known ends with it at once.

        Its samples are drawn all the same, so that those of the later ones are what they would have been.
        """
        for number, exam in enumerate(exams):
            yield self._sat(str(number), exam)

    def _sat(self, number: str, exam: Fit[Any]) -> Fit[Any]:
        if number not in self._found:
            self._found[number] = yield from exam
            self._write()
        exam.close()
        return self._found[number]

    def _read(self) -> dict[str, Any]:
        try:
            kept = json.loads(self.path.read_text())
            return dict(kept["marks"]) if kept["key"] == self.key else {}
        except (OSError, ValueError, KeyError, TypeError):  # none, or broken: they are measured again
            return {}

    def _write(self) -> None:
        try:
            write_atomically(self.path, json.dumps({"key": self.key, "marks": self._found}))
        except OSError as error:
            log.warning("accuracies are not kept before the record is written (%s)", error.strerror)


def _digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for tensor in model.state_dict().values():
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
