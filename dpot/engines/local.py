"""One process: partition after partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpot.engines.base import Count, Engine, count_partitions, settled


class Local(Engine):
    """Counts in this process, and holds one batch at a time."""

    name = "local"

    def total(self, count: Count, source: Any) -> np.ndarray:
        return settled(count_partitions(count, source))
