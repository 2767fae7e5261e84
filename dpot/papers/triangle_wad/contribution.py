"""Figure 5 of TriangleWad (what five parties contribute) and the detection of noisy features."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import torch
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from torch import Tensor

from dpot.data.base import Dataset, signed_range
from dpot.evaluation.contribution import SoftmaxRegression, federated, retrained
from dpot.methods.distance.direct_wad import DirectWad
from dpot.methods.distance.fed_wad import FedWad
from dpot.methods.distance.parties import Distance
from dpot.methods.distance.sketch import SketchDistance
from dpot.methods.distance.triangle_wad import TriangleWad
from dpot.papers.computed import Computed, Context, Table
from dpot.papers.plots import bars
from dpot.papers.triangle_wad.clouds import Side, few, points_allowed
from dpot.privacy.budget import Budget
from dpot.transport.exact import pairwise_distances
from dpot.transport.geodesic import calibrated_gradients, interpolate, measure
from dpot.transport.otdd import Statistics

PARTIES = 5
SHARES = (0.0, 0.05, 0.1, 0.15, 0.2)  # of flipped labels or noisy rows, party by party
EPSILON = 10.0
SCENARIOS = ("iid", "two classes each", "label flips", "feature noise")
NOISY = (0.05, 0.15, 0.3)  # of the rows, to be detected
STRENGTHS = (0.3, 0.5, 1.0)  # of their noise, for pixels in [-1, 1]


def figure_5(context: Context) -> Computed:
    """Five parties in four scenarios; values by retraining, by updates, by distances to a validation set."""
    data = context.data("mnist", demo="digits")
    random = torch.Generator().manual_seed(context.seed)
    size = points_allowed(400, context.profile)
    rows: list[dict[str, Any]] = []
    panels = []
    for scenario in SCENARIOS:
        sides, validation = _parties(data, scenario, size, random)
        values = _values(context, sides, validation, random)
        truth = values["Shapley, retrained"]
        for name, found in values.items():
            agreement = None if scenario == "iid" else float(spearmanr(truth, found).statistic)
            rows.append({"scenario": scenario, "method": name, "values": found, "rank correlation": agreement})
        panels.append((scenario, {name: _standard(found) for name, found in values.items()}))
    detection = _detection(context, data, random)
    note = (
        f"{size} records each, validation {size}; the model is softmax regression. rank correlation: Spearman, with "
        "the retrained Shapley values (not for iid parties, which are alike). Distances are negated, W_2 on pixels "
        f"with class statistics (OTDD); ours is a sketch with labels at ε = {EPSILON:g} for each party. Party 5 has "
        "the most flips or noise. Bars: values standardised within each method. detection: rows with noise N(0, std²) "
        "added to their pixels, ranked by calibrated gradients (LAVA's score) on what each protocol shows."
    )
    picture = bars(panels, [f"party {i + 1}" for i in range(PARTIES)], "Figure 5: contribution of five parties")
    tables = (
        Table("TriangleWad, Figure 5: contribution of five parties", rows),
        Table("TriangleWad, Figure 5: detection of noisy features", detection, note),
    )
    return Computed({"rows": rows, "detection": detection}, tables, {"": picture}, [data])


def _standard(values: list[float]) -> list[float]:
    spread = statistics.pstdev(values)
    return [(v - statistics.fmean(values)) / spread if spread > 0 else 0.0 for v in values]


def _parties(data: Dataset, scenario: str, size: int, random: torch.Generator) -> tuple[list[Side], Side]:
    train = data.train
    assert train.y is not None
    assert data.test.y is not None
    order = torch.randperm(len(train), generator=random)
    labels = train.y[order]
    taken = torch.zeros(len(order), dtype=torch.bool)
    sides = []
    for party, share in enumerate(SHARES):
        chosen = _pick(labels, taken, size, party if scenario == "two classes each" else None, data.classes)
        taken[chosen] = True
        x, y = _flat(train.x[order[chosen]]), labels[chosen].clone()
        marked = torch.randperm(len(y), generator=random)[: round(share * len(y))]
        if scenario == "label flips":
            y[marked] = (y[marked] + 1 + torch.randint(data.classes - 1, marked.shape, generator=random)) % data.classes
        if scenario == "feature noise":
            x[marked] += torch.randn(x[marked].shape, generator=random, dtype=x.dtype)
        sides.append(Side(x, y, data.classes))
    held = torch.randperm(len(data.test), generator=random)[:size]
    return sides, Side(_flat(data.test.x[held]), data.test.y[held], data.classes)


def _pick(labels: Tensor, taken: Tensor, size: int, favourite: int | None, classes: int) -> Tensor:
    """Free records in random order: any, or 80% of the two favourite classes (where there are enough)."""
    free = (~taken).nonzero().flatten()
    if favourite is None:
        return free[:size]
    own = torch.isin(labels[free], torch.tensor([2 * favourite % classes, (2 * favourite + 1) % classes]))
    main = free[own][: round(0.8 * size)]
    return torch.cat((main, free[~own][: size - len(main)]))


def _flat(images: Tensor) -> Tensor:
    return signed_range(images).double().flatten(1)


def _values(context: Context, sides: list[Side], validation: Side, random: torch.Generator) -> dict[str, list[float]]:
    model = SoftmaxRegression(validation.classes)
    sets = [(side.x, side.y) for side in sides if side.y is not None]
    assert validation.y is not None
    held = validation.x, validation.y
    multi_round, guided = federated(model, sets, held, random)
    sketch = SketchDistance(clip=28.0, label_scale=10.0, directions=16)
    values = {
        "Shapley, retrained": retrained(model, sets, held, steps=60),
        "GTG-Shapley": guided,
        "MR": multi_round,
        "DirectWad": _closeness(DirectWad(), sides, validation, "class", Budget(None)),
        "FedBary (FedWad)": _closeness(
            FedWad(rounds=few(4, context.profile)), sides, validation, "class", Budget(None)
        ),
        "TriangleWad": _closeness(TriangleWad(), sides, validation, "class", Budget(None)),
        f"sketch, ε = {EPSILON:g}": _closeness(sketch, sides, validation, "none", Budget(EPSILON, conversion="tight")),
    }
    return values


def _closeness(
    method: Distance, sides: list[Side], validation: Side, statistics: Statistics, budget: Budget
) -> list[float]:
    """Minus the distance of each party to the validation set."""
    found = []
    for side in sides:
        pair = side.party("mu", statistics), validation.party("nu", statistics)
        found.append(-method.estimate(*pair, torch.Generator().manual_seed(0), budget).value)
    return found


def _detection(context: Context, data: Dataset, random: torch.Generator) -> list[dict[str, Any]]:
    """Rows with added noise ranked by each score: AUC, share found among as many flagged as there are, false ones."""
    size = points_allowed(300, context.profile)
    rows = []
    for std, share in itertools.product(STRENGTHS, NOISY):
        order = torch.randperm(len(data.train), generator=random)
        count = max(1, round(share * size))
        x = _flat(data.train.x[order[:size]])
        x[:count] += std * torch.randn(x[:count].shape, generator=random, dtype=x.dtype)
        points, held = measure(x), measure(_flat(data.train.x[order[size : 2 * size]]))
        gamma = measure(torch.randn(x.shape, generator=random, dtype=torch.float64))
        eta, eta_held = (interpolate(m, gamma, 0.5) for m in (points, held))
        scores = {
            "LAVA (raw data)": calibrated_gradients(points, held),
            "TriangleWad": calibrated_gradients(eta, eta_held),
            "FedBary (on the geodesic)": calibrated_gradients(interpolate(points, held, 0.5), held),
            "‖η‖², no transport at all": eta.points.square().sum(1),
            "exact duals (raw data)": _exact_dual(points.points, held.points),
        }
        for name, score in scores.items():
            rows.append({"noise std": std, "noisy": share, "score": name} | _found(score, count))
    return rows


def _found(score: Tensor, count: int) -> dict[str, float]:
    truth = torch.zeros(len(score), dtype=torch.bool)
    truth[:count] = True
    flagged = torch.zeros_like(truth)
    flagged[score.argsort(descending=True)[:count]] = True
    return {
        "AUC": float(roc_auc_score(truth.numpy(), score.numpy())),
        "found": float((flagged & truth).sum() / truth.sum()),
        "false positives": float((flagged & ~truth).sum() / (~truth).sum()),
    }


def _exact_dual(x: Tensor, y: Tensor) -> Tensor:
    import ot

    cost = pairwise_distances(x, y) ** 2
    _, log = ot.emd([], [], cost.numpy(), log=True)
    return torch.from_numpy(log["u"])
