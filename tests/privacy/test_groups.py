"""Several records of a person: ε for all of them together, from calibration to the statement."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpot.composing import compose_config
from dpot.data.table import Table
from dpot.errors import DataError, UsageError
from dpot.launch import run
from dpot.methods.verify import verified
from dpot.privacy.budget import Budget
from dpot.privacy.calibration import find_epsilon, find_sigma, find_steps
from dpot.privacy.errors import BudgetExceeded, InvalidParameter
from dpot.privacy.events import Adjacency, CountGaussian, Gaussian, PoissonSampled
from dpot.privacy.gaussian import gaussian_epsilon, gaussian_noise_multiplier
from dpot.privacy.groups import of_group
from dpot.privacy.ledger import Ledger
from dpot.privacy.statement import Statement


@pytest.mark.parametrize("conversion", ["tight", "pld"])
def test_a_group_costs_what_a_single_record_costs_with_so_much_less_noise(conversion: Any) -> None:
    """Against the exact trade-off of two Gaussians that are m sensitivities apart."""
    budget = Budget(1.0, 1e-5, unit="who", most=4, conversion=conversion)
    sigma = find_sigma(Gaussian, 1, budget)
    assert sigma == pytest.approx(4 * gaussian_noise_multiplier(1.0, 1e-5), rel=1e-7)
    ledger = Ledger.of(budget)
    ledger.charge(CountGaussian(sigma * math.sqrt(2) * (1 + 1e-9)), source="one", sampler="full")
    ledger.charge(CountGaussian(sigma * math.sqrt(2) * (1 + 1e-9)), source="two", sampler="full")
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(sigma / 4, 1e-5), rel=1e-6)
    assert find_epsilon(Gaussian(sigma), 1, budget) == pytest.approx(1.0, rel=1e-6)
    assert find_steps(Gaussian(2 * sigma * (1 + 1e-9)), budget) == 4
    with pytest.raises(BudgetExceeded):
        ledger.charge(CountGaussian(1000.0), source="three", sampler="full")


def test_the_move_of_m_records_is_covered() -> None:
    """The worst pair of histograms: m records leave one cell for another; noise of z·√2 for one record."""
    before, after = np.array([7, 0]), np.array([3, 4])
    moved = float(np.linalg.norm(before - after))
    assert moved / (10 * math.sqrt(2)) == pytest.approx(1 / of_group(Gaussian(10.0), 4).noise_multiplier)


def test_what_is_not_priced_for_groups_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="not for PoissonSampled"):
        find_sigma(
            lambda sigma: PoissonSampled(Gaussian(sigma, Adjacency.ADD_REMOVE), 0.1),
            1,
            Budget(1, 1e-5, unit="who", most=2),
        )
    with pytest.raises(InvalidParameter, match=r"privacy\.unit"):
        Budget(1, 1e-5, most=2)


def people(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    who = np.repeat(np.arange(600), random.integers(1, 6, 600))
    random.shuffle(who)
    frame = pd.DataFrame(
        {"who": who, "age": random.integers(18, 90, len(who)), "sex": random.choice(["f", "m"], len(who))}
    )
    frame.to_csv(tmp_path / "visits.csv", index=False)
    return tmp_path / "visits.csv"


def test_contributions_are_bounded_before_anything_is_counted(tmp_path: Path) -> None:
    path = people(tmp_path)
    frame = pd.read_csv(path)
    own = {"bounds": {"age": [0, 120]}, "categories": {"sex": ["f", "m"]}}
    data = Table(str(path), None, unit="who", most=3, **own).load()
    assert len(data.train) + len(data.test) == frame["who"].value_counts().clip(upper=3).sum()
    assert "who" not in data.columns
    frame.loc[5, "who"] = None
    frame.to_csv(path, index=False)
    with pytest.raises(DataError, match="whose every record is"):
        Table(str(path), None, unit="who", most=3, **own).load()
    with pytest.raises(UsageError, match="no such column"):
        Table(str(path), None, unit="whose", most=3, **own).load()


def test_the_statement_speaks_of_persons(tmp_path: Path) -> None:
    own = [
        "task=synthesize",
        "dataset=table",
        f"dataset.path={people(tmp_path)}",
        "dataset.label=null",
        "profile=smoke",
    ]
    own += ["dataset.bounds={age:[0,120]}", "dataset.categories={sex:[f,m]}", "task.utility=false", "device=cpu"]
    own += [f"output_root={tmp_path / 'out'}", "privacy.epsilon=2", "privacy.unit=who", "privacy.most=3"]
    record = run(compose_config(own)).data
    privacy = record["privacy"]
    assert privacy["epsilon"] == pytest.approx(2, rel=1e-6)
    multipliers = [entry["event"]["noise_multiplier"] for entry in privacy["entries"]]
    mu = math.sqrt(sum(1 / z**2 for z in multipliers))  # of one record
    assert gaussian_epsilon(1 / (3 * mu), 1e-5) == pytest.approx(2, rel=1e-6)
    assert "for every person with all records of theirs, of which at most 3 were kept" in privacy["headline"]
    assert any(line.startswith("how many records each person has") for line in privacy["not_covered"])
    registry = Path(record["files"]["statement_registry"]).read_text()
    assert "One person" in registry
    stored = Statement.from_dict(privacy).to_dict()
    assert verified(stored).epsilon == pytest.approx(2, rel=1e-6)
    with pytest.raises(Exception, match=r"its entries (say|come to)"):
        verified(stored | {"most": 4})  # a larger group costs more than is stated
    with pytest.raises(UsageError, match="only a table"):
        run(compose_config(["task=synthesize", "dataset=digits", "privacy.unit=who", "device=cpu"]))
