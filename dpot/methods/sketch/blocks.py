"""From noisy counts of a table to what a generator starts from: bins, consistent histograms, which columns are related.

All of this looks at released counts only, and costs nothing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

THRESHOLD = 3  # deviations


def nearest_histogram(values: Tensor, total: float) -> Tensor:
    """The non-negative vector with this sum that is closest in L2 (a projection on the simplex)."""
    falling = values.double().sort(descending=True).values
    excess = (falling.cumsum(0) - total) / torch.arange(1, len(falling) + 1, device=values.device)
    last = int((falling > excess).nonzero().max()) if total > 0 else 0
    return (values.double() - excess[last]).clamp(min=0)


def make_bins(shares: Tensor, ordered: bool, most: int, rare: float, gap: bool = False) -> Tensor:
    """Which bin each cell of a column belongs to.

    Categories that hold less than the share `rare`, which noise could have made, are one bin together. Numbers: a
    cell with more than 1/most of the records, a spike, is a bin of its own; the others are joined with their neighbours
    until a bin holds its share of what is left. A gap is always a bin of its own.
    """
    if gap:
        bins = make_bins(shares[:-1], ordered, most, rare)
        return torch.cat([bins, bins.max()[None] + 1])
    count = len(shares)
    if not ordered:
        kept = shares >= max(rare, float(shares.sort(descending=True).values[min(count, 4 * most) - 1]))
        if int(kept.sum()) >= count - 1:
            return torch.arange(count, device=shares.device)
        return torch.where(kept, kept.cumsum(0) - 1, int(kept.sum()))
    spikes = shares >= max(1 / most, rare)
    wanted = max(float(1 - shares[spikes].sum()) / most, rare)
    found, index, held = [0], 0, float(shares[0])
    for cell in range(1, count):
        share = float(shares[cell])
        if spikes[cell - 1] or (spikes[cell] and held >= rare / 2) or held + share / 2 > wanted:
            index, held = index + 1, 0.0
        found.append(index)
        held += share
    return torch.tensor(found, device=shares.device)


def smoothed(noisy: Tensor, deviation: float, ordered: bool) -> Tensor:
    """A noisy histogram with less noise.

    Ordered cells: differences between neighbouring stretches of 1, 2, 4, … cells are kept where they exceed three
    deviations of the noise, and are taken to be none otherwise (Haar wavelets with a hard threshold, averaged over all
    shifts; Coifman & Donoho 1995). A spike stays, and a slow rise has no ripples.
    """
    values = noisy.double()
    if not ordered or len(values) < 4:
        return values
    size = 1 << (len(values) - 1).bit_length()
    padded = torch.cat([values, values.new_zeros(size - len(values))])
    places = (torch.arange(size)[None] + torch.arange(size)[:, None]) % size  # a shift per row
    level, details = padded[places.to(values.device)], []
    while level.shape[1] > 1:
        even, odd = level[:, ::2], level[:, 1::2]
        change = (even - odd) / math.sqrt(2)
        details.append(torch.where(change.abs() > THRESHOLD * deviation, change, 0.0))
        level = (even + odd) / math.sqrt(2)
    for change in reversed(details):
        level = torch.stack([level + change, level - change], 2).flatten(1) / math.sqrt(2)
    found = torch.zeros_like(level).scatter_(1, places.to(values.device), level)
    return found.mean(0)[: len(values)]


def shares_inside(noisy: Tensor, bins: Tensor, deviation: float) -> Tensor:
    """What part of its bin each cell has: the cells of a bin are drawn to their mean as far as they differ by noise.

    With n cells whose squared distances from their mean sum to s, the differences are multiplied by
    1 - (n - 1)σ²/s, or by 0 (the positive-part estimator of James and Stein).
    """
    count = int(bins.max()) + 1
    held = torch.bincount(bins, minlength=count).double()

    def summed(values: Tensor) -> Tensor:
        return torch.zeros(count, dtype=torch.float64, device=bins.device).index_add_(0, bins, values)

    mean = (summed(noisy.double()) / held).clamp(min=0)
    away = noisy.double() - mean[bins]
    kept = (1 - (held - 1) * deviation**2 / summed(away.square()).clamp(min=1e-12)).clamp(min=0)
    shares = (mean[bins] + kept[bins] * away).clamp(min=0) + 1e-9
    return shares / summed(shares)[bins]


def standing_out(block: Tensor, deviation: float) -> tuple[int, float]:
    """What a matrix shows that white noise of this deviation would not: directions, and their sum of squares.

    The largest singular value of an m×n matrix of noise is about σ(√m + √n); m·n·σ² of its squares is noise.
    """
    values = torch.linalg.svdvals(block)
    directions = int((values > deviation * (math.sqrt(block.shape[0]) + math.sqrt(block.shape[1]))).sum())
    return directions, float(values.square().sum()) - block.numel() * deviation**2


def centred(block: Tensor) -> Tensor:
    """Without the means of its rows and columns: those are told by the histograms."""
    return block - block.mean(0, keepdim=True) - block.mean(1, keepdim=True) + block.mean()


def class_sizes(gram: Tensor, edges: list[slice], deviation: float, first: Tensor, first_deviation: float) -> Tensor:
    """Records of each class, from every block's sum and from the labels' own histogram, weighted by their noise."""
    pairs = [(a, b) for a in range(len(edges)) for b in range(a)]
    weights = torch.tensor([1.0 / (_width(edges[a]) * _width(edges[b])) for a, b in pairs], dtype=torch.float64)
    sums = torch.stack([gram[:, edges[a], edges[b]].sum((1, 2)) for a, b in pairs])
    blocks = (sums * weights[:, None].to(sums)).sum(0) / weights.sum()
    for_blocks, for_first = float(weights.sum()) / deviation**2, 1 / first_deviation**2
    return (blocks * for_blocks + first.double() * for_first) / (for_blocks + for_first)


def histograms(
    gram: Tensor, edges: list[slice], deviation: float, sizes: Tensor, own: list[Tensor], own_variances: list[Tensor]
) -> Tensor:
    """(classes, all bins): how many records of a class fall into each bin, as all blocks and `own` say together.

    own: each column's noisy histogram over all classes, with the variance of the noise in its bins.
    """
    classes = len(gram)
    found = torch.zeros(classes, gram.shape[1], dtype=torch.float64, device=gram.device)
    for a, edge in enumerate(edges):
        others = [b for b in range(len(edges)) if b != a]
        weight = sum(1 / _width(edges[b]) for b in others)
        variance = deviation**2 / weight
        mean = sum((gram[:, edge, edges[b]].sum(2) / _width(edges[b]) for b in others), torch.zeros(())) / weight
        mean = mean + (own[a] - mean.sum(0)) * (variance / (classes * variance + own_variances[a]))
        for k in range(classes):
            found[k, edge] = nearest_histogram(mean[k], float(sizes[k]))
    return found


def related_pairs(
    gram: Tensor, edges: list[slice], deviation: float, sizes: Tensor, marginals: Tensor, most: int
) -> list[int]:
    """Pairs of columns, at most so many, whose counts differ most from independence within classes.

    Only pairs that stand out of the noise; the one that comes nearest to it where none does. A pair is a·C + b, a < b,
    for C columns.
    """
    noise, found = deviation * math.sqrt(len(gram)), []
    for a, rows in enumerate(edges):
        for b, columns in enumerate(edges[a + 1 :], a + 1):
            products = marginals[:, rows, None] * marginals[:, None, columns] / sizes.clamp(min=1)[:, None, None]
            directions, energy = standing_out(centred((gram[:, rows, columns] - products).sum(0)), noise)
            found.append((directions > 0, energy, a * len(edges) + b))
    found.sort(reverse=True)
    related = [pair for clear, _, pair in found[:most] if clear]
    return sorted(related or [found[0][2]])


def _width(edge: slice) -> int:
    return int(edge.stop - edge.start)
