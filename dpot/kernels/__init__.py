"""The GPU kernels that measurement keeps: one file each, in Triton, with its launcher.

The rule: a kernel wins 5% of a training step that somebody runs, or it goes. results/bench/kernels.cuda.md has every
kernel on and off in every captured step that uses it (scripts/bench_kernels.py, an H200); the best of each:

| kernel | of a step | twin in plain torch |
|---|---|---|
| adam | 15% of source training on Office-31 | torch's fused Adam |
| blur | 18% of the sketch's first fit | models/layers.py: SmoothDoubling |
| conv_pool | 50% of training the CNN that judges DP-Sinkhorn | models/pooling.py: ConvPoolFirst |
| group_norm | not measured yet: scripts/bench_diffusion.py | models/per_image.py: Norm |
| image_rows | not measured yet: scripts/bench_diffusion.py | models/per_image.py: conv_rows |
| narrow_conv | 7% of DP-Sinkhorn on MNIST | models/layers.py: NarrowConv2d |
| norm_relu | 24% of the sketch's first fit | models/layers.py: norm_relu |
| pool_relu | 20% of training the larger CNN that judges | models/pooling.py: PooledConv2d |
| sanitise | 8% of DP-Sinkhorn on MNIST | training/sanitise.py |
| sinkhorn | 66% of DP-Sinkhorn on MNIST | transport/solvers.py |
| sliced | 13% of SWD alignment on Office-31 | transport/sliced.py |

The twin says which tensors the kernel takes; it runs on the CPU, for all other tensors and where Triton is not
installed. Callers write `kernels.NAME.function(...)`, which imports the file, and Triton with it, at the first launch.
Launches have fixed shapes and read nothing back, so a CUDA graph can hold them, provided one call of the same shape
went before: it compiles.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dpot.errors import UsageError

if TYPE_CHECKING:
    from dpot.kernels import (
        adam,
        blur,
        conv_pool,
        group_norm,
        image_rows,
        narrow_conv,
        norm_relu,
        pool_relu,
        sanitise,
        sinkhorn,
        sliced,
    )

__all__ = [
    "adam",
    "blur",
    "conv_pool",
    "group_norm",
    "image_rows",
    "narrow_conv",
    "norm_relu",
    "pool_relu",
    "sanitise",
    "sinkhorn",
    "sliced",
]


def __getattr__(name: str) -> Any:
    """A kernel's file, imported when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


@cache
def has_triton() -> bool:
    """Whether our kernels can be compiled; they run on CUDA devices alone."""
    return importlib.util.find_spec("triton") is not None


def run_on(x: Tensor) -> bool:
    """Whether our kernels run where this tensor is."""
    return x.is_cuda and has_triton()


@lru_cache(maxsize=128)
def device_constants(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """A few numbers as a tensor, copied to the device once: a captured CUDA graph may not copy from the host."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise UsageError("run the loss once before capturing it in a CUDA graph, so that its constants are in place")
    with torch.inference_mode(False):  # a cached inference tensor could not take part in a later backward pass
        return torch.tensor(values, dtype=dtype, device=device)
