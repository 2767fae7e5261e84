"""One training step of each method, by the engine and written plainly: how much the engine is worth.

    python scripts/bench_training.py --out results/bench        (make bench runs it)

The plain step is what a careful user of torch and geomloss would write: torch's own up-sampling, a sort along the
batch, a loop that reads the loss now and then. Ratios are of one process on one device.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpot.disk import write_atomically
from dpot.methods.generate.base import Problem
from dpot.methods.generate.dp_sinkhorn import DPSinkhorn
from dpot.methods.generate.dp_swd import DPSWD
from dpot.models.merf_conv import MerfConv
from dpot.models.sinkhorn_dcgan import SinkhornDCGAN
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.record import commit_of_code, device_name

SHAPE, CLASSES, RECORDS = (1, 28, 28), 10, 60_000
PAPER_STEPS = {"DP-SWD": 60_100, "DP-Sinkhorn": 3_446_400}


def problem(model: nn.Module, device: torch.device, steps: int) -> Problem:
    """Random images with the sizes of MNIST: what a step costs does not depend on what they show."""
    generator = torch.Generator(device).manual_seed(0)
    images = torch.rand(RECORDS, *SHAPE, generator=generator, device=device).pow(4)
    labels = torch.arange(RECORDS, device=device) % CLASSES
    budget = Budget(epsilon=10.0, delta=1e-5, conversion="mironov")
    return Problem(
        images=images,
        labels=labels,
        classes=CLASSES,
        generator=model.to(device),  # type: ignore[arg-type]
        budget=budget,
        ledger=Ledger(1e-5, None),
        noise=NoiseSource(device=device),
        random=generator,
        max_steps=steps,
    )


class PlainMerf(nn.Module):
    """The DP-MERF generator with torch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Sequential(
            nn.Linear(20, 200), nn.BatchNorm1d(200), nn.ReLU(), nn.Linear(200, 784), nn.BatchNorm1d(784)
        )
        self.conv1, self.conv2 = nn.Conv2d(16, 8, 5, padding=2), nn.Conv2d(8, 1, 5, padding=2)

    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        x = self.dense(torch.cat([code, F.one_hot(labels, 10).float()], 1)).view(-1, 16, 7, 7)
        x = torch.relu(self.conv1(F.interpolate(x, scale_factor=2, mode="bilinear")))
        return torch.sigmoid(self.conv2(F.interpolate(x, scale_factor=2, mode="bilinear"))).flatten(1)


def plain_swd(device: torch.device) -> Callable[[], None]:
    """DP-SWD's step in eager torch: per class, project, add noise, sort, compare."""
    x = torch.rand(RECORDS, 784, device=device).pow(4) / 28
    members = [torch.arange(c, RECORDS, CLASSES, device=device) for c in range(CLASSES)]
    model = PlainMerf().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    labels = torch.arange(CLASSES, device=device).repeat_interleave(10)

    def step() -> None:
        rows = torch.cat([m[torch.randperm(len(m), device=device)[:10]] for m in members])
        directions = torch.randn(784, 1000, device=device)
        directions = directions / directions.norm(dim=0)
        real = x[rows] @ directions
        fake = model(torch.randn(100, 10, device=device), labels) / 28 @ directions
        real = real + 0.776 * torch.randn_like(real)
        fake = fake + 0.776 * torch.randn_like(fake)
        loss = torch.zeros((), device=device)
        for c in range(CLASSES):
            mine = slice(10 * c, 10 * c + 10)
            loss = loss + (real[mine].sort(0)[0] - fake[mine].sort(0)[0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def plain_sinkhorn(device: torch.device) -> Callable[[], None] | None:
    """DP-Sinkhorn's step with geomloss, as its authors wrote it; None where geomloss is missing."""
    try:
        from geomloss import SamplesLoss
    except ImportError:
        return None
    data = torch.cat([torch.rand(RECORDS, 784, device=device) * 2 - 1, torch.zeros(RECORDS, 10, device=device)], 1)
    data[torch.arange(RECORDS), 784 + torch.arange(RECORDS) % 10] = 15
    model = SinkhornDCGAN(classes=10, shape=SHAPE).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, weight_decay=1e-5)

    def cost(a: Tensor, b: Tensor) -> Tensor:
        difference = a[:, :, None, :] - b[:, None, :, :]
        return difference.square().sum(-1) + difference.abs().sum(-1)

    loss_of = SamplesLoss("sinkhorn", p=1, blur=0.05, cost=cost, debias=False, backend="tensorized", scaling=0.5)

    def step() -> None:
        rows = (torch.rand(RECORDS, device=device) < 50 / RECORDS).nonzero()[:, 0]
        labels = torch.randint(10, (50,), device=device)
        labels = torch.cat([labels, labels[:20]])
        images = model(torch.rand(70, 16, device=device), labels)
        joint = torch.cat([images.flatten(1), 15 * F.one_hot(labels, 10).float()], 1)
        leaf = joint[:50].detach().requires_grad_()
        (private,) = torch.autograd.grad(2 * loss_of(leaf, data[rows]), leaf)
        private = private[:, :784]
        private = private * (0.5 / private.norm()).clamp(max=1) + torch.randn_like(private)
        public = -loss_of(joint[:50], joint[20:])
        optimizer.zero_grad()
        torch.autograd.backward([public, images[:50].flatten(1)], [torch.ones_like(public), private])
        optimizer.step()

    return step


def rate_of(step: Callable[[], None], device: torch.device, seconds: float) -> float:
    """Steps per second of a plain loop, after a warm-up."""
    for _ in range(3):
        step()
    _synchronise(device)
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(5):
            step()
        _synchronise(device)
        done += 5
    return done / (time.perf_counter() - began)


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def markdown(facts: dict[str, Any]) -> str:
    """The measurements as a table."""
    lines = [
        "# One training step, by the engine and written plainly",
        "",
        f"{facts['device']}, torch {facts['torch']}, Python {facts['python']}, commit {str(facts['commit'])[:12]}",
        "",
        "| step | mode | µs a step | plain, µs | ratio | target | the paper's steps |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in facts["rows"]:
        plain = row["plain_steps_per_second"]
        beside = f"{1e6 / plain:.0f} | {row['ratio']:.1f}×" if plain else "– | –"
        lines.append(
            f"| {row['step']} | {row['mode']} | {1e6 / row['steps_per_second']:.0f} | {beside} "
            f"| {row['target_ratio']}× | {PAPER_STEPS[row['step']]:,} in {row['seconds_for_the_paper']:,.0f} s |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "results" / "bench")
    parser.add_argument("--seconds", type=float, default=5.0, help="per measurement")
    options, _ = parser.parse_known_args()
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    rows = []
    for name, method, model, plain, factor in (
        ("DP-SWD", DPSWD(), MerfConv(classes=10, shape=SHAPE), plain_swd(device), 10),
        ("DP-Sinkhorn", DPSinkhorn(), SinkhornDCGAN(classes=10, shape=SHAPE), plain_sinkhorn(device), 10),
    ):
        reference = rate_of(plain, device, options.seconds) if plain is not None else None
        # Two lengths: their difference holds no warm-up, capture or start of any kind.
        short = method.fit(problem(model, device, 10 if device.type == "cpu" else 500))
        more = max(10, math.ceil(short.steps_per_second * options.seconds))
        outcome = method.fit(problem(model, device, short.steps + more))
        again = method.fit(problem(model, device, short.steps))
        rate = more / (outcome.seconds - again.seconds)
        rows.append(
            {
                "step": name,
                "mode": outcome.mode,
                "start_seconds": again.seconds - again.steps / rate,
                "steps_per_second": rate,
                "plain_steps_per_second": reference,
                "ratio": rate / reference if reference else None,
                "target_ratio": factor if device.type == "cuda" else 1,
                "seconds_for_the_paper": PAPER_STEPS[name] / rate,
            }
        )
        print(json.dumps(rows[-1]))
    commit, dirty = commit_of_code()
    facts = {
        "device": device_name(str(device)),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit,
        "dirty": dirty,
        "rows": rows,
    }
    write_atomically(options.out / f"training.{device.type}.json", json.dumps(facts, indent=1) + "\n")
    write_atomically(options.out / f"training.{device.type}.md", markdown(facts))


if __name__ == "__main__":
    main()
