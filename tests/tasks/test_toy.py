"""Figure 2 of DP-SWD: distances of samples against those of the populations."""

import json

import pytest

from dpot.composing import compose_config
from dpot.launch import run
from dpot.reporting import sheets


def test_large_samples_have_the_distance_of_the_populations_with_and_without_noise(tmp_path):
    small = ["task.sizes=[10000]", "task.places=3", "task.draws=1", "task.projections=60", "task.sigmas=[0.0,1.0]"]
    data = run(compose_config(["task=toy", *small, f"output_root={tmp_path}", "device=cpu"])).data
    for curve in data["curves"]:
        far = curve["points"][-1]
        assert far["c"] == 1
        assert far["mean"] == pytest.approx(1, abs=0.2)  # c², from 60 directions of five dimensions
        assert curve["points"][0]["mean"] < 0.15
    assert json.loads((tmp_path / "dp_swd" / "figure2.json").read_text())["curves"] == data["curves"]
    assert (tmp_path / "dp_swd" / "figure2.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_noise_hides_small_distances_of_small_samples(tmp_path):
    small = ["task.sizes=[100]", "task.places=2", "task.draws=3", "task.sigmas=[0.0,3.0]"]
    assert sheets.load("dp_swd", 2, "figure").task == "toy"
    plain, noisy = run(compose_config(["task=toy", *small, f"output_root={tmp_path}"])).data["curves"]
    assert noisy["points"][0]["mean"] > 2 * plain["points"][0]["mean"]
