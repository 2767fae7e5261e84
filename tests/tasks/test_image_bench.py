"""DPImageBench's protocol from the command line to the record, on embedded digits and with a small network."""

import json

from torch import nn

from dpot.composing import compose_config
from dpot.data import image_bench
from dpot.data.digits import Digits
from dpot.launch import run


def small(name, channels, classes, cifar):
    return nn.Sequential(nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.BatchNorm1d(49), nn.Linear(49, classes))


def test_a_record_says_what_was_measured_and_what_no_epsilon_covers(tmp_path, monkeypatch):
    monkeypatch.setitem(image_bench.SOURCES, "mnist", Digits)
    monkeypatch.setattr("dpot.evaluation.image_bench.network_of", small)
    words = ["task=generate", "dataset=bench_mnist", "loss=gaussian_floor", "generator=linear", "privacy=eps10"]
    words += ["classifier=dpimagebench", "classifier.epochs=2", "profile=smoke", "device=cpu"]
    answer = run(compose_config([*words, f"output_root={tmp_path}"]))
    metrics = answer.data["metrics"]
    ways = ("resnet", "wrn", "resnext", "mean", "best")
    assert {*ways, *(f"{name}_sound" for name in ways), "pixel_frechet"} <= set(metrics)
    assert metrics["best"]["mean"] == max(metrics[name]["mean"] for name in ways[:3])
    assert metrics["protocol"] == "not DPImageBench's protocol: 2 of 50 epochs; 200 of 60,000 samples"
    held = round(len(Digits().load().train) / 12)
    told = json.dumps(answer.data["privacy"], ensure_ascii=False)
    assert f"{held:,} private validation images, without noise, 6 times" in told
    assert "its δ is 1/(N·ln N)" in told
    assert "the FID in this record, which are measured on the private training images" in told
