"""The accounting of DP-Sinkhorn's runs, by its authors' accountant and by others."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from dpot.papers.computed import Computed, Table
from dpot.privacy.accountants import accounts
from dpot.privacy.budget import Budget
from dpot.privacy.calibration import find_sigma, find_sigma_by_pld, least_sigma
from dpot.privacy.events import Adjacency, Event, Gaussian, PoissonSampled, SelfComposed

EPSILON = 10.0  # as published
RUN_COLUMNS = {
    "row": ("run", ""),
    "noise_multiplier": ("noise", "g"),
    "steps": ("steps", ""),
    "delta": ("δ", "g"),
    "published": ("published", "g"),
    "paper_dp_sinkhorn": ("their RDP", ".4f"),
    "dpot_rdp_tight": ("our RDP", ".4f"),
    "dp_accounting_rdp": ("library RDP", ".4f"),
    "dp_accounting_pld": ("PLD", ".4f"),
}
RUN_NOTE = (
    "Add-remove, Poisson sampling. Their RDP: the orders and the conversion (Mironov) the authors used. Library: "
    "dp-accounting. The authors' loop stops after the epoch that crosses ε = 10."
)
NOISE_COLUMNS = {
    "steps": ("steps", ""),
    "epsilon": ("ε", "g"),
    "paper_dp_sinkhorn": ("their RDP", ".4f"),
    "dpot_rdp_tight": ("our RDP", ".4f"),
    "dp_accounting_pld": ("PLD", ".4f"),
}
NOISE_NOTE = "The least noise multiplier by each accountant, Poisson rate 1/1200."


@dataclass(frozen=True)
class Training:
    """One run of DP-Sinkhorn: Poisson rate, noise multiplier, steps to ε = 10 in the authors' loop."""

    row: str
    rate: float
    noise_multiplier: float
    steps: int
    delta: float

    def release(self, noise_multiplier: float) -> Event:
        """One noisy gradient on a Poisson batch."""
        return PoissonSampled(Gaussian(noise_multiplier, Adjacency.ADD_REMOVE), self.rate)


RUNS = (
    Training("MNIST", 1 / 1200, 1.1, 3_446_400, 1e-5),
    Training("Fashion-MNIST", 1 / 1200, 0.9, 1_812_000, 1e-5),
    Training("CelebA", 200 / 162_770, 0.8, 464_223, 1e-6),
    Training("CelebA 1e-5", 200 / 162_770, 0.8, 533_328, 1e-5),
)
TARGETS = ((3_446_400, 10.0), (3_446_400, 1.0), (480_000, 10.0), (480_000, 1.0))
ACCOUNTANTS = ("paper_dp_sinkhorn", "dpot_rdp_tight", "dp_accounting_rdp", "dp_accounting_pld")


def epsilon_of(run: Training) -> dict[str, Any]:
    """ε at the authors' number of steps, by each accountant; the paper says 10."""
    event = SelfComposed(run.release(run.noise_multiplier), run.steps)
    asked = accounts(event, run.delta, names=ACCOUNTANTS)
    return {**asdict(run), "published": EPSILON, **{name: account.epsilon for name, account in asked.items()}}


def noise_for(steps: int, epsilon: float) -> dict[str, Any]:
    """The noise multiplier MNIST needs for (ε, 1e-5) in so many steps, by each accountant."""
    run = RUNS[0]

    def theirs(noise_multiplier: float) -> float:
        name = "paper_dp_sinkhorn"
        found = accounts(SelfComposed(run.release(noise_multiplier), steps), run.delta, names=[name])[name]
        return math.inf if found.epsilon is None else found.epsilon

    return {
        "steps": steps,
        "epsilon": epsilon,
        "paper_dp_sinkhorn": least_sigma(theirs, epsilon),
        "dpot_rdp_tight": find_sigma(run.release, steps, Budget(epsilon, run.delta, conversion="tight")),
        "dp_accounting_pld": find_sigma_by_pld(run.release, steps, epsilon, run.delta),
    }


def accounting() -> Computed:
    """ε of the published runs, and the noise that MNIST's would have needed."""
    runs = [epsilon_of(run) for run in RUNS]
    noise = [noise_for(steps, epsilon) for steps, epsilon in TARGETS]
    tables = (
        Table("DP-Sinkhorn: ε at the authors' number of steps", runs, RUN_NOTE, RUN_COLUMNS),
        Table("DP-Sinkhorn, MNIST: noise for (ε, 1e-5)", noise, NOISE_NOTE, NOISE_COLUMNS),
    )
    return Computed({"runs": runs, "noise": noise}, tables)
