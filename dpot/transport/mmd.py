"""Maximum mean discrepancy by random Fourier features, as DP-MERF uses it.

    k(x, y) = exp(-‖x - y‖²/2ℓ²) = E_w cos(w·(x - y)),  w ~ N(0, I/ℓ²)        (Rahimi & Recht 2007)
    φ(x) = √(2/D) [cos(Wx), sin(Wx)] ∈ R^D, W of D/2 frequencies: ‖φ(x)‖ = 1 and ⟨φ(x), φ(y)⟩ ≈ k(x, y)
    MMD²(μ, ν) ≈ ‖mean φ(x) - mean φ(y)‖²                                      (DP-MERF)

With labels the feature is φ(x)⊗onehot(label): one mean embedding per class, weighted by the class's share (DP-MERF).
Since every feature has norm 1, replacing one of n records moves a mean embedding by at most 2/n.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import mse_loss

from dpot.errors import UsageError
from dpot.transport.checks import check_cloud


def fourier_frequencies(
    features: int,
    d: int,
    length_scale: float,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Frequencies W (D/2, d), entries N(0, 1/ℓ²), for D = `features` features.

    DP-MERF's published "length scale" of 105 (digits) and 127 (fashion) is the *square*: its code divides by √105, so
    ℓ = 10.2 and 11.3 here. (With ℓ = 105 and pixels in [0, 1] the kernel would be constant to 4%.)
    """
    if features < 2 or features % 2:
        raise UsageError(f"features={features} must be even and positive: half are cosines, half sines")
    if not length_scale > 0:
        raise UsageError(f"length_scale={length_scale} must be positive")
    return torch.randn(features // 2, d, generator=generator, device=device, dtype=dtype) / length_scale


def fourier_features(x: Tensor, frequencies: Tensor) -> Tensor:
    """φ(x) = √(2/D) [cos(Wx), sin(Wx)], (n, D), each row of norm 1."""
    return _waves(x, frequencies) * frequencies.shape[0] ** -0.5


def _waves(x: Tensor, frequencies: Tensor) -> Tensor:
    """[cos(Wx), sin(Wx)]."""
    check_cloud(x, "x", dims=(2,))
    if frequencies.shape[-1] != x.shape[-1]:
        raise UsageError(
            f"frequencies for dimension {frequencies.shape[-1]} do not fit points of dimension {x.shape[-1]}"
        )
    waves: Tensor = _CosSin.apply(x @ frequencies.T)
    return waves


class _CosSin(torch.autograd.Function):
    """phase ↦ [cos(phase), sin(phase)]; each is the other's derivative, so that the backward pass computes none."""

    @staticmethod
    def forward(ctx: Any, phase: Tensor) -> Tensor:
        half = phase.shape[1]
        waves = phase.new_empty(len(phase), 2 * half)
        torch.cos(phase, out=waves[:, :half])
        torch.sin(phase, out=waves[:, half:])
        ctx.save_for_backward(waves)
        return waves

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (waves,) = ctx.saved_tensors
        (cos, sin), (along_cos, along_sin) = waves.chunk(2, 1), slope.chunk(2, 1)
        return torch.addcmul(cos * along_sin, sin, along_cos, value=-1)


def mean_embedding(x: Tensor, frequencies: Tensor, labels: Tensor | None = None, classes: int | None = None) -> Tensor:
    """(1/n) Σ_i φ(x_i), shape (D,); with labels (1/n) Σ_i φ(x_i)⊗onehot(label_i), shape (D, classes).

    `labels` are integers (n,), or a one-hot matrix (n, classes) as a generator draws it.
    """
    if labels is None:
        return fourier_features(x, frequencies).mean(0)
    if labels.ndim == 1:
        if classes is None:
            raise UsageError("integer labels need the number of classes")
        labels = labels.unsqueeze(-1) == torch.arange(classes, device=labels.device)
    if labels.shape[0] != x.shape[0]:
        raise UsageError(f"{labels.shape[0]} labels for {x.shape[0]} points: give one label per point")
    # the two factors on the small side of the product: 1/n, and the √(2/D) of the features
    waves = _waves(x, frequencies)
    return waves.T @ (labels.to(waves.dtype) * (frequencies.shape[0] ** -0.5 / x.shape[0]))


def squared_mmd(embedding_x: Tensor, embedding_y: Tensor) -> Tensor:
    """‖μ_x - μ_y‖² between two mean embeddings, which may carry noise (DP-MERF)."""
    if embedding_x.shape != embedding_y.shape:
        raise UsageError(
            f"embeddings of shapes {tuple(embedding_x.shape)} and {tuple(embedding_y.shape)} cannot be compared"
        )
    return mse_loss(embedding_x, embedding_y, reduction="sum")
