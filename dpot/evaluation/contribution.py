"""What each of several parties contributes to a common model: Shapley values of validation accuracy.

    φ_i = Σ_{S ∌ i} |S|!(m - |S| - 1)!/m! · (U(S ∪ {i}) - U(S))

`retrained` trains a model for every coalition (the ground truth, 2^m - 1 trainings). `federated` runs FedAvg once and
rebuilds coalitions from the parties' updates: MR adds the exact Shapley values of all rounds (Song et al. 2019), GTG
samples permutations and stops where nothing is left to gain (Liu et al. 2022). The model is softmax regression.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Utility = Callable[[frozenset[int]], float]


def shapley(parties: int, utility: Utility) -> list[float]:
    """The exact Shapley values of a utility of coalitions."""
    values = {}
    for size in range(parties + 1):
        for chosen in itertools.combinations(range(parties), size):
            values[frozenset(chosen)] = utility(frozenset(chosen))
    found = []
    for i in range(parties):
        total = 0.0
        for coalition, value in values.items():
            if i not in coalition:
                s = len(coalition)
                weight = math.factorial(s) * math.factorial(parties - s - 1) / math.factorial(parties)
                total += weight * (values[coalition | {i}] - value)
        found.append(total)
    return found


class SoftmaxRegression:
    """Full-batch gradient descent with momentum on the logistic loss; inputs get a constant column."""

    def __init__(self, classes: int, rate: float = 0.02, momentum: float = 0.9) -> None:
        self.classes, self.rate, self.momentum = classes, rate, momentum

    def start(self, x: Tensor) -> Tensor:
        """Weights of zero."""
        return torch.zeros(x.shape[1] + 1, self.classes, dtype=x.dtype)

    def train(self, weights: Tensor, x: Tensor, y: Tensor, steps: int) -> Tensor:
        """The weights after so many steps from `weights`."""
        design, target = _design(x), torch.nn.functional.one_hot(y, self.classes).to(x.dtype)
        speed = torch.zeros_like(weights)
        for _ in range(steps):
            slope = design.T @ (torch.softmax(design @ weights, 1) - target) / len(x)
            speed = self.momentum * speed + slope
            weights = weights - self.rate * speed
        return weights

    def accuracy(self, weights: Tensor, x: Tensor, y: Tensor) -> float:
        """Share of right answers."""
        return float(((_design(x) @ weights).argmax(1) == y).double().mean())


def retrained(
    model: SoftmaxRegression, data: Sequence[tuple[Tensor, Tensor]], validation: tuple[Tensor, Tensor], steps: int = 100
) -> list[float]:
    """Shapley values with a model trained from scratch for every coalition; the empty one guesses a class."""

    def utility(coalition: frozenset[int]) -> float:
        if not coalition:
            return 1 / model.classes
        x, y = (torch.cat([data[i][part] for i in sorted(coalition)]) for part in (0, 1))
        return model.accuracy(model.train(model.start(x), x, y, steps), *validation)

    return shapley(len(data), utility)


def federated(
    model: SoftmaxRegression,
    data: Sequence[tuple[Tensor, Tensor]],
    validation: tuple[Tensor, Tensor],
    random: torch.Generator,
    rounds: int = 5,
    local_steps: int = 10,
    permutations: int = 20,
    least_gain: float = 1e-3,
) -> tuple[list[float], list[float]]:
    """(MR, GTG-Shapley) from one run of FedAvg."""
    weights = model.start(data[0][0])
    m = len(data)
    multi_round, guided = [0.0] * m, [0.0] * m
    for _ in range(rounds):
        updates = [model.train(weights, x, y, local_steps) - weights for x, y in data]
        known: dict[frozenset[int], float] = {}

        def utility(
            coalition: frozenset[int],
            weights: Tensor = weights,
            updates: list[Tensor] = updates,
            known: dict[frozenset[int], float] = known,
        ) -> float:
            if coalition not in known:
                step = torch.stack([updates[i] for i in sorted(coalition)]).mean(0) if coalition else 0.0
                known[coalition] = model.accuracy(weights + step, *validation)
            return known[coalition]

        everybody = frozenset(range(m))
        if abs(utility(everybody) - utility(frozenset())) >= least_gain:  # else the round is skipped
            for i, value in enumerate(_by_permutations(m, utility, permutations, least_gain, random)):
                guided[i] += value
        for i, value in enumerate(shapley(m, utility)):
            multi_round[i] += value
        weights = weights + torch.stack(updates).mean(0)
    return multi_round, guided


def _by_permutations(
    m: int, utility: Utility, permutations: int, least_gain: float, random: torch.Generator
) -> list[float]:
    """Marginal gains averaged over permutations, every party first equally often; the tail is cut where all is won."""
    totals, last = [0.0] * m, utility(frozenset(range(m)))
    for number in range(permutations):
        rest = [i for i in torch.randperm(m, generator=random).tolist() if i != number % m]
        before, joined = utility(frozenset()), frozenset[int]()
        for i in (number % m, *rest):
            if abs(last - before) < least_gain:
                break
            joined = joined | {i}
            after = utility(joined)
            totals[i] += (after - before) / permutations
            before = after
    return totals


def _design(x: Tensor) -> Tensor:
    return torch.cat((x, x.new_ones(len(x), 1)), 1)
