"""Try settings of the sketch on colour photographs: fitted to training images, judged on other training images.

    python scripts/photo_scan.py OUT --settings scripts/photo_settings.jsonl --seconds 540

The training images of CIFAR-10 are divided as torch's random_split does with seed 0: the first 40,000 are the private
records, the other 10,000 judge (the FID of 20,000 samples against them, and the accuracy of a small CNN on them). No
test image is looked at. Every line of the settings is a JSON object: a name, and what differs from the base, as
arguments of Sketch ("loss") and SketchDCGAN ("generator"), and "epsilon". OUT/scan-0-of-1.jsonl gets a line for each,
OUT/NAME-s0.png ten samples of each class. A name that has its line already is left out, so the same command goes on
where it was stopped; `--part 0/2` takes every second setting, for two processes beside each other.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from dpot.data.base import Dataset, unit_range
from dpot.data.cifar10 import CIFAR10
from dpot.data.image_bench import random_split
from dpot.data.weights import inception_weights
from dpot.evaluation.downstream import Downstream
from dpot.evaluation.fid import FrechetInception, frechet_distance, inception, read_weights
from dpot.methods.generate.base import Problem
from dpot.methods.sketch.method import Sketch
from dpot.models.generator import synthesize
from dpot.models.sketch_dcgan import SketchDCGAN
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.reporting.figures import grid
from dpot.training.progress import Progress

BASE = {"steps": 2000, "second_steps": 1000}  # of every setting that says nothing else
DELTA, CLASSES = 1e-5, 10


class Judge:
    """Held-out training images, and what is measured on them."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, given: argparse.Namespace) -> None:
        self.images, self.labels, self.samples = images, labels, given.samples
        self.downstream = Downstream("gs_wgan", ["cnn"], samples=given.samples, passes=1)
        self.protocol, self.network = FrechetInception(samples=given.samples), None
        if not given.no_fid:
            self.network = inception(read_weights(inception_weights(None).path), images.device)
            self.reference = self.protocol.statistics(images, self.network)

    def __call__(self, problem: Problem, seed: int) -> dict[str, float]:
        def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
            return synthesize(problem.generator, count, problem.random, problem.device)

        found = {}
        if self.network is not None:
            fake = self.protocol.statistics(draw(self.samples)[0], self.network)
            found["fid"] = round(frechet_distance(fake, self.reference), 2)
        accuracies = self.downstream.evaluate(draw, self.images, self.labels, CLASSES, seed)
        return found | {"cnn": round(accuracies["cnn"][0], 2)}


def attempt(
    setting: dict[str, Any], seed: int, private: tuple[torch.Tensor, torch.Tensor], judge: Judge, out: Path
) -> dict[str, Any]:
    """Fit and judge one setting."""
    images, labels = private
    device = images.device
    torch.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    method = Sketch(**(BASE | setting.get("loss", {})))
    generator = SketchDCGAN(CLASSES, (3, 32, 32), **setting.get("generator", {})).to(device)
    budget = Budget(float(setting.get("epsilon", 10.0)), DELTA)
    problem = Problem(
        images=images,
        labels=labels,
        classes=CLASSES,
        generator=generator,
        budget=budget,
        ledger=Ledger.of(budget),
        noise=NoiseSource(device=device),
        random=torch.Generator(device).manual_seed(seed),
        progress=Progress("silent"),
        name=setting["name"],
    )
    began = time.perf_counter()
    outcome = method.fit(problem)
    fitted = time.perf_counter() - began
    found: dict[str, Any] = {"name": setting["name"], "seed": seed, "fit_seconds": round(fitted, 1)}
    found |= judge(problem, seed)
    found |= {"seconds": round(time.perf_counter() - began, 1), "epsilon": problem.ledger.epsilon()}
    if outcome.history:
        found |= {key: outcome.history[-1][key] for key in ("loss", "unseen") if key in outcome.history[-1]}
    if device.type == "cuda":
        found["gigabytes"] = round(torch.cuda.max_memory_allocated() / 1e9, 1)
    shown, shown_labels = synthesize(problem.generator, 10 * CLASSES, problem.random, device)
    (out / f"{setting['name']}-s{seed}.png").write_bytes(grid(shown.cpu(), shown_labels.cpu(), CLASSES))
    return found | {"setting": setting}


def photographs(data: Dataset, given: argparse.Namespace) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """(private records, those that judge), images in [0, 1] with labels."""
    parts = random_split(data.train, len(data.train) // 5)
    limits = (given.records, given.judges)
    found = []
    for part, limit in zip(parts, limits, strict=True):
        assert part.y is not None
        found.append((unit_range(part.x[:limit]).to(given.device), part.y[:limit].to(given.device)))
    return tuple(found)


def main() -> None:
    """Every setting that has no line yet, while there is time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--settings", type=Path, default=Path(__file__).with_name("photo_settings.jsonl"))
    parser.add_argument("--seconds", type=float, default=540, help="no setting is begun that would not end by then")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--records", type=int, default=None)
    parser.add_argument("--judges", type=int, default=None)
    parser.add_argument("--no-fid", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    began = time.perf_counter()
    given.out.mkdir(parents=True, exist_ok=True)
    log = given.out / f"scan-{given.part.replace('/', '-of-')}.jsonl"
    done = {
        (line["name"], line["seed"]) for line in map(json.loads, log.read_text().splitlines() if log.exists() else [])
    }
    number, parts = (int(word) for word in given.part.split("/"))
    lines = [line for line in given.settings.read_text().splitlines() if line.strip() and not line.startswith("#")]
    settings = [json.loads(line) for line in lines][number::parts]
    private, judging = photographs(CIFAR10().load(None), given)
    judge, longest = Judge(*judging, given), 0.0
    print(
        f"{len(private[0])} records, {len(judging[0])} judges, {time.perf_counter() - began:.0f} s to begin", flush=True
    )
    for setting in settings:
        if (setting["name"], given.seed) in done:
            continue
        if time.perf_counter() - began + longest > given.seconds:
            print("no time is left; run it again to go on")
            break
        started = time.perf_counter()
        try:
            found = attempt(setting, given.seed, private, judge, given.out)
        except Exception as error:
            found = {"name": setting["name"], "seed": given.seed, "error": f"{type(error).__name__}: {error}"[:500]}
        longest = max(longest, time.perf_counter() - started)
        with log.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(json.dumps({key: value for key, value in found.items() if key != "setting"}), flush=True)


if __name__ == "__main__":
    main()
