"""How fast the accounting is, against the libraries the papers used, in the same run on the same machine.

    python scripts/bench_accounting.py            # about three minutes, nearly all of them autodp's

1. DP-SWD's Table 4 through dpot and through autodp: the same columns, the same search, the same tolerance.
2. One σ calibration for projections.
3. One noise calibration by privacy loss distributions, against dp-accounting's own call.

Prints the ratios and writes results/bench/accounting.json with versions and machine.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

import dp_accounting
from autodp import rdp_acct
from dp_accounting.pld import PLDAccountant
from scipy import optimize

from dpot.config import REPOSITORY
from dpot.papers.dp_swd.accounting import EPSILON, Setting, published_table_4
from dpot.privacy.budget import Budget
from dpot.privacy.calibration import find_epsilon, find_sigma, find_sigma_by_pld
from dpot.privacy.events import Adjacency, Gaussian, PoissonSampled
from dpot.privacy.projection import projection_rdp
from dpot.privacy.rdp import Pricing
from dpot.privacy.sensitivity import squared_sensitivity

Column = Callable[[Setting], float]
PLD_CASES = ((0.01, 5000, 2.0, 1e-5), (0.01, 5000, 10.0, 1e-5), (1 / 1200, 480_000, 10.0, 1e-5))


def coded_pricing(setting: Setting) -> Pricing:
    """What the authors' accountant was given, for either variant."""
    return Pricing("clt" if setting.central_limit else "coded", setting.delta, failure=setting.delta / 2)


def printed_pricing(setting: Setting) -> Pricing:
    """Equation 6 or the central limit theorem, as printed."""
    return Pricing.of("clt" if setting.central_limit else "bernstein", setting.delta)


def ours() -> dict[str, Column]:
    """The columns through dpot."""

    def sigma(setting: Setting, pricing: Pricing) -> float:
        return find_sigma(setting.release, setting.steps, Budget(EPSILON, setting.delta, conversion="mironov"), pricing)

    return {
        "coded": lambda s: sigma(s, coded_pricing(s)),
        "printed": lambda s: sigma(s, printed_pricing(s)),
        "exact": lambda s: sigma(s, Pricing.of("exact", s.delta)),
        "epsilon": lambda s: find_epsilon(s.release(s.sigma), s.steps, Budget(EPSILON, s.delta, conversion="mironov")),
    }


def by_autodp() -> dict[str, Column]:
    """The same columns through autodp's accountant."""

    def epsilon(curve: Callable[[float], float], setting: Setting, delta: float, improved: bool) -> float:
        accountant = rdp_acct.anaRDPacct()
        accountant.compose_subsampled_mechanism(
            curve, setting.batch / setting.records, coeff=setting.steps, improved_bound_flag=improved
        )
        return float(accountant.get_eps(delta))

    def bounded(setting: Setting, pricing: Pricing) -> float:
        square = squared_sensitivity(pricing.bound, setting.d, setting.k, pricing.failure)
        return root(
            lambda sigma: epsilon(
                lambda alpha: alpha * square / (2 * sigma**2), setting, pricing.delta, pricing.tight_sampling
            )
        )

    def exact_curve(setting: Setting, sigma: float) -> Callable[[float], float]:
        return cache(lambda a: float(projection_rdp(setting.d, setting.k, sigma, [max(a, 1 + 1e-9)])[0]))

    return {
        "coded": lambda s: bounded(s, coded_pricing(s)),
        "printed": lambda s: bounded(s, printed_pricing(s)),
        "exact": lambda s: root(lambda sigma: epsilon(exact_curve(s, sigma), s, s.delta, False)),
        "epsilon": lambda s: epsilon(exact_curve(s, s.sigma), s, s.delta, False),
    }


def root(spent: Callable[[float], float]) -> float:
    """The σ a user of autodp would find: a bracketing search on log σ, to four digits."""
    gap = cache(lambda log_sigma: math.log(spent(math.exp(log_sigma)) / EPSILON))
    low, high = math.log(0.5), math.log(2)
    while gap(low) < 0:
        low, high = low - math.log(2), low
    while gap(high) > 0:
        low, high = high, high + math.log(2)
    return math.exp(optimize.brentq(gap, low, high, xtol=1e-4))


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """What came out, and the seconds it took."""
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start


def table(columns: dict[str, Column], settings: list[Setting]) -> tuple[dict[str, dict[str, float]], float]:
    """All columns of all rows, and the seconds for all of it."""
    return timed(lambda: {s.row: {name: column(s) for name, column in columns.items()} for s in settings})


def bench_table_4(settings: list[Setting]) -> dict[str, Any]:
    """Table 4 both ways; the numbers must agree before the times mean anything."""
    mine, seconds = table(ours(), settings)
    theirs, their_seconds = table(by_autodp(), settings)
    worst = max(abs(mine[row][name] / theirs[row][name] - 1) for row in mine for name in mine[row])
    return {
        "rows": len(settings),
        "columns": list(ours()),
        "seconds": seconds,
        "autodp_seconds": their_seconds,
        "ratio": their_seconds / seconds,
        "largest_relative_difference": worst,
    }


def bench_sigma(settings: list[Setting], repeats: int = 5) -> dict[str, Any]:
    """One exact calibration for each row, the best of a few and the first (nothing cached) of each."""
    first, best = {}, {}
    for setting in settings:
        budget = Budget(EPSILON, setting.delta, conversion="mironov")
        times = [timed(partial(find_sigma, setting.release, setting.steps, budget))[1] for _ in range(repeats)]
        first[setting.row], best[setting.row] = times[0], min(times)
    return {"slowest_first_seconds": max(first.values()), "slowest_best_seconds": max(best.values()), "rows": best}


def bench_pld(rate: float, steps: int, epsilon: float, delta: float) -> dict[str, Any]:
    """The same calibration by loss distributions, with the discretisation of dp-accounting's default."""

    def event(noise: float) -> dp_accounting.DpEvent:
        one = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
        return dp_accounting.SelfComposedDpEvent(one, steps)

    mine, seconds = timed(
        lambda: find_sigma_by_pld(
            lambda z: PoissonSampled(Gaussian(z, Adjacency.ADD_REMOVE), rate), steps, epsilon, delta
        )
    )
    theirs, their_seconds = timed(lambda: dp_accounting.calibrate_dp_mechanism(PLDAccountant, event, epsilon, delta))
    return {
        "rate": rate,
        "steps": steps,
        "epsilon": epsilon,
        "delta": delta,
        "noise": mine,
        "dp_accounting_noise": theirs,
        "seconds": seconds,
        "dp_accounting_seconds": their_seconds,
        "share": seconds / their_seconds,
    }


def main() -> None:
    """Run all three and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=None, help="only the first rows of Table 4")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "bench" / "accounting.json")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    settings = [s for s in published_table_4() if s.row != "VisDA 1e-6"][: arguments.rows]
    sigma = bench_sigma(settings)
    print(
        f"sigma calibration: at most {1e3 * sigma['slowest_first_seconds']:.0f} ms at first, "
        f"{1e3 * sigma['slowest_best_seconds']:.0f} ms after"
    )
    find_sigma_by_pld(lambda z: PoissonSampled(Gaussian(z, Adjacency.ADD_REMOVE), 0.01), 100, 1.0, 1e-5)  # imports
    losses = [bench_pld(*case) for case in PLD_CASES]
    for case in losses:
        print(
            f"PLD calibration q={case['rate']:.4g} T={case['steps']} ε={case['epsilon']:g}: {case['seconds']:.2f} s, "
            f"{case['share']:.3f} of dp-accounting's {case['dp_accounting_seconds']:.2f} s "
            f"(noise {case['noise']:.5f}, {case['dp_accounting_noise']:.5f})"
        )
    table_4 = bench_table_4(settings)
    print(
        f"Table 4: {table_4['seconds']:.2f} s, autodp {table_4['autodp_seconds']:.1f} s: "
        f"{table_4['ratio']:.0f} times faster, values within {table_4['largest_relative_difference']:.1e}"
    )
    result = {
        "table_4": table_4,
        "sigma": sigma,
        "pld": losses,
        "versions": {name: metadata.version(name) for name in ("autodp", "dp-accounting", "numpy", "scipy")},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}",
        "device": "cpu",
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
