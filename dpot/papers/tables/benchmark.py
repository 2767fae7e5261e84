"""Table 1: our sketch beside AIM and MST, on the same tables, neighbours, ε and δ, with the CPU time of each."""

from __future__ import annotations

import json
import math
import resource
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpot.evaluation.tables import learned, query_error, total_variation
from dpot.papers.computed import Computed, Context, Table
from dpot.papers.tables import peers, sets
from dpot.papers.tables.sets import TableSet
from dpot.synthesis import Synthesizer

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("real", "independent", "sketch", "mst", "aim")
SETS = ("adult", "breast_cancer", "digits", "wine", "diabetes")
EPSILONS = (0.3, 1.0, 3.0, 10.0)
SMALL = {"methods": ("real", "independent", "sketch"), "sets": ("breast_cancer",), "epsilons": (10.0,), "seeds": 1}
SHOWN = {
    "set": ("table", ""),
    "method": ("method", ""),
    "epsilon": ("ε", "g"),
    "seeds": ("seeds", ""),
    "tv1": ("TV1", ".4f"),
    "tv2": ("TV2", ".4f"),
    "tv3": ("TV3", ".4f"),
    "queries": ("3-way queries", ".4f"),
    "gb_balanced": ("GB bal.", ".3f"),
    "gb_auc": ("GB AUC", ".3f"),
    "lr_balanced": ("LR bal.", ".3f"),
    "lr_auc": ("LR AUC", ".3f"),
    "mlp_balanced": ("MLP bal.", ".3f"),
    "mlp_auc": ("MLP AUC", ".3f"),
    "gb_worst_race": ("GB worst race", ".3f"),
    "gb_worst_sex": ("GB worst sex", ".3f"),
    "cpu_seconds": ("CPU s", ".1f"),
    "memory_gb": ("GB", ".2f"),
}
NOTE = (
    "TV1, TV2, TV3: mean total variation of all histograms of one, two and three columns against the training part "
    "(numbers in bins; TV3 where there are at most 14 columns). 3-way queries: mean absolute error of 1,000 random "
    "conjunctions. GB, LR, MLP: gradient boosting, logistic regression and a neural network of one hidden layer, "
    "trained on synthetic and tested on real records: balanced accuracy, AUC, accuracy of the group that fares worst. "
    "Neighbours: replace-one; δ = 1/(N ln N). CPU s: of the process, from the records to the synthetic table."
)


def table_1(
    context: Context,
    methods: Sequence[str] | None = None,
    sets: Sequence[str] | None = None,
    epsilons: Sequence[float] | None = None,
    seeds: int | None = None,
    cells: str | None = None,
) -> Computed:
    """All cells that are asked for; those in the file `cells`, one JSON object per line, are not computed again."""
    small = context.profile.name != "paper"
    default: dict[str, Any] = SMALL if small else {"methods": METHODS, "sets": SETS, "epsilons": EPSILONS, "seeds": 5}
    known = [json.loads(line) for line in Path(cells).read_text().splitlines()] if cells else []
    found = list(known)
    if not known or methods:
        done = {_key(cell) for cell in known}
        for name in sets or default["sets"]:
            for method in methods or default["methods"]:
                private = method not in ("real", "independent")
                for epsilon in (epsilons or default["epsilons"]) if private else [0.0]:
                    for seed in range((seeds or default["seeds"]) if private else 1):
                        wanted: dict[str, Any] = {"set": name, "method": method, "epsilon": epsilon, "seed": seed}
                        if _key(wanted) not in done:
                            found.append(cell(**wanted, data_root=context.data_root))
    rows = averaged(found)
    return Computed({"cells": found, "rows": rows}, [Table("Private synthetic tables", rows, NOTE, SHOWN)])


def cell(set: str, method: str, epsilon: float, seed: int, data_root: str | None = None) -> dict[str, Any]:
    """One method on one table: what it made is judged, and its CPU time taken."""
    table = sets.load(set, data_root)
    random = np.random.default_rng(seed)
    began = time.process_time()
    fake, facts = _made(table, method, epsilon, seed, random)
    facts["cpu_seconds"] = round(time.process_time() - began, 2)
    facts["memory_gb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    scores = judged(table, fake, seed)
    return {"set": set, "method": method, "epsilon": epsilon, "seed": seed, **scores, **facts}


def _made(
    table: TableSet, method: str, epsilon: float, seed: int, random: np.random.Generator
) -> tuple[pd.DataFrame, dict[str, Any]]:
    count = len(table.train)
    delta = 1 / (count * math.log(count))
    if method == "real":
        return table.train, {}
    if method == "independent":
        return table.train.apply(lambda column: random.permutation(column.to_numpy())), {}
    if method == "sketch":
        return _sketched(table, epsilon, delta, seed)
    run = {"aim": peers.aim, "mst": peers.mst}[method]
    codes = run(table.binned(table.train), table.sizes, epsilon, delta, random)
    return table.unbinned(codes, random), {"delta": delta}


def _sketched(table: TableSet, epsilon: float, delta: float, seed: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    features = table.train.drop(columns=table.label)
    for column in table.whole & set(features.columns):
        features[column] = features[column].astype("int64")
    synthesizer = Synthesizer(
        epsilon,
        delta,
        ranges={c: r for c, r in table.ranges.items() if c != table.label},
        categories={c: list(range(n)) for c, n in table.categories.items() if c != table.label},
        classes=list(range(table.categories[table.label])),
        seed=seed,
        device="cpu",
    ).fit(features, table.train[table.label].to_numpy())
    fake, labels = synthesizer.sample(len(table.train))
    fake[table.label] = labels
    accounts = {name: found.get("epsilon") for name, found in synthesizer.statement_.accountants.items()}
    kind = type(synthesizer.generator_).__name__
    return fake[table.columns], {"delta": delta, "generator": kind, "accountants": accounts}


def judged(table: TableSet, fake: pd.DataFrame, seed: int = 0) -> dict[str, float]:
    """All measures of a synthetic table."""
    real_bins, fake_bins = table.binned(table.train), table.binned(fake)
    ways = (1, 2, 3) if len(table.columns) <= 14 else (1, 2)
    found = {f"tv{n}": total_variation(real_bins, fake_bins, table.sizes, n) for n in ways}
    real, sizes = table.fine(table.train)
    found["queries"] = query_error(real, table.fine(fake)[0], sizes, table.ordered)
    inputs = [c for c in table.columns if c != table.label]
    names = [i for i, c in enumerate(inputs) if c in table.categories]
    parts = [(f[inputs].to_numpy(float), f[table.label].to_numpy()) for f in (fake, table.test)]
    groups = {c: table.test[c].to_numpy() for c in table.groups}
    return found | learned(parts[0], parts[1], names, seed, groups)


def averaged(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per table, method and ε: means over seeds."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in cells:
        groups.setdefault((one["set"], one["method"], one["epsilon"]), []).append(one)
    order = {name: place for place, name in enumerate((*SETS, *METHODS))}
    rows = []
    for name, method, epsilon in sorted(groups, key=lambda k: (order[k[0]], k[2], order[k[1]])):
        own = groups[name, method, epsilon]
        row: dict[str, Any] = {"set": name, "method": method, "epsilon": epsilon or None, "seeds": len(own)}
        for key in own[0]:
            values = [one[key] for one in own if isinstance(one.get(key), float)]
            if key not in row and len(values) == len(own):
                row[key] = statistics.fmean(values)
                if len(own) > 1:
                    row[f"{key}_std"] = statistics.stdev(values)
        rows.append(row)
    return rows


def _key(cell: dict[str, Any]) -> tuple[Any, ...]:
    return cell["set"], cell["method"], float(cell["epsilon"]), cell["seed"]
