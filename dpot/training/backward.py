"""The backward pass of Σ weight·loss, without forming the sum."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def weighted_backward(device: torch.device, *weights: float) -> Callable[..., None]:
    """A function of as many losses as there are weights: adds the gradient of Σ weight·loss to the parameters.

    The slopes that the backward pass begins with lie on the device already. `(a + weight * b).backward()` launches
    five kernels for scalars: product, sum, a one, and product and one again on the way back.
    """
    slopes = [torch.tensor(float(weight), device=device) for weight in weights]

    def backward(*losses: Tensor) -> None:
        torch.autograd.backward(losses, slopes)

    return backward
