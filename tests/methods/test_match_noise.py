"""scripts/match_noise.py: the noise and the rate of a short training that stands for a long one."""

import json
import math

import pytest
import torch

from dpot.data.digits import Digits


@pytest.fixture(scope="module")
def match(script):
    return script("match_noise")


@pytest.mark.parametrize("steps", [100, 4000, 3_446_400])
@pytest.mark.parametrize(
    ("dataset", "whole", "multiplier"), [("mnist", 3_446_400, 1.1), ("fashion_mnist", 1_812_000, 0.9)]
)
def test_what_is_learned_and_how_far_weights_wander_stay_as_published(match, steps, dataset, whole, multiplier):
    noise, rate = match.PUBLISHED[dataset].matched(steps)
    assert math.sqrt(steps) / noise == pytest.approx(math.sqrt(whole) / multiplier)
    assert rate * math.sqrt(steps) == pytest.approx(1e-5 * math.sqrt(whole))


def test_a_reading_is_trained_and_judged_three_times(match, monkeypatch):
    seen = []
    plainly = match.Matched.__init__

    def remember(self, **settings):
        seen.append(settings)
        plainly(self, **settings)

    monkeypatch.setattr(match.Matched, "__init__", remember)
    monkeypatch.setattr(match, "SAMPLES", 100)
    data = Digits(size=8).load()
    published = match.PUBLISHED["fashion_mnist"]
    found = match.train({"noise": 0.5, "fraction": 0.2}, published, data, 8, 4, torch.device("cpu"), [4, 2, 1])
    noise, rate = published.matched(8)
    wanted = {"steps": 8, "learning_rate": rate, "noise_multiplier": noise / 2, "fraction": 0.2, "l1": 3.0}
    assert seen == [wanted]
    assert list(found) == [f"{kind}, {part}" for part in ("a quarter", "half", "all") for kind in ("logreg", "mlp")]
    assert all(0 <= value <= 100 for value in found.values())


def test_files_hold_mean_and_spread_of_what_was_found(match, tmp_path):
    once, twice = ({"steps": 8000, "width": 4, "accuracy": {"logreg, all": value}} for value in (70.0, 74.0))
    match.write(tmp_path / "noise", "MNIST", {"as in Table 1": [once], "p = 0.2": [once, twice]})
    written = (tmp_path / "noise.md").read_text()
    assert "| as in Table 1 | 8,000 | 4 | 1 | 70.0 |" in written
    assert "| p = 0.2 | 8,000 | 4 | 2 | 72.0 ± 2.8 |" in written
    assert json.loads((tmp_path / "noise.json").read_text())["p = 0.2"] == [once, twice]
