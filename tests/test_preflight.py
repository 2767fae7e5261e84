"""What is expected of a synthesis: the curves are those on record, and little signal is called little."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpot import preflight
from dpot.composing import compose_config
from dpot.data.coding import Category, ImageCoding, Number, TableCoding
from dpot.launch import run
from dpot.privacy.budget import Budget
from dpot.privacy.gaussian import gaussian_noise_multiplier

REPOSITORY = Path(__file__).resolve().parents[1]
GREY = ImageCoding("NHW", (1, 8, 8), "uint8", 0.0, 255.0)
COLOUR = ImageCoding("NHWC", (3, 8, 8), "uint8", 0.0, 255.0)


def expected(coding: Any, records: int, classes: int, epsilon: float) -> preflight.Expectation:
    return preflight.expect(coding, records, classes, Budget(epsilon, 1e-6, conversion="tight"), torch.device("cpu"))


def test_the_curves_are_those_on_record() -> None:
    found: dict[tuple[str, float], float] = {}
    for line in (REPOSITORY / preflight.IMAGES_SOURCE).read_text().splitlines():
        record = json.loads(line)
        if record["config"]["loss"]["_target_"].endswith(".Sketch"):
            name, epsilon = record["provenance"]["data"]["name"], record["config"]["privacy"]["epsilon"]
            found[name, epsilon] = record["metrics"]["mlp"]["mean"]
    for name, curve in (("mnist", preflight.MNIST), ("fashion_mnist", preflight.FASHION)):
        assert [round(found[name, epsilon], 1) for epsilon in preflight.EPSILONS] == list(curve)
    rows = json.loads((REPOSITORY / preflight.TABLES_SOURCE).with_suffix(".json").read_text())["rows"]
    real = {row["set"]: row["gb_auc"] for row in rows if row["method"] == "real"}
    sizes = {"adult": (39074, 14), "breast_cancer": (455, 30), "diabetes": (353, 10), "wine": (142, 13)}
    for signal, share, name, epsilon in preflight.TABLES:
        (row,) = (r for r in rows if (r["set"], r["method"], r["epsilon"]) == (name, "sketch", epsilon))
        assert row["gb_auc"] / real[name] == pytest.approx(share, abs=0.011)
        records, columns = sizes[name]
        classes = 3 if name == "wine" else 2
        mu = 1 / gaussian_noise_multiplier(epsilon, row["delta"])
        pairs = columns * (columns - 1) / 2
        assert records / classes * mu * math.sqrt(0.7 / (2 * pairs)) == pytest.approx(signal, rel=0.01)
    cpu = json.loads((REPOSITORY / preflight.CPU_SOURCE).read_text())["rows"]
    assert all(row["accuracy"]["mlp"] == pytest.approx(preflight.ON_CPU, abs=0.1) for row in cpu)


def test_noise_is_that_of_the_release() -> None:
    told = expected(TableCoding((Number("age", 0, 120, "int64"), Category("work", ("a", "b")))), 20_000, 2, 1)
    assert told.method == "marginals"
    multiplier = gaussian_noise_multiplier(1, 1e-6)
    assert told.noise_per_class == pytest.approx(multiplier * math.sqrt(2 * 3 / 0.3), rel=1e-3)  # 3 histograms, 30%
    assert not told.warnings
    assert told.seconds is None


@pytest.mark.parametrize(
    ("coding", "records", "epsilon", "words"),
    [
        (GREY, 60_000, 10, []),
        (GREY, 1500, 3, ["little signal"]),
        (COLOUR, 60_000, 10, ["blotches"]),
        (TableCoding(tuple(Number(str(i), 0, 1) for i in range(40))), 300, 1, ["few records for 40 columns"]),
    ],
)
def test_what_will_disappoint_is_said(coding: Any, records: int, epsilon: float, words: list[str]) -> None:
    told = expected(coding, records, 10 if coding is GREY else 2, epsilon)
    assert [word for word in words if not any(word in warning for warning in told.warnings)] == []
    assert bool(told.warnings) == bool(words)
    assert f"{records:,} records" in told.line()


def test_more_signal_promises_no_less() -> None:
    values = [preflight.between(x, [1.0, 10.0, 100.0], [1.0, 3.0, 5.0]) for x in (0.5, 1, math.sqrt(10), 10, 1000)]
    assert values == pytest.approx([1, 1, 2, 3, 5])


def test_a_preflight_releases_nothing(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((200, 8, 8), np.uint8), y=np.arange(200) % 2)
    own = ["task=synthesize", f"dataset.path={tmp_path / 'x.npz'}", "dataset.size=8", "device=cpu"]
    answer = run(compose_config([*own, f"output_root={tmp_path / 'out'}", "task.preflight=true"])).data
    assert (answer["records"], answer["classes"], list(answer["shape"])) == (180, 2, [1, 8, 8])
    assert answer["seconds"] > 0
    assert not (tmp_path / "out").exists()
