"""The optimal transport map between two Gaussians, in closed form."""

from __future__ import annotations

import torch
from torch import Tensor


def symmetric_power(matrix: Tensor, power: float, floor: float = 1e-10) -> Tensor:
    """M^power of a symmetric matrix; eigenvalues below floor·(the largest) are lifted to it."""
    values, vectors = torch.linalg.eigh(matrix)
    values = values.clamp(min=floor * float(values[-1].abs().clamp(min=1e-30)))
    return (vectors * values**power) @ vectors.T


def gaussian_map(source_covariance: Tensor, target_covariance: Tensor) -> Tensor:
    """A with x ↦ m_t + A(x - m_s) the W_2-optimal map from N(m_s, Σ_s) to N(m_t, Σ_t).

    A = Σ_s^{-1/2} (Σ_s^{1/2} Σ_t Σ_s^{1/2})^{1/2} Σ_s^{-1/2}   (Peyré & Cuturi 2019, Remark 2.31); symmetric, positive.
    """
    root, inverse = symmetric_power(source_covariance, 0.5), symmetric_power(source_covariance, -0.5)
    middle = root @ target_covariance @ root
    return inverse @ symmetric_power((middle + middle.T) / 2, 0.5) @ inverse
