"""DP-SWD's figures: the law of the sensitivity (1, 7), and the noisy distance between two Gaussians (2).

Figure 2 has N(0, I) and N(c·1, I) in d dimensions: SW_2² = E⟨u, c·1⟩² = c²‖1‖²/d = c², with or without noise on the
projections, for a Gaussian moved is a Gaussian moved. What noise does change is the distance between *samples*.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import stats

from dpot.papers.computed import Computed, Context, Table
from dpot.papers.plots import blank, png
from dpot.privacy.sensitivity import squared_sensitivity
from dpot.ranges import Count, NonNegative
from dpot.transport.directions import uniform_directions
from dpot.transport.sliced import gaussian_smoothed_sliced_wasserstein_power

_SEED = 0  # a figure, not noise: it should come out the same


def _squared_projections(dimension: int, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """(zᵀu)² for a unit z and u uniform on the sphere, u = g/‖g‖: only g₁ and the length of the rest matter."""
    first = rng.standard_normal(size) ** 2
    return np.asarray(first / (first + rng.chisquare(dimension - 1, size)))


def _histogram(counts: np.ndarray, edges: np.ndarray, draws: int) -> tuple[Any, Any]:
    figure = blank(6.4, 4.0)
    axes = figure.add_subplot()
    axes.stairs(counts / (draws * np.diff(edges)), edges, fill=True, color="#9ecae1", label=f"{draws} draws")
    return figure, axes


def figure_1(draws: Count = 100_000) -> Computed:
    """Histogram of ‖zᵀU‖² for k = 200, d = 784, with the Bernstein and the CLT bound (DP-SWD, Figure 1)."""
    d, k, failure = 784, 200, 1e-5
    rng = np.random.default_rng(_SEED)
    chunks = [_squared_projections(d, (min(1000, draws - i), k), rng).sum(axis=1) for i in range(0, draws, 1000)]
    values = np.concatenate(chunks)
    counts, edges = np.histogram(values, bins=80)
    bounds = {
        "bernstein": squared_sensitivity("bernstein", d, k, failure),
        "clt": squared_sensitivity("clt", d, k, failure),
    }
    figure, axes = _histogram(counts, edges, draws)
    axes.axvline(bounds["clt"], color="#d95f02", label=f"CLT bound, failure {failure:g}: {bounds['clt']:.3f}")
    axes.axvline(
        bounds["bernstein"], color="#1b9e77", ls="--", label=f"Bernstein bound (Lemma 2): {bounds['bernstein']:.3f}"
    )
    axes.axvline(k / d, color="black", lw=0.8, label=f"mean k/d: {k / d:.3f}")
    axes.set(xscale="log", xlabel="squared sensitivity ‖zᵀU‖²", ylabel="density", title=f"k = {k}, d = {d}")
    axes.set_xticks([0.2, 0.3, 0.5, 1, 2, 5, 8], ["0.2", "0.3", "0.5", "1", "2", "5", "8"])
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=8)
    numbers = {
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
    return Computed(numbers, pictures={"": png(figure)})


def figure_7(draws: Count = 100_000) -> Computed:
    """Histogram of (zᵀu)² for d = 5 beside the Beta(1/2, (d-1)/2) density (DP-SWD, Figure 7)."""
    d = 5
    values = _squared_projections(d, (draws,), np.random.default_rng(_SEED))
    counts, edges = np.histogram(values, bins=60, range=(0.0, 1.0))
    law = stats.beta(0.5, (d - 1) / 2)
    figure, axes = _histogram(counts, edges, draws)
    grid = np.linspace(1e-3, 1 - 1e-3, 500)
    axes.plot(grid, law.pdf(grid), color="#d95f02", label="Beta(1/2, (d-1)/2)")
    axes.set(xlabel="(zᵀu)²", ylabel="density", title=f"d = {d}", ylim=(0, 1.1 * counts.max() / draws * len(counts)))
    axes.legend()
    numbers = {
        "d": d,
        "draws": draws,
        "seed": _SEED,
        "mean": float(values.mean()),
        "expected_mean": 1 / d,
        "deviation": float(values.std()),
        "expected_deviation": math.sqrt(law.var()),
        "kolmogorov_smirnov_p": float(stats.kstest(values, law.cdf).pvalue),
        "edges": edges.tolist(),
        "counts": counts.tolist(),
    }
    return Computed(numbers, pictures={"": png(figure)})


def figure_2(
    context: Context,
    d: Count = 5,
    projections: Count = 200,
    sizes: Sequence[Count] = (100, 1000, 5000),
    sigmas: Sequence[NonNegative] = (0.0, 1.0, 3.0),  # 0: SWD
    places: Count = 11,  # values of c between 0 and 1
    draws: Count = 5,
) -> Computed:
    """SW_2 between samples of two Gaussians as they move apart, for several noises and sizes (DP-SWD, Figure 2)."""
    random = torch.Generator().manual_seed(context.seed)
    shifts = [i / max(1, places - 1) for i in range(places)]

    def point(shift: float, n: int, sigma: float) -> dict[str, float]:
        found = []
        for _ in range(draws):
            x, y = torch.randn(2, n, d, generator=random)
            directions = uniform_directions(projections, d, random)
            power = gaussian_smoothed_sliced_wasserstein_power(x, y + shift, directions, sigma, generator=random)
            found.append(float(power) ** 0.5)
        return {"c": shift, "mean": statistics.fmean(found), "std": statistics.pstdev(found)}

    curves: list[dict[str, Any]] = [
        {"n": n, "sigma": sigma, "points": [point(c, n, sigma) for c in shifts]} for n in sizes for sigma in sigmas
    ]
    rows = [
        {"n": curve["n"], "σ": curve["sigma"]}
        | {f"c = {p['c']:g}": f"{p['mean']:.3f} ± {p['std']:.3f}" for p in curve["points"][::5]}
        for curve in curves
    ]
    settings = {"d": d, "projections": projections, "draws": draws}
    table = Table("DP-SWD, Figure 2: SW₂ between samples (of the populations: c)", rows)
    return Computed({"settings": settings, "curves": curves}, [table], {"": _distances(curves)})


def _distances(curves: Sequence[dict[str, Any]]) -> bytes:
    """One panel per sample size, one curve per noise, and the distance of the populations."""
    sizes = list(dict.fromkeys(curve["n"] for curve in curves))
    figure = blank(3.6 * len(sizes), 3.2)
    axes = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    for axis, n in zip(axes, sizes, strict=True):
        for curve in (c for c in curves if c["n"] == n):
            points = curve["points"]
            place = [p["c"] for p in points]
            label = f"DP-SWD, σ = {curve['sigma']:g}" if curve["sigma"] else "SWD"
            axis.errorbar(place, [p["mean"] for p in points], [p["std"] for p in points], label=label, capsize=2)
        axis.plot([0, 1], [0, 1], "k:", label="populations")
        axis.set_title(f"n = {n:,}", fontsize=9)
        axis.set_xlabel("c")
    axes[0].set_ylabel("SW₂")
    axes[0].legend(fontsize=7)
    return png(figure)
