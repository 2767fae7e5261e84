"""DP-SWD's figures about the sensitivity: draws of it, and what the bounds say."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from dpot.privacy.sensitivity import squared_sensitivity

_SEED = 0  # a figure, not noise: it should come out the same


def _squared_projections(dimension: int, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """(zᵀu)² for a unit z and u uniform on the sphere, u = g/‖g‖: only g₁ and the length of the rest matter."""
    first = rng.standard_normal(size) ** 2
    return np.asarray(first / (first + rng.chisquare(dimension - 1, size)))


def figure_1(path: Path, draws: int) -> dict[str, Any]:
    """Histogram of ‖zᵀU‖² for k = 200, d = 784, with the Bernstein and the CLT bound (DP-SWD, Figure 1)."""
    from matplotlib.figure import Figure

    d, k, failure = 784, 200, 1e-5
    rng = np.random.default_rng(_SEED)
    chunks = [_squared_projections(d, (min(1000, draws - i), k), rng).sum(axis=1) for i in range(0, draws, 1000)]
    values = np.concatenate(chunks)
    counts, edges = np.histogram(values, bins=80)
    bounds = {
        "bernstein": squared_sensitivity("bernstein", d, k, failure),
        "clt": squared_sensitivity("clt", d, k, failure),
    }
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.stairs(counts / (draws * np.diff(edges)), edges, fill=True, color="#9ecae1", label=f"{draws} draws")
    axes.axvline(bounds["clt"], color="#d95f02", label=f"CLT bound, failure {failure:g}: {bounds['clt']:.3f}")
    axes.axvline(
        bounds["bernstein"], color="#1b9e77", ls="--", label=f"Bernstein bound (Lemma 2): {bounds['bernstein']:.3f}"
    )
    axes.axvline(k / d, color="black", lw=0.8, label=f"mean k/d: {k / d:.3f}")
    axes.set(xscale="log", xlabel="squared sensitivity ‖zᵀU‖²", ylabel="density", title=f"k = {k}, d = {d}")
    axes.set_xticks([0.2, 0.3, 0.5, 1, 2, 5, 8], ["0.2", "0.3", "0.5", "1", "2", "5", "8"])
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    return {
        "d": d,
        "k": k,
        "failure": failure,
        "draws": draws,
        "seed": _SEED,
        "mean": float(values.mean()),
        "expected_mean": k / d,
        "largest": float(values.max()),
        "bounds": bounds,
        "edges": edges.tolist(),
        "counts": counts.tolist(),
    }


def figure_7(path: Path, draws: int) -> dict[str, Any]:
    """Histogram of (zᵀu)² for d = 5 beside the Beta(1/2, (d-1)/2) density (DP-SWD, Figure 7)."""
    from matplotlib.figure import Figure

    d = 5
    values = _squared_projections(d, (draws,), np.random.default_rng(_SEED))
    counts, edges = np.histogram(values, bins=60, range=(0.0, 1.0))
    law = stats.beta(0.5, (d - 1) / 2)
    test = stats.kstest(values, law.cdf)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.stairs(counts / (draws * np.diff(edges)), edges, fill=True, color="#9ecae1", label=f"{draws} draws")
    grid = np.linspace(1e-3, 1 - 1e-3, 500)
    axes.plot(grid, law.pdf(grid), color="#d95f02", label="Beta(1/2, (d-1)/2)")
    axes.set(xlabel="(zᵀu)²", ylabel="density", title=f"d = {d}", ylim=(0, 1.1 * counts.max() / draws * len(counts)))
    axes.legend()
    figure.savefig(path, dpi=120, metadata={"Software": None})
    return {
        "d": d,
        "draws": draws,
        "seed": _SEED,
        "mean": float(values.mean()),
        "expected_mean": 1 / d,
        "deviation": float(values.std()),
        "expected_deviation": math.sqrt(law.var()),
        "kolmogorov_smirnov_p": float(test.pvalue),
        "edges": edges.tolist(),
        "counts": counts.tolist(),
    }


FIGURES: dict[str, Callable[[Path, int], dict[str, Any]]] = {"1": figure_1, "7": figure_7}
