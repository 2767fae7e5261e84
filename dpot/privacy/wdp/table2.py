"""The stated settings of WDP's Table 2, and what the paper's formula gives at them at the very least."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpot.privacy.wdp.accountants import WassersteinAccountant

ORDER, BETA, PAIRS = 16, 32.0, 28  # pairs of 8 leave-one-out gradients; C = 1
PRINTED_DELTA, CODED_DELTA = 1e-10, 1e-5


@dataclass(frozen=True)
class Training:
    """Sizes and noise of one row."""

    records: int
    batch: int
    epochs: int
    sigma: float

    @property
    def steps(self) -> int:
        """⌈N/B⌉ an epoch."""
        return self.epochs * math.ceil(self.records / self.batch)

    def least(self, delta: float) -> float:
        """Σ_t loss_t − ln δ/β at d_t = 0: as if no record moved any gradient."""
        accountant = WassersteinAccountant(ORDER, BETA)
        rate = self.batch / self.records
        accountant.accumulate(np.zeros((self.steps, PAIRS)), np.full(self.steps, self.sigma), rate)
        return float(accountant.history(delta)[-1])


SETTINGS = {
    "MNIST": Training(60_000, 1024, 25, 0.01),
    "CIFAR-10": Training(50_000, 512, 60, 5e-4),
    "SVHN": Training(73_257, 512, 25, 5e-4),
    "F-MNIST": Training(60_000, 1024, 25, 0.01),
}
