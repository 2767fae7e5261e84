"""Which directions the sliced sketch projects on. All are public, or made from what was already released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpot.errors import DataError, UsageError
from dpot.methods.sketch.features import Layout
from dpot.regular import open_regular
from dpot.transport.directions import (
    ImageShape,
    cosine_directions,
    gabor_directions,
    given_directions,
    localised_directions,
    smoothed_directions,
    uniform_directions,
    unit_rows,
)

# (smoothing, window) in pixels of a 28×28 image, and how many of the lines; window 0: all over the image
FAMILIES = ((1.5, 4.0, 0.3), (1.0, 3.0, 0.3), (1.5, 0.0, 0.2))
FAMILIES_LOW_NOISE = ((1.5, 4.0, 0.25), (1.0, 3.0, 0.25), (0.7, 2.0, 0.25), (1.5, 0.0, 0.1))
PLANE_FAMILY = (1.0, 3.0)
MARGIN = 4.0
PUBLIC = ("public", "uniform", "smoothed", "localised", "gabor")
KINDS = ("mixed", *PUBLIC, "principal")  # anything else is the name of a file
MOST_FUNCTIONS = 200  # dimension of the public subspace the moments are released in
MOST_PRINCIPAL = 100
LEAST_DEVIATION = 0.005
GREYLESS = 0.4  # of the directions on colour images: what differs between channels drowns in what they share


@dataclass(frozen=True)
class Moments:
    """What the first release says: mean and covariance in the subspace of `basis` (functions, d), and its noise."""

    basis: Tensor
    mean: Tensor
    covariance: Tensor
    noise: float  # standard deviation of one entry of the covariance

    def principal(self) -> tuple[Tensor, Tensor]:
        """Directions (r, d) whose variance stands above the spectrum of the noise, and their variances.

        A symmetric matrix of independent noise τ has its eigenvalues below 2·τ·√n (Wigner).
        """
        values, vectors = torch.linalg.eigh(self.covariance)
        edge = 2 * self.noise * math.sqrt(len(values))
        count = min(MOST_PRINCIPAL, len(values), max(4, int((values > edge).sum())))
        return vectors[:, -count:].T.flip(0) @ self.basis, values[-count:].flip(0).clamp(min=1e-6)

    def place(self, directions: Tensor, channels: int = 1) -> tuple[Tensor, Tensor]:
        """Centre and standard deviation of the projections on each direction.

        A direction that the subspace sees little of gets at least 4% of the deviation of the whole record in its
        colour, this counted as a quarter of the whole record's at least, and 1/200 where all records are alike.
        """
        inside = directions @ self.basis.T
        variances = ((inside @ self.covariance) * inside).sum(1)
        parts = directions.view(len(directions), channels, -1)
        colours = parts @ parts.transpose(1, 2)  # of a direction of one colour its products, which add up to 1
        whole = (colours * self.colours(channels)).sum((1, 2))
        total = max(float(self.covariance.trace()), 1e-12)
        floor = 0.04 * whole.clamp(total / 16, total).sqrt()
        return inside @ self.mean, variances.clamp(min=0).sqrt().maximum(floor.clamp(min=LEAST_DEVIATION))

    def colours(self, channels: int) -> Tensor:
        """(channels, channels): their covariances, summed over all pixels."""
        seen = self.basis.view(len(self.basis), channels, -1)
        varied = (self.covariance @ self.basis).view_as(seen)
        return torch.einsum("fcp,fdp->cd", seen, varied)

    def deviations(self, shape: ImageShape) -> Tensor:
        """(H, W): how much each pixel varies, as far as the subspace shows it; 0 where it may all be noise.

        Independent noise τ in a symmetric matrix C moves bᵀCb by about √2·τ‖b‖²; twice that is taken off.
        """
        variances = ((self.covariance @ self.basis) * self.basis).sum(0)
        noise = math.sqrt(2) * self.noise * self.basis.square().sum(0)
        return (variances - 2 * noise).clamp(min=0).view(shape).sum(0).sqrt()


def public_basis(shape: ImageShape) -> Tensor:
    """(functions, d): the lowest frequencies of the 2-D cosine transform per channel; for tables the columns."""
    channels = shape[0]
    if is_table(shape):
        return torch.eye(channels)[: min(channels, MOST_FUNCTIONS)]
    per_axis = max(1, math.isqrt(MOST_FUNCTIONS // channels))
    return cosine_directions(shape, per_axis)


def is_table(shape: ImageShape) -> bool:
    """Tables are kept as (columns, 1, 1)."""
    return shape[1] == shape[2] == 1


def draw_directions(
    shape: ImageShape,
    layout: Layout,
    moments: Moments,
    low_noise: bool,
    random: torch.Generator,
    kind: str = "mixed",
) -> Tensor:
    """(lines + 2·planes, d) unit directions.

    mixed: smooth and localised ones, the latter where the records vary, principal ones, and mixtures of these. public:
    without the last two, and localised ones everywhere: nothing here knows the released moments.
    uniform, smoothed, localised, gabor, principal: lines of this kind only. Else the name of a file (.npy) with
    directions of the user's own, (k, d); they must not be made from the private records.
    """
    device = moments.basis.device
    if is_table(shape):
        public, planes = _table_directions(shape[0], layout, random, device)
        public = public[: layout.lines // 2] if kind == "mixed" else public
    else:
        places = None if kind in PUBLIC else moments.deviations(shape)
        public = _public_lines(shape, layout.lines, low_noise, random, device, kind, places)
        planes = _plane_directions(layout.planes, shape, random, device, places)
    if kind == "uniform":
        public = uniform_directions(layout.lines, math.prod(shape), random, device)
    elif kind == "principal":
        public = public[:0]
    elif kind not in KINDS:
        public = _from_file(kind, math.prod(shape), layout.lines).to(device)
    left = max(0, layout.lines - len(public))
    found, variances = moments.principal()
    mixtures = torch.randn(max(0, left - len(found)), len(found), generator=random, device=device)
    mixed = unit_rows(mixtures * variances.pow(0.25)) @ found
    return torch.cat([torch.cat([found[:left], mixed, public])[: layout.lines], planes])


def _public_lines(
    shape: ImageShape,
    lines: int,
    low_noise: bool,
    random: torch.Generator,
    device: torch.device,
    kind: str,
    places: Tensor | None,
) -> Tensor:
    """Smooth and localised directions in the families' shares, or of one kind only."""
    if kind == "gabor":
        size = min(shape[1:])
        margin = min(MARGIN * size / 28, (size - 1) / 2)
        return gabor_directions(lines, shape, PLANE_FAMILY[1] * size / 28, margin, random, device)
    families = [
        (smoothing, window, share)
        for smoothing, window, share in (FAMILIES_LOW_NOISE if low_noise else FAMILIES)
        if kind not in ("smoothed", "localised") or bool(window) == (kind == "localised")
    ]
    whole = 1.0 if kind == "mixed" else sum(share for *_, share in families)
    drawn = [
        image_directions(round(share / whole * lines), shape, smoothing, window, random, device, places)
        for smoothing, window, share in families
    ]
    return torch.cat(drawn)[:lines]


def _from_file(path: str, size: int, lines: int) -> Tensor:
    try:
        with open_regular(Path(path)) as file:
            rows = torch.from_numpy(np.load(file, allow_pickle=False)).float()
    except (DataError, OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"loss.directions={path}: choose from {', '.join(KINDS)}, or name a .npy file ({error})"
        ) from None
    if rows.dim() != 2 or rows.shape[1] != size or len(rows) < lines:
        raise UsageError(
            f"loss.directions={path}: it holds {tuple(rows.shape)}, not {lines} or more directions of {size} numbers"
        )
    return given_directions(rows[:lines])


def image_directions(
    count: int,
    shape: ImageShape,
    smoothing: float,
    window: float,
    random: torch.Generator,
    device: torch.device,
    places: Tensor | None = None,
) -> Tensor:
    """Smooth or localised directions; lengths are in pixels of a 28×28 image and grow with the image.

    On colour images each has one pattern and one colour, mostly grey, as images have, or without any grey. places:
    (H, W), how often a localised one looks there; without it everywhere alike, less a margin at the borders.
    """
    channels, height, width = shape
    unit = min(height, width) / 28
    flat = (1, height, width)
    if window:
        margin = min(MARGIN * unit, (min(height, width) - 1) / 2)
        centres = None if places is None else _centres(count, places, random)
        found = localised_directions(
            count, flat, smoothing * unit, window * unit, margin, random, device, centres=centres
        )
    else:
        found = smoothed_directions(count, flat, smoothing * unit, random, device)
    return _coloured(found, channels, random)


def _centres(count: int, places: Tensor, random: torch.Generator) -> Tensor:
    """(count, 2): pixels drawn in proportion to `places`, or all alike where it is zero; somewhere within them."""
    weights = places.flatten()
    chosen = torch.multinomial(weights + 1e-6 * weights.max() + 1e-12, count, replacement=True, generator=random)
    pixels = torch.stack([chosen // places.shape[1], chosen % places.shape[1]], 1)
    return pixels + torch.rand(count, 2, generator=random, device=places.device) - 0.5


def _coloured(patterns: Tensor, channels: int, random: torch.Generator) -> Tensor:
    if channels == 1:
        return patterns
    drawn = torch.randn(len(patterns), channels, generator=random, device=patterns.device)
    greyless = torch.rand(len(patterns), 1, generator=random, device=patterns.device) < GREYLESS
    colours = torch.where(greyless, drawn - drawn.mean(1, keepdim=True), 1 + 0.7 * drawn)
    return unit_rows((colours[:, :, None] * patterns[:, None, :]).flatten(1))


def _plane_directions(
    planes: int, shape: ImageShape, random: torch.Generator, device: torch.device, places: Tensor | None
) -> Tensor:
    """Pairs of localised directions that look at the same place: the window of the one is that of the other."""
    d = shape[0] * shape[1] * shape[2]
    if not planes:
        return torch.zeros(0, d, device=device)
    unit = min(shape[1:]) / 28
    smoothing, window = PLANE_FAMILY
    first = image_directions(planes, shape, smoothing, window, random, device, places)
    weight = first.abs().view(planes, shape[0], shape[1], shape[2]).sum(1)
    rows = torch.arange(shape[1], device=device, dtype=torch.float32)
    columns = torch.arange(shape[2], device=device, dtype=torch.float32)
    total = weight.sum((1, 2))
    centre_row = (weight.sum(2) @ rows) / total + 2 * unit * torch.randn(planes, generator=random, device=device)
    centre_column = (weight.sum(1) @ columns) / total + 2 * unit * torch.randn(planes, generator=random, device=device)
    reach = 2 * (window * unit) ** 2
    bump = torch.exp(-((rows - centre_row[:, None]) ** 2) / reach)[:, :, None]
    bump = bump * torch.exp(-((columns - centre_column[:, None]) ** 2) / reach)[:, None, :]
    noise = smoothed_directions(planes, (1, *shape[1:]), smoothing * unit, random, device)
    second = _coloured(unit_rows((noise.view(planes, *shape[1:]) * bump).flatten(1)), shape[0], random)
    return torch.cat([first, second])


def _table_directions(
    columns: int, layout: Layout, random: torch.Generator, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Single columns first, then sums and differences of random pairs; planes are pairs of columns."""
    single = torch.eye(columns, device=device)
    pairs = torch.randint(columns, (layout.lines, 2), generator=random, device=device)
    sign = torch.randint(2, (layout.lines, 1), generator=random, device=device) * 2.0 - 1
    mixed = unit_rows(single[pairs[:, 0]] + sign * single[pairs[:, 1]] + 1e-6)
    chosen = torch.randint(columns, (layout.planes, 2), generator=random, device=device)
    planes = torch.cat([single[chosen[:, 0]], single[chosen[:, 1]]])
    return torch.cat([single, mixed]), planes
