"""How long a wide table takes, and how much memory: results/bench/tables.cpu.json.

python scripts/bench_tables.py results/bench/tables.cpu.json
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
import torch

from dpot import Synthesizer


def main() -> None:
    """Generate, fit, sample, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=200)
    given = parser.parse_args()
    random = np.random.default_rng(0)
    y = random.integers(0, 2, given.records)
    x = random.random((given.records, given.columns), dtype=np.float32)
    x[:, 1] = 0.5 * x[:, 0] + 0.5 * x[:, 1] ** 2  # two columns that are related
    x[:, 2] = 0.7 * x[:, 2] + 0.3 * y  # and one that follows the label
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    began, used = time.perf_counter(), time.process_time()
    made = Synthesizer(1, 1e-8, ranges=(0, 1), classes=[0, 1], device="cpu").fit(x, y)
    fitted = time.perf_counter() - began
    fake, labels = made.sample(100_000)
    related = set(made.release_.marginals.related.tolist())
    found = {
        "what": f"Synthesizer.fit and 100,000 sampled records of a generated table of {given.records:,} records and "
        f"{given.columns} columns of numbers in [0, 1] with two classes, epsilon=1, delta=1e-8; "
        f"{torch.get_num_threads()} thread(s) on two cores that other work may use as well",
        "seconds": {
            "fit": round(fitted, 1),
            "fit and sample": round(time.perf_counter() - began, 1),
            "CPU": round(time.process_time() - used, 1),
        },
        "memory_gb": {
            "peak": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
            "before the fit": round(before, 2),
        },
        "bins_per_column": max(made.release_.marginals.bins),
        "related_pairs": {"found": len(related), "the true one is among them": 1 in related},
        "correlation_of_two_columns": {
            "real": round(float(np.corrcoef(x[:, 0], x[:, 1])[0, 1]), 3),
            "synthetic": round(float(np.corrcoef(fake[:, 0], fake[:, 1])[0, 1]), 3),
        },
        "difference_between_classes": {
            "real": round(float(x[y == 1, 2].mean() - x[y == 0, 2].mean()), 3),
            "synthetic": round(float(fake[labels == 1, 2].mean() - fake[labels == 0, 2].mean()), 3),
        },
        "remarks": made.remarks_,
    }
    given.file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
