"""Where privacy noise comes from: a generator of its own, seeded by the operating system.

The experiment's seed never reaches it, so that a published seed does not publish the noise. A seed can be given for
tests; the noise is then recorded as reproducible, and the statement says that this voids the guarantee.

While a training runs, its checkpoints hold the state of `generator` (dpot/training/checkpoint.py says how they are
kept and when they are deleted): a killed run then repeats its last steps with the same noise, which is the same
release. With fresh noise they would be released a second time.

Normal noise is drawn in double precision. In single precision it never exceeds 5.8 (CPU) or 6.8 (CUDA) standard
deviations, for the uniform behind it has 24 or 32 bits: an output beyond that end is one that a neighbour's data
cannot have, and over a long training it becomes likelier than δ.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpot.privacy.discrete import discrete_gaussian, system_words
from dpot.privacy.errors import POSITIVE, InvalidParameter, number

# torch seeds its CPU generator with 32 bits of whatever it is given, few enough to try them all. Its state is 624
# words of 32 bits, stored in 64 each after a header of 24 bytes (mt19937 in torch's legacy layout).
_STATE_BYTES, _HEADER, _WORDS = 5056, 24, 624


class NoiseSource:
    """Gaussian noise for tensors and exact discrete Gaussian noise for counts.

    `generator` is the torch generator on the device; a captured CUDA graph must register it.
    """

    def __init__(self, seed: int | None = None, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)
        self.seed = seed
        self.generator = torch.Generator(self.device)
        if seed is None:
            self._seed_by_system()
        else:
            self.generator.manual_seed(seed)

    @property
    def reproducible(self) -> bool:
        """Whether somebody who knows the seed can draw the same noise again (and subtract it)."""
        return self.seed is not None

    def _seed_by_system(self) -> None:
        self.generator.manual_seed(int.from_bytes(os.urandom(8), "little"))
        if self.device.type != "cpu":
            return  # CUDA's Philox takes all 64 bits
        state = self.generator.get_state()
        if state.numel() != _STATE_BYTES:
            raise InvalidParameter(f"torch {torch.__version__} keeps another CPU generator: noise cannot be seeded")
        words = np.frombuffer(os.urandom(4 * _WORDS), dtype=np.uint32).astype(np.uint64)
        state[_HEADER : _HEADER + 8 * _WORDS] = torch.from_numpy(words.view(np.uint8).copy())
        self.generator.set_state(state)

    def normal(self, shape: Sequence[int], std: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        """iid N(0, std²), drawn in double precision, as a new tensor on the device."""
        std = number("std", std, POSITIVE)
        empty = torch.empty(tuple(shape), dtype=torch.float64, device=self.device)
        return empty.normal_(0.0, std, generator=self.generator).to(dtype)

    def normal_like(self, tensor: Tensor, std: float = 1.0) -> Tensor:
        """iid N(0, std²) in the shape and type of a tensor."""
        return self.normal(tensor.shape, std, tensor.dtype)

    def discrete_gaussian(self, shape: Sequence[int], sigma: float) -> Tensor:
        """iid integers with P(x) ∝ exp(-x²/2S), as int64 on the device: exact (dpot/privacy/discrete.py).

        S is σ², rounded up to a multiple of 2^-20 (of 1 beyond σ = 1000). Drawn from the operating system's
        randomness; with a fixed seed from a generator of that seed.
        """
        parts = 2**20 if number("sigma", sigma, POSITIVE) < 1000 else 1
        variance = Fraction(math.ceil(sigma**2 * parts), parts)
        words = self._seeded_words if self.reproducible else system_words
        drawn = discrete_gaussian(math.prod(shape), variance, words)
        return torch.from_numpy(drawn).reshape(tuple(shape)).to(self.device)

    def _seeded_words(self, count: int) -> NDArray[np.uint64]:
        drawn = torch.randint(2**32, (2 * count,), generator=self.generator, device=self.device).cpu().numpy()
        return drawn.astype(np.uint32).view(np.uint64)

    def record(self) -> dict[str, Any]:
        """What a statement says of the noise."""
        kind = "mt19937" if self.device.type == "cpu" else "Philox"
        return {
            "reproducible": self.reproducible,
            "seeded_by": "a fixed seed" if self.reproducible else "the operating system",
            "generator": f"{kind} on {self.device.type} (statistical, not cryptographic), double precision",
            "counts": "exact discrete Gaussian"
            + ("" if self.reproducible else " from the operating system's random numbers"),
        }
