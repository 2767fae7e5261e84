"""Where privacy noise comes from: a generator of its own, seeded by the operating system.

The experiment's seed never reaches it, so that a published seed does not publish the noise. A seed can be given for
tests; the noise is then recorded as reproducible, and the statement says that this voids the guarantee.

While a training runs, its checkpoints hold the state of `generator` (dpot/training/checkpoint.py says how they are
kept and when they are deleted): a killed run then repeats its last steps with the same noise, which is the same
release. With fresh noise they would be released a second time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpot.privacy.errors import POSITIVE, InvalidParameter, number

# torch seeds its CPU generator with 32 bits of whatever it is given, few enough to try them all. Its state is 624
# words of 32 bits, stored in 64 each after a header of 24 bytes (mt19937 in torch's legacy layout).
_STATE_BYTES, _HEADER, _WORDS = 5056, 24, 624
_CHUNK = 100_000


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
        """iid N(0, std²), as a new tensor on the device.

        Drawn in double precision: in single precision a normal variate never exceeds 5.8 to 6.7 standard
        deviations, because the uniform behind it has 24 or 32 bits.
        """
        std = number("std", std, POSITIVE)
        drawn = torch.randn(tuple(shape), generator=self.generator, dtype=self._precise, device=self.device)
        return (drawn * std).to(dtype)

    def normal_like(self, tensor: Tensor, std: float = 1.0) -> Tensor:
        """iid N(0, std²) in the shape and type of a tensor."""
        return self.normal(tensor.shape, std, tensor.dtype)

    @property
    def _precise(self) -> torch.dtype:
        return torch.float32 if self.device.type == "mps" else torch.float64

    def discrete_gaussian(self, shape: Sequence[int], sigma: float) -> Tensor:
        """iid integers with P(x) ∝ exp(-x²/2σ²) (Canonne, Kamath & Steinke 2020), as int64 on the device.

        Exact: OpenDP samples with integer arithmetic from the operating system's randomness. With a fixed seed,
        which OpenDP does not take, the law is sampled by inversion in double precision instead.
        """
        sigma = number("sigma", sigma, POSITIVE)
        size = math.prod(shape)
        drawn = self._by_inversion(size, sigma) if self.reproducible else _by_opendp(size, sigma)
        return drawn.reshape(tuple(shape)).to(self.device)

    def _by_inversion(self, size: int, sigma: float) -> Tensor:
        reach = math.ceil(12 * sigma) + 12
        x = torch.arange(-reach, reach + 1, dtype=torch.float64)
        cumulative = torch.softmax(-0.5 * (x / sigma) ** 2, dim=0).cumsum(0)
        uniform = torch.rand(size, generator=self.generator, dtype=self._precise, device=self.device)
        index = torch.searchsorted(cumulative, uniform.cpu().double())
        return x[index.clamp(max=len(x) - 1)].long()

    def record(self) -> dict[str, Any]:
        """What a statement says of the noise."""
        kind = "mt19937" if self.device.type == "cpu" else "Philox"
        return {
            "reproducible": self.reproducible,
            "seeded_by": "a fixed seed" if self.reproducible else "the operating system",
            "generator": f"{kind} on {self.device.type} (statistical, not cryptographic), double precision",
        }


def _by_opendp(size: int, sigma: float) -> Tensor:
    measurement = _opendp_measurement(sigma)
    parts = [np.asarray(measurement([0] * min(_CHUNK, size - i)), dtype=np.int64) for i in range(0, size, _CHUNK)]
    return torch.from_numpy(np.concatenate(parts)) if parts else torch.zeros(0, dtype=torch.int64)


@lru_cache(maxsize=16)
def _opendp_measurement(sigma: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    return dp.m.make_gaussian(*space, scale=sigma)
