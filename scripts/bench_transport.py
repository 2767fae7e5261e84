"""The transport losses, forward and backward, beside POT, geomloss and plain torch.

    python scripts/bench_transport.py --out results/bench        (make bench runs it)

All candidates of a row are timed in turn, round after round, in one process, and medians are compared: what else the
machine is doing falls on all of them alike. POT and geomloss are left out, and said to be, where they are not installed
(or on PYTHONPATH). On CUDA what is not theirs is also timed as a replayed CUDA graph, since the training engine
captures its steps; POT and geomloss read values back and cannot be. Writes transport.<cpu|cuda>.{json,md,png}.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from dpot import kernels
from dpot.transport import (
    annealed_temperatures,
    sinkhorn,
    sinkhorn_cost,
    sliced,
    sliced_wasserstein_power,
    uniform_directions,
)

Step = Callable[[], Any]
MNIST_DIAMETER = 73.4  # √(4·784 + 15²·10): images in [-1, 1] joined with 15·onehot
TEMPERATURES = annealed_temperatures(MNIST_DIAMETER, 0.05)


@dataclass
class Row:
    """One line of the table: medians in milliseconds by candidate, and what is asked of their ratios."""

    work: str
    milliseconds: dict[str, float]
    samples: int
    targets: list[tuple[str, str, float]]  # (ours, beside, how many times faster; below 1: how much slower at most)
    counts: dict[str, float]
    verdicts: list[str] = field(default_factory=list)


def reference(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is not installed: its column stays empty")
        return None


def gradient_of(loss: Callable[[Tensor], Tensor], x: Tensor) -> Step:
    return lambda: torch.autograd.grad(loss(x), x)


def plain_sliced(x: Tensor, y: Tensor, directions: Tensor) -> Tensor:
    """The sliced distance as one writes it down: (n, k) projections, sorted along the points."""
    return (((x @ directions).sort(0).values - (y @ directions).sort(0).values) ** 2).mean()


def sliced_candidates(n: int, d: int, k: int, device: str, ot: ModuleType | None) -> dict[str, Step]:
    source = torch.Generator(device).manual_seed(0)
    x = torch.rand(n, d, generator=source, device=device).requires_grad_()
    y = torch.rand(n, d, generator=source, device=device)
    u = uniform_directions(k, d, source, device)
    columns = u.T.contiguous()
    held = x.detach()

    def bare() -> None:
        (u @ held.T).sort(-1)
        (u @ y.T).sort(-1)

    candidates: dict[str, Step] = {
        "ours": gradient_of(lambda x: sliced_wasserstein_power(x, y, u), x),
        "plain torch": gradient_of(lambda x: plain_sliced(x, y, columns), x),
        "bare matmul+sort": bare,
    }
    if device == "cuda" and n <= sliced.KERNEL_LIMIT:
        candidates["ours, no kernels"] = without_kernels(candidates["ours"])
    if ot is not None:
        candidates["POT"] = gradient_of(lambda x: ot.sliced_wasserstein_distance(x, y, projections=columns) ** 2, x)
    check_agreement(candidates, ["ours", "plain torch", "POT"])
    return candidates


def without_kernels(step: Step) -> Step:
    """The same loss by its plain-torch twins, to see what the Triton kernels are worth."""

    def twin() -> Any:
        ours, kernels.run_on = kernels.run_on, lambda x: False
        try:
            return step()
        finally:
            kernels.run_on = ours

    return twin


def half_squares(x: Tensor, y: Tensor) -> Tensor:
    """geomloss' own cost for p = 2, by a product."""
    return (x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1).unsqueeze(-2) - 2 * x @ y.mT) / 2


def mixed_cost(l2: float, l1: float) -> Callable[[Tensor, Tensor], Tensor]:
    """The cost as geomloss takes it, on the tensor of differences (as DP-Sinkhorn's authors do)."""

    def cost(x: Tensor, y: Tensor) -> Tensor:
        difference = x.unsqueeze(-2) - y.unsqueeze(-3)
        return l2 * difference.square().sum(-1) + l1 * difference.abs().sum(-1)

    return cost


def sinkhorn_candidates(
    n: int, d: int, l1: float, device: str, ot: ModuleType | None, geomloss: ModuleType | None
) -> dict[str, Step]:
    """DP-Sinkhorn's loss on MNIST: 13 annealed steps to ε = .05. With l1 = 0 geomloss' own ½L2² by a product."""
    source = torch.Generator(device).manual_seed(0)
    x = (torch.rand(n, d, generator=source, device=device) * 2 - 1).requires_grad_()
    y = torch.rand(n, d, generator=source, device=device) * 2 - 1
    l2 = 1.0 if l1 else 0.5
    cost = mixed_cost(l2, l1)
    candidates: dict[str, Step] = {"ours": gradient_of(lambda x: sinkhorn_cost(x, y, TEMPERATURES, l2=l2, l1=l1), x)}
    if device == "cuda" and n <= sinkhorn.KERNEL_LIMIT:
        candidates["ours, no kernels"] = without_kernels(candidates["ours"])
    if geomloss is not None:
        own = cost if l1 else half_squares
        loss = geomloss.SamplesLoss(
            "sinkhorn", p=1, blur=0.05, debias=False, cost=own, diameter=MNIST_DIAMETER, backend="tensorized"
        )
        candidates["geomloss"] = gradient_of(lambda x: loss(x, y), x)
    if ot is not None:
        weights = torch.full((n,), 1 / n, device=device)
        options = {"method": "sinkhorn_log", "numItermax": 15, "stopThr": 0, "warn": False}
        candidates["POT log-domain"] = gradient_of(
            lambda x: ot.sinkhorn2(weights, weights, cost(x, y), 0.05, **options), x
        )
    check_agreement(candidates, ["ours", "geomloss"])
    return candidates


def check_agreement(candidates: dict[str, Step], names: list[str]) -> None:
    """A fast wrong answer is no answer: gradients of the named candidates must agree before they are timed."""
    gradients = {name: candidates[name]()[0].double() for name in names if name in candidates}
    ours = gradients.pop("ours")
    for name, gradient in gradients.items():
        error = float((gradient - ours).norm() / ours.norm())
        if not error < 2e-2:  # single precision orders points that are almost tied one way or the other
            raise SystemExit(f"the gradient of {name} differs from ours by {error:.1e}: nothing to compare")


def captured(step: Step) -> Step:
    """The step as a replayed CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        keep = step()

    def replay() -> None:
        graph.replay()
        _ = keep  # the graph writes into these tensors

    return replay


def one_sample(step: Step, device: str) -> float:
    """Milliseconds of one call: by CUDA events on the device, by the clock on a CPU."""
    if device == "cpu":
        start = time.perf_counter()
        step()
        return 1e3 * (time.perf_counter() - start)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def measure(candidates: dict[str, Step], device: str, seconds: float) -> tuple[dict[str, float], int]:
    """Medians over rounds in which every candidate runs once; at least 3 rounds, about `seconds` in all."""
    for step in candidates.values():
        for _ in range(1 if device == "cpu" else 5):
            step()
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    start, rounds = time.perf_counter(), 0
    while rounds < 3 or (time.perf_counter() - start < seconds and rounds < 500):
        for name, step in candidates.items():
            samples[name].append(one_sample(step, device))
        rounds += 1
    return {name: statistics.median(times) for name, times in samples.items()}, rounds


def with_graphs(candidates: dict[str, Step], device: str) -> dict[str, Step]:
    """On CUDA, what can be captured once more as a graph."""
    if device == "cpu":
        return candidates
    ours = {name: step for name, step in candidates.items() if name not in ("POT", "POT log-domain", "geomloss")}
    return candidates | {f"{name}, graph": captured(step) for name, step in ours.items()}


def launches(step: Step, device: str) -> int:
    """Kernels that one call launches (0 on a CPU)."""
    if device == "cpu":
        return 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())


def rates(device: str) -> dict[str, float]:
    """Measured ceilings of this machine: memory (GB/s), float32 products (GFLOP/s), one kernel launch (ms)."""
    size, side = (2**26, 4096) if device == "cuda" else (2**24, 1024)
    block, a, tiny = (torch.rand(shape, device=device) for shape in ((size,), (side, side), (1,)))
    steps: dict[str, Step] = {"copy": block.clone, "matmul": lambda: a @ a, "launch": lambda: tiny.add_(1)}
    times, _ = measure(steps, device, 1.0)
    return {
        "memory GB/s": 8e-6 * size / times["copy"],
        "product GFLOP/s": 2e-6 * side**3 / times["matmul"],
        "launch ms": times["launch"],
    }


def judge(row: Row, ceilings: dict[str, float]) -> None:
    """Write each target's verdict; a missed one says what bounds our time, with the counts."""
    for ours, beside, target in row.targets:
        if ours not in row.milliseconds or beside not in row.milliseconds:
            row.verdicts.append(f"{beside}: not measured")
            continue
        ratio = row.milliseconds[beside] / row.milliseconds[ours]
        verdict = f"{ours} is {ratio:.2f}× as fast as {beside} (target {target:g}×): "
        row.verdicts.append(verdict + ("met" if ratio >= target else f"MISSED; {bound(row, ceilings)}"))


def bound(row: Row, ceilings: dict[str, float]) -> str:
    floors = {
        "arithmetic": row.counts["product GFLOP"] / ceilings["product GFLOP/s"] * 1e3,
        "memory": row.counts["GB moved at least"] / ceilings["memory GB/s"] * 1e3,
        "launches": row.counts["launches"] * ceilings["launch ms"],
        "sort": row.milliseconds.get("bare matmul+sort", 0.0),
    }
    listed = ", ".join(f"{name} {floor:.3f} ms" for name, floor in floors.items() if floor)
    return f"bounded by {max(floors, key=lambda name: floors[name])} (floors: {listed}; {row.counts})"


def sliced_counts(n: int, d: int, k: int) -> dict[str, float]:
    """Two projections and one product back; points, directions, projections and gradient each moved once."""
    floats = 3 * n * d + k * d + 6 * k * n
    return {"product GFLOP": 6e-9 * n * d * k, "GB moved at least": 4e-9 * floats}


def sinkhorn_counts(n: int, d: int) -> dict[str, float]:
    """Cost and gradient take about 4 operations per pair and coordinate, each of the 15 steps 2 exponentials a pair."""
    return {"product GFLOP": 1e-9 * (8 * n * n * d + 15 * 8 * n * n), "GB moved at least": 4e-9 * (3 * n * d + n * n)}


def sliced_row(n: int, d: int, k: int, device: str, seconds: float, ot: ModuleType | None) -> Row:
    candidates = sliced_candidates(n, d, k, device, ot)
    counts = {**sliced_counts(n, d, k), "launches": launches(candidates["ours"], device)}
    times, rounds = measure(with_graphs(candidates, device), device, seconds)
    targets = [("ours", "POT", 1.5)]
    if device == "cuda":
        targets = [("ours", "POT", 3.0), ("ours, graph", "POT", 3.0), ("ours", "plain torch", 1.5)]
        targets += [("ours, graph", "plain torch, graph", 1.5), ("ours, graph", "bare matmul+sort, graph", 0.5)]
    return Row(f"SWD forward+backward, n={n}, d={d}, k={k}", times, rounds, targets, counts)


def sinkhorn_row(
    n: int, d: int, l1: float, device: str, seconds: float, ot: ModuleType | None, geomloss: ModuleType | None
) -> Row:
    candidates = sinkhorn_candidates(n, d, l1, device, ot, geomloss)
    counts = {**sinkhorn_counts(n, d), "launches": launches(candidates["ours"], device)}
    times, rounds = measure(with_graphs(candidates, device), device, seconds)
    factor = 1.0 if device == "cpu" else 10.0 if n <= 50 else 5.0
    targets = [("ours", "geomloss", factor)]
    if device == "cuda":
        targets.append(("ours, graph", "geomloss", factor))
    cost = f"L2²+{l1:g}·L1" if l1 else "½L2²"
    return Row(f"Sinkhorn forward+backward, {cost}, n={n}, d={d}", times, rounds, targets, counts)


def growth(device: str, seconds: float) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Median milliseconds of our losses (and the plain sliced one) as one size grows, by panel and line."""
    cuda = device == "cuda"
    sizes = {
        "sliced: points n (d=784, k=1000)": ("n", [100, 300, 1000, 3000] + ([10_000, 30_000] if cuda else [])),
        "sliced: dimension d (n=500, k=1000)": ("d", [50, 200, 784, 3072]),
        "sliced: directions k (n=500, d=784)": ("k", [50, 200, 1000, 4000]),
        "Sinkhorn: points n (d=794)": ("n", [25, 50, 100, 200, 256, 400] + ([1000, 2000] if cuda else [])),
        "Sinkhorn: dimension d (n=50)": ("d", [50, 200, 794, 3082]),
    }
    panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for panel, (axis, values) in sizes.items():
        lines = panels.setdefault(panel, {})
        for value in values:
            if panel.startswith("sliced"):
                base = {"n": 500, "d": 784, "k": 1000, axis: value}
                candidates = sliced_candidates(base["n"], base["d"], base["k"], device, None)
                candidates.pop("bare matmul+sort")
            else:
                base = {"n": 50, "d": 794, axis: value}
                candidates = sinkhorn_candidates(base["n"], base["d"], 1.0, device, None, None)
            times, _ = measure(with_graphs(candidates, device), device, seconds / 4)
            for name, milliseconds in times.items():
                lines.setdefault(name, []).append((value, milliseconds))
    return panels


def draw(panels: dict[str, dict[str, list[tuple[int, float]]]], title: str, path: Path) -> None:
    try:
        from matplotlib import pyplot
    except ImportError:
        print("matplotlib is not installed: no plot")
        return
    pyplot.switch_backend("Agg")
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4 * len(panels), 3.6), layout="constrained")
    for axis, (panel, lines) in zip(axes, panels.items(), strict=True):
        for name, points in lines.items():
            axis.loglog(*zip(*points, strict=True), marker="o", label=name)
        axis.set(title=panel, ylabel="ms, forward+backward")
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def table(rows: list[Row], machine: dict[str, Any], ceilings: dict[str, float]) -> str:
    lines = ["# Transport losses, forward and backward", ""]
    lines += [f"- {name}: {value}" for name, value in machine.items()]
    lines += [f"- measured ceilings: {', '.join(f'{v:.4g} {k}' for k, v in ceilings.items())}", ""]
    lines += ["Medians in milliseconds; candidates of a row timed in turn.", ""]
    lines += ["| work | candidate | ms | of ours | rounds |", "|---|---|---|---|---|"]
    for row in rows:
        ours = row.milliseconds["ours"]
        for name, milliseconds in row.milliseconds.items():
            lines.append(f"| {row.work} | {name} | {milliseconds:.4g} | {milliseconds / ours:.2f}× | {row.samples} |")
    lines += ["", "## Targets", ""]
    lines += [f"- {row.work}: {verdict}" for row in rows for verdict in row.verdicts]
    return "\n".join(lines) + "\n"


def machine_facts(device: str, packages: dict[str, ModuleType | None]) -> dict[str, Any]:
    if device == "cuda":
        name = torch.cuda.get_device_name()
    else:
        name = f"{platform.machine()} CPU with {torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} cores"
    versions = {"python": platform.python_version(), "torch": torch.__version__} | {
        key: getattr(package, "__version__", "missing") for key, package in packages.items()
    }
    return {
        "device": name,
        "threads": torch.get_num_threads(),
        "load average at the end (own work included)": round(os.getloadavg()[0], 2),
        "float32 products": torch.get_float32_matmul_precision(),
        "versions": ", ".join(f"{key} {version}" for key, version in versions.items()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "results" / "bench")
    parser.add_argument("--seconds", type=float, default=5.0, help="per row, about")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--largest", type=int, default=10_000, help="most points of the sliced rows")
    parser.add_argument("--note", default="none", help="what a reader of the numbers should know of the machine")
    options = parser.parse_args()
    device, seconds = options.device, options.seconds
    ot, geomloss = reference("ot"), reference("geomloss")
    ceilings = rates(device)
    rows = [sliced_row(n, 784, 1000, device, seconds, ot) for n in (100, 1000, 10_000) if n <= options.largest]
    for l1 in (1.0, 0.0):
        rows += [sinkhorn_row(n, 794, l1, device, seconds, ot, geomloss) for n in (50, 200)]
    for row in rows:
        judge(row, ceilings)
    panels = growth(device, seconds)
    machine = machine_facts(device, {"pot": ot, "geomloss": geomloss}) | {"note": options.note}
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / f"transport.{device}"
    document = {"machine": machine, "ceilings": ceilings, "rows": [asdict(row) for row in rows], "growth": panels}
    text = table(rows, machine, ceilings)
    Path(f"{stem}.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    Path(f"{stem}.md").write_text(text)
    draw(panels, f"Transport losses on {machine['device']}", Path(f"{stem}.png"))
    print(text)


if __name__ == "__main__":
    main()
