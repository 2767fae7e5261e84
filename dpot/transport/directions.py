"""Directions u_1..u_k to project on: k unit rows of a (k, d) tensor.

Every sampler takes a `torch.Generator`, draws tensors of fixed shape and never reads a value back, so it can be
captured in a CUDA graph (with the generator registered to the graph, each replay draws afresh). None looks at data.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dpot.errors import UsageError
from dpot.transport.checks import check_cloud

ImageShape = tuple[int, int, int]  # channels, height, width


def uniform_directions(
    k: int,
    d: int,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """k independent directions uniform on the sphere S^{d-1}: u = z/‖z‖, z ~ N(0, I_d) (DP-SWD's projections)."""
    return unit_rows(_normal((_count(k, "k"), _count(d, "d")), generator, device, dtype))


def smoothed_directions(
    k: int,
    shape: ImageShape,
    smoothing: float,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """k image directions: white noise convolved with a Gaussian of `smoothing` pixels, then normalised.

    u = vec(S_h Z S_w^T)/‖·‖ per channel, with S[i, j] ∝ exp(-(i-j)²/2s²). Images are smooth, so such directions
    carry more of their variance than uniform ones; pixels beyond the border count as zero.
    """
    return unit_rows(_smoothed_noise(k, shape, smoothing, generator, device, dtype).flatten(1))


def localised_directions(
    k: int,
    shape: ImageShape,
    smoothing: float,
    window: float,
    margin: float = 0.0,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    centres: Tensor | None = None,
) -> Tensor:
    """k image directions that look at one place each: smoothed noise times a Gaussian window of `window` pixels.

    u ∝ (S_h Z S_w^T) ∘ exp(-‖pixel - c‖²/2w²), the centre c uniform over the image less `margin` pixels at each
    border, or as given: (k, 2), row and column. smoothing = 0 keeps white noise under the window.
    """
    _positive(window, "window")
    _, height, width = shape
    _room(margin, height, width)
    noise = _smoothed_noise(k, shape, smoothing, generator, device, dtype)
    if centres is None:
        drawn = torch.rand(k, 2, generator=generator, device=device, dtype=dtype)
        down, across = _centres(drawn, margin, height, width)
    else:
        down, across = centres.unbind(1)
    rows, columns = _bump(height, down, window), _bump(width, across, window)
    return unit_rows((noise * rows[:, None, :, None] * columns[:, None, None, :]).flatten(1))


def gabor_directions(
    k: int,
    shape: ImageShape,
    window: float,
    margin: float = 0.0,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """k image directions that look for one edge or stripe each: a wave under a Gaussian window, less its mean there.

    u ∝ (cos(2π⟨f, pixel - c⟩ + φ) - m)·exp(-‖pixel - c‖²/2w²), with the centre c as in `localised_directions`, the
    phase φ uniform, and f in a uniform direction with 1/(8w) to 1/(2w) cycles per pixel: half a wave to four in the
    four windows that matter. m makes u orthogonal to a constant image. The same wave in every channel.
    """
    _positive(window, "window")
    channels, height, width = shape
    _room(margin, height, width)
    drawn = torch.rand(_count(k, "k"), 5, generator=generator, device=device, dtype=dtype)
    down, across = _centres(drawn, margin, height, width)
    rows, columns = _bump(height, down, window), _bump(width, across, window)
    bump = rows[:, :, None] * columns[:, None, :]
    angle, speed = math.pi * drawn[:, 2], (1 + 3 * drawn[:, 3]) / (8 * window)
    along_rows = _offset(height, down) * (speed * angle.sin())[:, None]
    along_columns = _offset(width, across) * (speed * angle.cos())[:, None]
    wave = along_rows[:, :, None] + along_columns[:, None, :] + drawn[:, 4, None, None]
    wave = torch.cos(2 * math.pi * wave)
    mean = (wave * bump).sum((1, 2), keepdim=True) / bump.sum((1, 2), keepdim=True)
    return unit_rows(((wave - mean) * bump).flatten(1).repeat(1, channels))


def cosine_directions(shape: ImageShape, per_axis: int) -> Tensor:
    """The lowest frequencies of the 2-D cosine transform, per_axis² of each channel: orthonormal rows.

    u = c_a·c_bᵀ with c_0 = 1/√n and c_a[i] = √(2/n)·cos(π·a·(i + ½)/n) (the orthonormal DCT-II).
    """
    channels, height, width = shape
    rows, columns = (_cosines(size, min(_count(per_axis, "per_axis"), size)) for size in (height, width))
    plane = torch.einsum("ah,bw->abhw", rows, columns).flatten(2).flatten(0, 1)
    return torch.block_diag(*[plane] * channels)


def given_directions(directions: Tensor) -> Tensor:
    """Directions chosen by the caller, (k, d), scaled to unit length; a zero row stays zero."""
    check_cloud(directions, "directions", dims=(2,))
    return unit_rows(directions)


def unit_rows(rows: Tensor) -> Tensor:
    """Each row divided by its Euclidean norm."""
    return torch.nn.functional.normalize(rows, dim=-1, eps=1e-30)


def _smoothed_noise(
    k: int,
    shape: ImageShape,
    smoothing: float,
    generator: torch.Generator | None,
    device: torch.device | str,
    dtype: torch.dtype,
) -> Tensor:
    channels, height, width = (_count(size, "shape") for size in shape)
    if smoothing < 0:
        raise UsageError(f"smoothing={smoothing} must not be negative")
    noise = _normal((_count(k, "k"), channels, height, width), generator, device, dtype)
    if smoothing == 0:
        return noise
    # two small matrix products instead of a convolution: the same linear map, and nothing to tune or to pad
    return _gaussian_matrix(height, smoothing, device, dtype) @ (
        noise @ _gaussian_matrix(width, smoothing, device, dtype)
    )


def _gaussian_matrix(size: int, smoothing: float, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Symmetric Toeplitz matrix of the Gaussian filter exp(-t²/2s²), normalised as on an infinite line."""
    position = torch.arange(size, device=device, dtype=dtype)
    lag = position[:, None] - position[None, :]
    reach = max(1, math.ceil(6 * smoothing))
    total = sum(math.exp(-(t**2) / (2 * smoothing**2)) for t in range(-reach, reach + 1))
    return torch.exp(-(lag**2) / (2 * smoothing**2)) / total


def _centres(drawn: Tensor, margin: float, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Rows and columns within the margin, from numbers in [0, 1)."""
    return margin + drawn[:, 0] * (height - 1 - 2 * margin), margin + drawn[:, 1] * (width - 1 - 2 * margin)


def _bump(size: int, centre: Tensor, window: float) -> Tensor:
    """(k, size) Gaussian windows around these centres."""
    return torch.exp(-(_offset(size, centre) ** 2) / (2 * window**2))


def _offset(size: int, centre: Tensor) -> Tensor:
    """(k, size) distances of the pixels of a row or column from these centres."""
    return torch.arange(size, device=centre.device, dtype=centre.dtype) - centre[:, None]


def _room(margin: float, height: int, width: int) -> None:
    if not 0 <= 2 * margin <= min(height, width) - 1:
        raise UsageError(f"margin={margin} leaves no room for a centre in a {height}×{width} image")


def _cosines(size: int, count: int) -> Tensor:
    """(count, size): the first rows of the orthonormal cosine transform."""
    position = torch.arange(size, dtype=torch.float64) + 0.5
    rows = torch.cos(math.pi / size * torch.arange(count, dtype=torch.float64)[:, None] * position)
    rows *= math.sqrt(2 / size)
    rows[0] /= math.sqrt(2)
    return rows.float()


def _normal(
    shape: tuple[int, ...],
    generator: torch.Generator | None,
    device: torch.device | str,
    dtype: torch.dtype,
) -> Tensor:
    return torch.randn(shape, generator=generator, device=device, dtype=dtype)


def _count(value: int, name: str) -> int:
    if value < 1:
        raise UsageError(f"{name}={value} must be at least 1")
    return value


def _positive(value: float, name: str) -> None:
    if not value > 0:
        raise UsageError(f"{name}={value} must be positive")
