"""How fast the composition of WDP's Figures 2 and 4 is: 100 steps × 1225 pairs, against a plain loop over them.

    python scripts/bench_composition.py            # about half a minute, nearly all of it the loop

Both compute the same three accountants from the same distances, and must agree to 1e-9. Prints the ratio and writes
results/bench/composition.json with versions and machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np
from scipy import special, stats

from dpot.config import REPOSITORY
from dpot.disk import write_atomically
from dpot.privacy.wdp.accountants import distances_of
from dpot.privacy.wdp.composition import Setting, account, compose, synthetic_gram
from dpot.record import commit_of_code


def plain_loop(distances: np.ndarray, bound: np.ndarray, setting: Setting) -> dict[str, float]:
    """The three accountants, one pair and one step after the other, with scipy's scalar functions."""
    order, q, steps = setting.order, setting.rate, len(distances)
    weights = [float(stats.binom.logpmf(k, order + 1, q)) for k in range(order + 2)]
    moments = bayesian = wasserstein = 0.0
    student = float(stats.t.ppf(1 - 1e-16, distances.shape[1] - 1))

    def log_moment(ratio: float) -> float:
        terms = [weights[k] + 0.5 * k * (k - 1) * ratio * ratio for k in range(order + 2)]
        top = max(terms)
        return top + math.log(sum(math.exp(term - top) for term in terms))

    for row, clip in zip(distances.tolist(), bound.tolist(), strict=True):
        noise = setting.sigma * clip
        moments += log_moment(2 * clip / noise)
        samples = [steps * log_moment(distance / noise) for distance in row]
        top, n = max(samples), len(row)
        scaled = [math.exp(sample - top) for sample in samples]
        mean = sum(scaled) / n
        std = math.sqrt(sum((value - mean) ** 2 for value in scaled) / n)
        bayesian += (top + math.log(mean + student * std / math.sqrt(n - 1))) / steps
        variance = (2 - 2 * q + 2 * q * q) * noise * noise
        lead = order / 2 * math.log(2 * variance) + math.lgamma((order + 1) / 2) - 0.5 * math.log(math.pi)
        logs = []
        for distance in row:
            x = (q * distance) ** 2 / (2 * variance)
            logs.append(lead + math.log(float(special.hyp1f1(-order / 2, 0.5, -x))))
        top = max(logs)
        wasserstein += math.exp((top + math.log(sum(math.exp(value - top) for value in logs))) / order)
    left = setting.delta - (1 - (1 - 1e-16) ** steps)
    return {
        "moments": (moments - math.log(setting.delta)) / order,
        "bayesian": (bayesian - math.log(left)) / order,
        "wasserstein": wasserstein - math.log(setting.delta) / setting.beta,
    }


def best_of(runs: int, function: Callable[[], object]) -> float:
    """The least of several wall times: what the machine can do when nobody else does."""
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Check that both agree, time them, write the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=REPOSITORY / "results" / "bench" / "composition.json")
    options = parser.parse_args()
    setting = Setting()
    gram = synthetic_gram(setting, 0)
    bound = np.quantile(np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1)), 0.5, axis=1)
    distances = distances_of(gram)

    vectorised = {name: float(curve[-1]) for name, curve in account(distances, bound, setting).items()}
    began = time.perf_counter()
    looped = plain_loop(distances, bound, setting)
    loop_seconds = time.perf_counter() - began
    for name, value in looped.items():
        if not math.isclose(value, vectorised[name], rel_tol=1e-9):
            raise SystemExit(f"{name}: the loop says {value}, the arrays say {vectorised[name]}")
    seconds = {
        "three accountants": best_of(5, lambda: account(distances, bound, setting)),
        "with clipping and distances": best_of(5, lambda: compose(gram, 0.5, True, setting)),
        "with the drawing of the gradients": best_of(
            3, lambda: compose(synthetic_gram(setting, 0), 0.5, True, setting)
        ),
        "plain loop, three accountants": loop_seconds,
    }
    ratio = loop_seconds / seconds["three accountants"]
    commit, _ = commit_of_code()
    result = {
        "steps": len(distances),
        "pairs": distances.shape[1],
        "seconds": seconds,
        "ratio": ratio,
        "under_one_second": seconds["with the drawing of the gradients"] < 1,
        "values": vectorised,
        "machine": {"platform": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "libraries": {name: metadata.version(name) for name in ("numpy", "scipy")},
        "commit": commit,
    }
    write_atomically(options.output, json.dumps(result, indent=1) + "\n")
    for name, value in seconds.items():
        print(f"{name:36s} {value:8.3f} s")
    print(f"{len(distances)} steps × {distances.shape[1]} pairs: {ratio:.0f} times as fast as the plain loop")


if __name__ == "__main__":
    main()
