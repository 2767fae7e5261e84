"""How close a synthetic table is to a real one, and what a classifier learns from it.

Tables are compared as whole numbers: a code per column and record, `sizes` saying how many codes a column has.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]  # (records, columns)
QUERIES = 1000
EPOCHS = 20  # of the neural network


def total_variation(real: Codes, fake: Codes, sizes: Sequence[int], ways: int) -> float:
    """Mean over all sets of `ways` columns of ½ Σ |p - q|, p and q being the shares of each combination of codes."""
    found = []
    for columns in combinations(range(len(sizes)), ways):
        shape = [sizes[column] for column in columns]
        shares = [_shares(table[:, columns], shape) for table in (real, fake)]
        found.append(0.5 * float(np.abs(shares[0] - shares[1]).sum()))
    return float(np.mean(found))


def query_error(
    real: Codes, fake: Codes, sizes: Sequence[int], ordered: Sequence[bool], seed: int = 0, count: int = QUERIES
) -> float:
    """Mean absolute error of `count` random conjunctions over three columns (all, where there are fewer).

    A conjunction asks which share of the records has, in an ordered column, a code up to a random one, and, in another
    one, a code from a random half of its codes. Ordered columns are given at full resolution, not in bins.
    """
    random = np.random.default_rng(seed)
    errors = []
    for _ in range(count):
        held = [np.ones(len(table), bool) for table in (real, fake)]
        for column in random.choice(len(sizes), min(3, len(sizes)), replace=False):
            size = sizes[column]
            asked = np.arange(size) <= random.random() * (size - 1) if ordered[column] else random.random(size) < 0.5
            held = [own & asked[table[:, column]] for own, table in zip(held, (real, fake), strict=True)]
        errors.append(abs(held[0].mean() - held[1].mean()))
    return float(np.mean(errors))


def learned(
    fake: tuple[NDArray[Any], NDArray[Any]],
    real: tuple[NDArray[Any], NDArray[Any]],
    categories: Sequence[int],
    seed: int = 0,
    groups: Mapping[str, NDArray[Any]] | None = None,
) -> dict[str, float]:
    """Balanced accuracy and AUC, on real records, of classifiers that were trained on synthetic ones.

    `categories` are the columns whose numbers are names. `groups` divides the real records: the accuracy of the group
    that fares worst is given as well.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    found: dict[str, float] = {}
    known = np.unique(fake[1])
    for name, make in _learners(categories, fake[0].shape[1], seed).items():
        if len(known) < 2:
            found |= {f"{name}_balanced": 1 / len(np.unique(real[1])), f"{name}_auc": 0.5}
            continue
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # epochs are given
            model = make().fit(*fake)
        said = model.predict(real[0])
        found[f"{name}_balanced"] = float(balanced_accuracy_score(real[1], said))
        chances = model.predict_proba(real[0])
        if len(known) == 2:
            found[f"{name}_auc"] = float(roc_auc_score(real[1] == known[1], chances[:, 1]))
        else:
            each = [roc_auc_score(real[1] == k, chances[:, i]) for i, k in enumerate(known) if (real[1] == k).any()]
            found[f"{name}_auc"] = float(np.mean(each))
        for title, group in (groups or {}).items():
            right = [float((said == real[1])[group == value].mean()) for value in np.unique(group)]
            found[f"{name}_worst_{title}"] = min(right)
    return found


def _learners(categories: Sequence[int], columns: int, seed: int) -> dict[str, Callable[[], Any]]:
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    def coded(model: Any) -> Any:
        numbers = [column for column in range(columns) if column not in categories]
        names = OneHotEncoder(handle_unknown="ignore")
        parts = [("names", names, list(categories)), ("numbers", StandardScaler(), numbers)]
        return make_pipeline(ColumnTransformer(parts), model)

    return {
        "gb": lambda: HistGradientBoostingClassifier(random_state=seed),
        "lr": lambda: coded(LogisticRegression(max_iter=1000)),
        "mlp": lambda: coded(MLPClassifier((64,), max_iter=EPOCHS, random_state=seed)),
    }


def _shares(codes: Codes, shape: list[int]) -> NDArray[np.float64]:
    flat = np.ravel_multi_index(tuple(codes.T), shape)
    return np.bincount(flat, minlength=math.prod(shape)) / len(codes)
