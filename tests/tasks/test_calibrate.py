"""task=calibrate: one unknown of four, every accountant asked, one line for what is wrong."""

from typing import Any

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from dpot import config
from dpot.errors import UsageError
from dpot.launch import compose_config
from dpot.privacy.accountants import ACCOUNTANTS
from dpot.tasks.calibrate import Calibrate

MNIST = {"d": 784, "k": 1000, "records": 60_000, "batch": 100}


def answer(task: dict[str, Any], **privacy: Any) -> dict[str, Any]:
    node = OmegaConf.create({"_target_": "dpot.privacy.budget.Budget", "epsilon": 10.0, "delta": 1e-5, **privacy})
    result = Calibrate(**task).run(OmegaConf.create({"privacy": node}))
    result.show(Console(quiet=True))
    return result.data


def test_the_setting_of_dp_swd_in_the_conversion_of_its_authors() -> None:
    data = answer({**MNIST, "steps": 60_100}, bound="exact", conversion="mironov")
    assert set(data) == {"sigma", "epsilon", "delta", "steps", "accountants"}
    assert data["sigma"] == pytest.approx(0.776, rel=0.01)
    assert (data["epsilon"], data["delta"], data["steps"]) == (10.0, 1e-5, 60_100)
    assert set(data["accountants"]) == set(ACCOUNTANTS)
    assert data["accountants"]["autodp"]["epsilon"] == pytest.approx(10.0, rel=1e-5)
    assert all(set(a) in ({"epsilon"}, {"reason"}) for a in data["accountants"].values())


def test_the_noise_keeps_the_budget_by_the_tight_conversion_unless_another_is_asked_for() -> None:
    data = answer({**MNIST, "steps": 60_100})
    assert data["accountants"]["dpot_rdp_tight"]["epsilon"] == pytest.approx(10.0, rel=1e-5)
    assert data["sigma"] < 0.97 * answer({**MNIST, "steps": 60_100}, conversion="mironov")["sigma"]


def test_each_of_the_four_is_found() -> None:
    sigma = 0.776
    epsilon = answer({**MNIST, "steps": 60_100, "sigma": sigma}, epsilon=None, conversion="mironov")["epsilon"]
    assert epsilon == pytest.approx(9.98, abs=0.01)
    delta = answer({**MNIST, "steps": 60_100, "sigma": sigma}, delta=None, conversion="mironov")["delta"]
    assert 9e-6 < delta < 1e-5
    steps = answer({**MNIST, "sigma": sigma}, conversion="mironov")["steps"]
    assert 60_100 < steps < 60_600


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({"mechanism": "gaussian", "sampler": "full", "steps": 1}, 0.4999),
        ({"mechanism": "laplace", "sampler": "full", "steps": 1}, 0.1),
        ({"mechanism": "discrete_gaussian", "sampler": "full", "steps": 1, "coordinates": 100}, 4.999),
        ({**MNIST, "steps": 60_100, "diameter": 2.0}, 2 * 0.7755),
        ({**MNIST, "steps": 60_100, "sampler": "stratified", "class_sizes": [60_000, 70_000]}, 0.7755),
    ],
)
def test_mechanisms_and_samplers(task: dict[str, Any], expected: float) -> None:
    assert answer(task, conversion="mironov")["sigma"] == pytest.approx(expected, rel=2e-3)


def test_by_loss_distribution() -> None:
    task = {"mechanism": "gaussian", "sampler": "poisson", "records": 1000, "batch": 10, "accountant": "pld"}
    sigma = answer({**task, "steps": 1000}, epsilon=2.0)["sigma"]
    found = answer({**task, "steps": 1000, "sigma": sigma}, epsilon=None)
    assert found["epsilon"] == pytest.approx(2.0, rel=1e-3)
    with pytest.raises(UsageError, match="pld"):
        answer({**task, "steps": 10, "sigma": 1.0}, delta=None)


@pytest.mark.parametrize(
    ("task", "privacy", "word"),
    [
        ({**MNIST, "steps": 10, "sigma": 1.0}, {}, "null"),
        (MNIST, {}, "null"),
        ({**MNIST, "steps": 10}, {"epsilon": None}, "null"),
        ({"steps": 10}, {}, r"task\.d"),
        ({**MNIST, "batch": 70_000, "steps": 10}, {}, r"task\.batch"),
        ({**MNIST, "sampler": "stratified", "steps": 10}, {}, r"task\.class_sizes"),
        ({**MNIST, "sigma": 1e-3}, {}, "not even one"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(task: dict[str, Any], privacy: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word) as caught:
        answer(task, **privacy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", config.options("privacy"))
def test_presets_are_budgets(name: str) -> None:
    node = compose_config([f"privacy={name}", *(["privacy.epsilon=2"] if name == "base" else [])]).privacy
    config.check(OmegaConf.create({"privacy": node}))
    assert config.instantiate(node.copy(), "privacy").mode == ("paper" if name.endswith("_paper") else "sound")


@pytest.mark.parametrize(
    ("key", "value"), [("epsilon", 0), ("epsilon", -1), ("delta", 0), ("delta", 1), ("bound", "x")]
)
def test_budgets_out_of_range_are_usage_errors(key: str, value: Any) -> None:
    node = compose_config(["privacy=eps10"]).privacy
    node[key] = value
    with pytest.raises(UsageError, match=f"privacy.{key}"):
        config.check(OmegaConf.create({"privacy": node}))


def test_the_config_file_fits_the_task() -> None:
    node = OmegaConf.load(config.CONF_DIR / "task" / "calibrate.yaml")
    config.check(OmegaConf.create({"task": node}))
    assert isinstance(config.instantiate(node, "task"), Calibrate)  # type: ignore[arg-type]
