"""WDP's Figures 1 to 4, and the values of Table 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpot.papers.computed import Computed, Table
from dpot.papers.plots import blank, png
from dpot.privacy.wdp.composition import curves
from dpot.privacy.wdp.formulas import rdp_gaussian, rdp_laplace, tail_budget, wdp_gaussian, wdp_laplace
from dpot.ranges import Count

SCALES = (1.0, 2.0, 3.0, 5.0)
ORDERS = np.linspace(1, 10, 100)
DISTANCE = 10.0  # W of Figure 3, which the paper does not say
CURVES = {
    "RDP Laplace": rdp_laplace,
    "WDP Laplace": wdp_laplace,
    "RDP Gaussian": rdp_gaussian,
    "WDP Gaussian": wdp_gaussian,
}
COLOURS = ("#1b9e77", "#d95f02", "#7570b3", "#e7298a")
NAMES = {"moments": "moments (DP)", "bayesian": "Bayesian (BDP)", "wasserstein": "Wasserstein (WDP)"}


def table_1(orders: Sequence[float] = (1, 2, 5, 10)) -> Computed:
    """Table 1's formulas at sensitivity 1 as numbers: one row per scale and order."""
    rows = [
        {"scale": scale, "order": float(order), **{name: float(curve(order, scale)) for name, curve in CURVES.items()}}
        for scale in SCALES
        for order in orders
    ]
    note = (
        "Sensitivity 1. RDP: ε of order α (Mironov 2017). WDP: as printed, a distance; the true one is 1 in every row."
    )
    return Computed({"rows": rows}, [Table("WDP, Table 1: the budgets of the basic mechanisms", rows, note)])


def figure_1() -> Computed:
    """Budgets over the order for four scales. RDP's are ε of a divergence, WDP's are not: the axes are not one."""
    data = {name: {str(s): curve(ORDERS, s).tolist() for s in SCALES} for name, curve in CURVES.items()}
    figure = blank(8.0, 6.0)
    for index, (name, by_scale) in enumerate(data.items()):
        axes = figure.add_subplot(2, 2, index + 1)
        for scale, colour in zip(SCALES, COLOURS, strict=True):
            axes.plot(ORDERS, by_scale[str(scale)], color=colour, label=f"scale {scale:g}")
        unit = "ε" if name.startswith("RDP") else "W as printed (not an ε)"
        axes.set(title=name, xlabel="order", ylabel=unit, ylim=(0, None))
    figure.axes[1].legend(fontsize=8)
    return Computed({"orders": ORDERS.tolist(), "scales": list(SCALES), "curves": data}, pictures={"": png(figure)})


def figure_3() -> Computed:
    """W − ln δ/β: over β for four δ, over δ for four β. The bound falls to W by the choice of β alone."""
    betas, deltas = np.linspace(1, 50, 491), np.logspace(-10, -5, 101)
    over_beta = {f"{d:g}": tail_budget(DISTANCE, d, betas).tolist() for d in (1e-10, 1e-8, 1e-5, 1e-3)}
    over_delta = {f"{b:g}": tail_budget(DISTANCE, deltas, b).tolist() for b in (1.0, 2.0, 5.0, 10.0)}
    figure = blank(8.0, 3.4)
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    for (delta, values), colour in zip(over_beta.items(), COLOURS, strict=True):
        left.plot(betas, values, color=colour, label=f"δ = {delta}")
    for (beta, values), colour in zip(over_delta.items(), COLOURS, strict=True):
        right.plot(deltas, values, color=colour, label=f"β = {beta}")
    left.set(xlabel="β, which is free", ylabel="W − ln δ/β (not an ε)", title=f"W = {DISTANCE:g}")
    right.set(xlabel="δ", xscale="log", title=f"W = {DISTANCE:g}")
    left.legend(fontsize=8)
    right.legend(fontsize=8)
    numbers = {
        "distance": DISTANCE,
        "betas": betas.tolist(),
        "deltas": deltas.tolist(),
        "over_beta": over_beta,
        "over_delta": over_delta,
    }
    return Computed(numbers, pictures={"": png(figure)})


def _composition(clipped: bool, seeds: int) -> Computed:
    data: dict[str, Any] = curves(clipped, range(seeds))
    beside = data["beside"]
    figure = blank(8.0, 6.0)
    steps = np.arange(1, data["setting"]["steps"] + 1)
    for index, panel in enumerate(data["panels"]):
        axes = figure.add_subplot(2, 2, index + 1)
        for (name, label), colour in zip(NAMES.items(), COLOURS, strict=False):
            axes.plot(steps, panel["curves"][name], color=colour, label=f"{label}, order {data['setting']['order']}")
        axes.axhline(
            beside["moments_at_best_order"], color="grey", lw=0.8, ls=":", label="moments, best order, all steps"
        )
        axes.axhline(beside["pld"], color="black", lw=0.8, ls="--", label="ε by PLD, all steps")
        axes.set(title=f"C = {panel['quantile']:g}-quantile", xlabel="steps", ylabel="budget as printed", yscale="log")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    rows = [
        {"quantile": panel["quantile"]}
        | {name: f"{np.mean(last):.0f} ± {np.std(last):.0f}" for name, last in panel["last"].items()}
        for panel in data["panels"]
    ]
    title = f"WDP: budgets after all steps, {'with' if clipped else 'without'} clipping, {seeds} seeds"
    return Computed(data, [Table(title, rows)], {"": png(figure)})


def figure_2(seeds: Count = 10) -> Computed:
    """Composition over synthetic gradients without clipping."""
    return _composition(False, seeds)


def figure_4(seeds: Count = 10) -> Computed:
    """Composition over synthetic gradients with clipping."""
    return _composition(True, seeds)
