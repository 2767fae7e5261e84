"""DP-Sinkhorn's long private runs in short: fewer steps, with the noise that drowns the data as much over all of them.

    python scripts/match_noise.py results/dp_sinkhorn/matched_noise/computed [--runs 3] [--dataset fashion_mnist]

What is learned from T steps under noise of multiplier z goes with √T/z, and how far Adam's weights wander with
rate·√T: a training of t steps with z·√(t/T) and rate·√(T/t) keeps both. It is not private: it tells, at a thousandth of
the cost, what a reading of the paper does to the private training. Each reading is trained, judged by logistic
regression and MLP (10,000 samples, scikit-learn's objectives) after a quarter, half and all of its steps, and written
to NAME.json, with where it comes from, and NAME.md as soon as it is done; what is there already is kept. The noise is
new each time and moves a run by several points: --runs says how many there shall be of each reading.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from dpot import config
from dpot.composing import compose_config
from dpot.config import CONF_DIR
from dpot.data.base import Dataset, facts, unit_range
from dpot.disk import write_atomically
from dpot.evaluation.downstream import Downstream
from dpot.methods.gate import Release
from dpot.methods.generate.base import Problem
from dpot.methods.generate.dp_sinkhorn import DPSinkhorn
from dpot.models.sinkhorn_dcgan import SinkhornDCGAN
from dpot.privacy.budget import Budget
from dpot.privacy.events import NonPrivate
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.record import provenance
from dpot.training.progress import Progress
from dpot.training.samplers import Poisson, Sampler

RATE = 1e-5  # as published, like what follows


@dataclass(frozen=True)
class Published:
    """The private training of a data set: steps, noise, and what else is set for it."""

    title: str
    steps: int
    noise: float
    settings: dict[str, Any]

    def matched(self, steps: int) -> tuple[float, float]:
        """Noise multiplier and rate for so many steps."""
        return self.noise * math.sqrt(steps / self.steps), RATE * math.sqrt(self.steps / steps)


PUBLISHED = {
    "mnist": Published("MNIST", 3_446_400, 1.1, {}),
    "fashion_mnist": Published("Fashion-MNIST", 1_812_000, 0.9, {"l1": 3.0}),
}
SAMPLES = 10_000  # to judge by
# what a reading changes; noise and rate are factors
READINGS: dict[str, dict[str, Any]] = {
    "as in Table 1": {},
    "p = 0.2": {"fraction": 0.2},
    "not debiased": {"debias": "none"},
    "debiased in full": {"debias": "full"},
    "half the noise": {"noise": 0.5},
    "p = 0.2, half the noise": {"fraction": 0.2, "noise": 0.5},
    "no noise": {"noise": 0.0},
    "averaged": {"ema": 0.999},
    "p = 0.2, averaged": {"fraction": 0.2, "ema": 0.999},
    "rate × 3": {"rate": 3.0},
    "rate / 3": {"rate": 1 / 3},
    "m = 1": {"l1": 1.0},
    "m = 3": {"l1": 3.0},
    "parameter gradient, L2, biased": {"perturb": "parameters", "l1": 0.0, "debias": "none"},
    "image gradient, L2, biased": {"l1": 0.0, "debias": "none"},
    "image gradient, L1, biased": {"l2": 0.0, "debias": "none"},
}
PARTS = {4: "a quarter", 2: "half", 1: "all"}  # averages of weights are judged at the end alone


class Matched(DPSinkhorn):
    """The private training with a noise that no ε stands behind."""

    def _mechanism(self, problem: Problem, steps: int) -> tuple[Sampler, Release]:
        assert self.noise_multiplier is not None
        sampler = Poisson(len(problem.images), self.batch / len(problem.images), problem.noise.generator)
        event = NonPrivate("a simulation: the noise is that of many more steps")
        return sampler, problem.release(event, sampler=sampler, steps=steps, unaccounted=self.noise_multiplier)


def train(
    reading: dict[str, Any],
    published: Published,
    data: Dataset,
    steps: int,
    width: int,
    device: torch.device,
    parts: Sequence[int],
) -> dict[str, float]:
    """Accuracies by classifier and step."""
    settings = published.settings | reading
    noise, rate = published.matched(steps)
    noise, rate = max(1e-9, noise * settings.pop("noise", 1.0)), rate * settings.pop("rate", 1.0)
    torch.manual_seed(0)
    problem = Problem(
        images=unit_range(data.train.x).to(device),
        labels=_labels(data.train.y).to(device),
        classes=data.classes,
        generator=SinkhornDCGAN(data.classes, data.shape, width=width, bfloat16=device.type == "cuda").to(device),
        budget=Budget(10.0, 1e-5, conversion="mironov"),
        ledger=Ledger(1e-5, None),
        noise=NoiseSource(device=device),
        random=torch.Generator(device).manual_seed(0),
        batch_statistics=True,
        progress=Progress("auto"),
        name="matched noise",
    )
    method = Matched(steps=steps, learning_rate=rate, noise_multiplier=noise, **settings)
    engine = method.prepare(problem)
    judge = Downstream("merf", ("logreg", "mlp"), SAMPLES, 1)
    test_x, test_y = unit_range(data.test.x).to(device), _labels(data.test.y).to(device)

    def draw(count: int) -> tuple[Tensor, Tensor]:
        images, labels = method.draw(problem, count)
        return images * (images >= 0.5), labels

    found = {}
    for part in parts:
        engine.steps = steps // part
        engine.run()
        if part == 1:  # not before: the training goes on from the weights themselves
            problem.settle()
        for kind, values in judge.evaluate(draw, test_x, test_y, data.classes, 0).items():
            found[f"{kind}, {PARTS[part]}"] = values[0]
    return found


def _labels(labels: Tensor | None) -> Tensor:
    assert labels is not None
    return labels


def write(name: Path, title: str, found: dict[str, list[dict[str, Any]]]) -> None:
    """Both files."""
    write_atomically(name.with_suffix(".json"), json.dumps(found, indent=1) + "\n")
    columns = list(next(iter(found.values()))[0]["accuracy"])
    lines = [
        f"# DP-Sinkhorn on {title} with matched noise: a simulation, not private",
        "",
        "| reading | steps | width | runs | " + " | ".join(columns) + " |",
        "|---" * (4 + len(columns)) + "|",
    ]
    for reading, runs in found.items():
        sizes = (", ".join(sorted({f"{run[key]:,}" for run in runs})) for key in ("steps", "width"))
        accuracies = (_spread([run["accuracy"][c] for run in runs if c in run["accuracy"]]) for c in columns)
        lines.append("| " + " | ".join([reading, *sizes, str(len(runs)), *accuracies]) + " |")
    write_atomically(name.with_suffix(".md"), "\n".join([*lines, ""]))


def _spread(values: list[float]) -> str:
    """Mean and, of several, standard deviation; a dash where a part was not judged."""
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def _read(path: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def main() -> None:
    """Train what is asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", type=Path, help="of the files, without .json")
    parser.add_argument("--dataset", default="mnist", choices=list(PUBLISHED))
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--width", type=int, default=16, help="of the generator; the published one has 64")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--parts", nargs="+", type=int, default=list(PARTS), choices=list(PARTS), help="4: a quarter")
    parser.add_argument("--readings", nargs="+", default=list(READINGS), choices=list(READINGS))
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    cfg = compose_config(["task=distance", "privacy=none", f"device={device.type}"])
    node = OmegaConf.load(CONF_DIR / "dataset" / f"{options.dataset}.yaml")
    assert isinstance(node, DictConfig)
    data = config.instantiate(node, "dataset").load(cfg.data_root)
    path, published = options.name.with_suffix(".json"), PUBLISHED[options.dataset]
    for _, reading in itertools.product(range(options.runs), options.readings):
        if len(_read(path).get(reading, ())) >= options.runs:
            continue
        sizes = options.steps, options.width
        accuracy = train(READINGS[reading], published, data, *sizes, device, options.parts)
        print(reading, accuracy, flush=True)
        origin = {key: value for key, value in provenance(cfg).items() if key != "command"} | {"data": facts(data)}
        one = {"changes": READINGS[reading], "steps": options.steps, "width": options.width, "accuracy": accuracy}
        found = _read(path)  # another process may have written meanwhile
        found.setdefault(reading, []).append(one | {"provenance": origin})
        write(options.name, published.title, found)


if __name__ == "__main__":
    main()
