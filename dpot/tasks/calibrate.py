"""`task=calibrate`: the noise, ε, δ or the number of steps, whichever is missing, and what every accountant says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from dpot import config
from dpot.errors import UsageError
from dpot.privacy import calibration, pld
from dpot.privacy.accountants import accounts
from dpot.privacy.budget import Budget
from dpot.privacy.events import (
    Adjacency,
    DiscreteGaussian,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    ProjectionGaussian,
    SelfComposed,
    StratifiedSampled,
)
from dpot.privacy.sensitivity import SOUND_BOUNDS, WHY
from dpot.ranges import Count, Positive
from dpot.tasks.base import Answer, Task

_ADJACENCY = {
    "fixed-size": Adjacency.REPLACE_ONE,
    "full": Adjacency.REPLACE_ONE,
    "stratified": Adjacency.REPLACE_KEEPING_LABEL,
    "poisson": Adjacency.ADD_REMOVE,
}


class Calibrate(Task):
    """Three of σ, ε, δ and the number of steps are given; the fourth is found."""

    def __init__(
        self,
        mechanism: Literal["projection", "gaussian", "discrete_gaussian", "laplace"] = "projection",
        sampler: Literal["fixed-size", "stratified", "poisson", "full"] = "fixed-size",
        sigma: Positive | None = None,
        steps: Count | None = None,
        d: Count | None = None,
        k: Count | None = None,
        records: Count | None = None,
        batch: Count | None = None,
        class_sizes: Sequence[Count] | None = None,
        diameter: Positive = 1.0,
        coordinates: Count = 1,
        accountant: Literal["dpot", "pld"] = "dpot",
    ) -> None:
        self.mechanism, self.sampler, self.accountant = mechanism, sampler, accountant
        self.sigma, self.steps = sigma, steps
        self.d, self.k, self.diameter, self.coordinates = d, k, diameter, coordinates
        self.records, self.batch, self.class_sizes = records, batch, class_sizes

    def run(self, cfg: DictConfig) -> Answer:
        """Find what is missing and ask every accountant."""
        budget: Budget = config.instantiate(cfg.privacy, "privacy")
        found = self._solve(budget)
        event = SelfComposed(self._release(found["sigma"]), found["steps"])
        asked = accounts(event, found["delta"], budget.bound)
        data = {**found, "accountants": {name: account.to_dict() for name, account in asked.items()}}
        return Answer(data, lambda console: self._show(console, data, budget))

    def _solve(self, budget: Budget) -> dict[str, Any]:
        given: dict[str, Any] = {
            "sigma": self.sigma,
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "steps": self.steps,
        }
        missing = [name for name, value in given.items() if value is None]
        if len(missing) != 1:
            listed = ", ".join(missing) if missing else "none"
            raise UsageError(
                "give three of task.sigma, privacy.epsilon, privacy.delta and task.steps and set the one to find to "
                f"null; now null: {listed}"
            )
        value = self._find(missing[0], budget)
        return {**given, missing[0]: value}

    def _find(self, what: str, budget: Budget) -> float | int:
        if self.accountant == "pld":
            return self._find_by_pld(what, budget)
        if what == "sigma":
            return calibration.find_sigma(self._release, self._given("steps"), budget)
        event = self._release(self._given("sigma"))
        if what == "steps":
            steps = calibration.find_steps(event, budget)
            if steps == 0:
                raise UsageError("not even one step fits this budget; raise task.sigma or privacy.epsilon")
            return steps
        find = calibration.find_epsilon if what == "epsilon" else calibration.find_delta
        return find(event, self._given("steps"), budget)

    def _find_by_pld(self, what: str, budget: Budget) -> float:
        if what == "sigma":
            assert budget.epsilon is not None
            assert budget.delta is not None
            return calibration.find_sigma_by_pld(self._release, self._given("steps"), budget.epsilon, budget.delta)
        if what == "epsilon":
            assert budget.delta is not None
            event = SelfComposed(self._release(self._given("sigma")), self._given("steps"))
            return pld.pld_epsilon(event, budget.delta)
        raise UsageError("task.accountant=pld finds sigma or epsilon; use task.accountant=dpot for the others")

    def _release(self, sigma: float) -> Event:
        """One release with this noise, as an event."""
        adjacency = _ADJACENCY[self.sampler]
        mechanism: Event
        if self.mechanism == "projection":
            mechanism = ProjectionGaussian(self._given("d"), self._given("k"), sigma, self.diameter, adjacency)
        elif self.mechanism == "discrete_gaussian":
            mechanism = DiscreteGaussian(sigma, 1, self.coordinates, adjacency)
        else:
            mechanism = (Gaussian if self.mechanism == "gaussian" else Laplace)(sigma, adjacency)
        if self.sampler == "full":
            return mechanism
        batch = self._given("batch")
        if self.sampler == "stratified":
            sizes = tuple(self._given("class_sizes"))
            return StratifiedSampled(mechanism, (batch,) * len(sizes), sizes)
        records = self._given("records")
        if batch > records:
            raise UsageError(f"task.batch={batch}: must be at most task.records={records}")
        if self.sampler == "poisson":
            return PoissonSampled(mechanism, batch / records)
        return FixedSizeSampled(mechanism, batch, records)

    def _given(self, name: str) -> Any:
        value = getattr(self, name)
        if value is None:
            raise UsageError(f"task.{name}: must be given for mechanism={self.mechanism}, sampler={self.sampler}")
        return value

    def _show(self, console: Console, data: dict[str, Any], budget: Budget) -> None:
        console.print(
            f"sigma {data['sigma']:.6g} · epsilon {data['epsilon']:.6g} · delta {data['delta']:.6g} · "
            f"steps {data['steps']} · {_ADJACENCY[self.sampler]} · bound {budget.bound}, {budget.conversion}"
        )
        if self.mechanism == "projection" and budget.bound not in SOUND_BOUNDS:
            console.print(f"Not a proof of privacy: {WHY[budget.bound]}.")
        table = Table("accountant", f"epsilon at delta = {data['delta']:.6g}")
        for name, account in data["accountants"].items():
            table.add_row(name, f"{account['epsilon']:.6g}" if "epsilon" in account else f"– {account['reason']}")
        console.print(table)
