"""`task=toy`: DP-SWD's Figure 2, the noisy sliced distance between two Gaussians whose distance is known.

N(0, I) and N(c·1, I) in d dimensions: SW_2² = E⟨u, c·1⟩² = c²‖1‖²/d = c², with or without noise on the projections,
for a Gaussian moved is a Gaussian moved. What noise does change is the distance between *samples*.
"""

from __future__ import annotations

import io
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from dpot.ranges import Count, NonNegative
from dpot.record import provenance, write_atomically
from dpot.tasks.base import Answer, Task
from dpot.transport.directions import uniform_directions
from dpot.transport.sliced import gaussian_smoothed_sliced_wasserstein_power


class Toy(Task):
    """SW_2 between samples of two Gaussians as they move apart, for several noises and sizes."""

    def __init__(
        self,
        d: Count = 5,
        projections: Count = 200,
        sizes: Sequence[Count] = (100, 1000, 5000),
        sigmas: Sequence[NonNegative] = (0.0, 1.0, 3.0),
        places: Count = 11,
        draws: Count = 5,
    ) -> None:
        self.d, self.projections, self.places, self.draws = d, projections, places, draws
        self.sizes, self.sigmas = list(sizes), list(sigmas)

    def run(self, cfg: DictConfig) -> Answer:
        """Draw, measure, write figure2.png and figure2.json to output_root/dp_swd/."""
        random = torch.Generator().manual_seed(int(cfg.seed))
        shifts = [i / max(1, self.places - 1) for i in range(self.places)]
        curves: list[dict[str, Any]] = [
            {"n": n, "sigma": sigma, "points": [self._point(c, n, sigma, random) for c in shifts]}
            for n in self.sizes
            for sigma in self.sigmas
        ]
        folder = Path(cfg.output_root) / "dp_swd"
        files = [folder / "figure2.png", folder / "figure2.json"]
        settings = {"d": self.d, "projections": self.projections, "draws": self.draws}
        data: dict[str, Any] = {"paper": "dp_swd", "figure": 2, "settings": settings, "curves": curves}
        data |= {"provenance": provenance(cfg), "files": [file.name for file in files]}
        write_atomically(files[0], draw(curves))
        write_atomically(files[1], json.dumps(data, indent=1) + "\n")

        def show(console: Console) -> None:
            table = Table("n", "σ", *(f"c = {c:g}" for c in shifts[::5]), title="SW₂ (population: c)")
            for curve in curves:
                values = [f"{p['mean']:.3f} ± {p['std']:.3f}" for p in curve["points"][::5]]
                table.add_row(str(curve["n"]), f"{curve['sigma']:g}", *values)
            console.print(table)
            console.print(f"wrote {files[0]} and {files[1]}", highlight=False)

        return Answer(data, show)

    def _point(self, shift: float, n: int, sigma: float, random: torch.Generator) -> dict[str, float]:
        found = []
        for _ in range(self.draws):
            x, y = torch.randn(2, n, self.d, generator=random)
            directions = uniform_directions(self.projections, self.d, random)
            power = gaussian_smoothed_sliced_wasserstein_power(x, y + shift, directions, sigma, generator=random)
            found.append(float(power) ** 0.5)
        return {"c": shift, "mean": statistics.fmean(found), "std": statistics.pstdev(found)}


def draw(curves: Sequence[dict[str, Any]]) -> bytes:
    """One panel per sample size, one curve per noise, and the distance of the populations."""
    from matplotlib.figure import Figure

    sizes = list(dict.fromkeys(curve["n"] for curve in curves))
    figure = Figure(figsize=(3.6 * len(sizes), 3.2), layout="constrained")
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
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120)
    return out.getvalue()
