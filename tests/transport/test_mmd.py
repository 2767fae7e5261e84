"""Random Fourier features: the kernel they stand for, unit norm, labels, closed forms."""

import math

import pytest
import torch

from dpot.errors import UsageError
from dpot.transport import fourier_features, fourier_frequencies, mean_embedding, squared_mmd


def frequencies(features, d, length_scale, seed=0):
    return fourier_frequencies(features, d, length_scale, torch.Generator().manual_seed(seed), dtype=torch.float64)


def cloud(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_features_have_unit_norm_and_approximate_the_gaussian_kernel():
    x, w = cloud(30, 6, 0), frequencies(40_000, 6, 2.0)
    features = fourier_features(x, w)
    assert features.shape == (30, 40_000)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(30, dtype=torch.float64))
    kernel = torch.exp(-torch.cdist(x, x).square() / (2 * 2.0**2))
    assert (features @ features.T - kernel).abs().max() < 5 / math.sqrt(20_000)


def test_two_diracs():
    # ‖φ(x) - φ(y)‖² = 2 - 2·mean cos(w·(x-y)), for any frequencies
    x, y, w = cloud(1, 5, 0), cloud(1, 5, 1), frequencies(64, 5, 1.5)
    expected = 2 - 2 * torch.cos((x - y) @ w.T).mean()
    torch.testing.assert_close(squared_mmd(mean_embedding(x, w), mean_embedding(y, w)), expected)


def test_gaussian_against_shifted_gaussian():
    # k of length scale l between N(0, s²I) and N(m, s²I): MMD² = 2 r^d (1 - exp(-‖m‖²/2(l²+2s²))), r² = l²/(l²+2s²)
    d, n, s, length_scale, shift = 3, 5000, 0.8, 1.7, 0.9
    x, y, w = s * cloud(n, d, 0), s * cloud(n, d, 1) + shift, frequencies(4000, d, length_scale)
    wide = length_scale**2 + 2 * s**2
    expected = 2 * (length_scale**2 / wide) ** (d / 2) * (1 - math.exp(-d * shift**2 / (2 * wide)))
    assert abs(squared_mmd(mean_embedding(x, w), mean_embedding(y, w)) - expected) < 0.06 * expected


def test_labels_split_the_embedding_by_class():
    x, w, labels = cloud(12, 4, 0), frequencies(20, 4, 1.0), torch.arange(12) % 3
    embedding = mean_embedding(x, w, labels, classes=4)
    assert embedding.shape == (20, 4)
    torch.testing.assert_close(embedding.sum(1), mean_embedding(x, w))
    torch.testing.assert_close(embedding[:, 1], fourier_features(x[labels == 1], w).sum(0) / 12)
    assert torch.equal(embedding[:, 3], torch.zeros(20, dtype=torch.float64))
    one_hot = torch.nn.functional.one_hot(labels, 4)
    torch.testing.assert_close(mean_embedding(x, w, one_hot), embedding)


def test_distance_properties_and_gradient():
    w = frequencies(16, 3, 1.0)
    x, y, z = (mean_embedding(cloud(9, 3, seed), w) for seed in range(3))
    assert squared_mmd(x, x) == 0
    assert squared_mmd(x, y) == squared_mmd(y, x)
    assert squared_mmd(x, z).sqrt() <= squared_mmd(x, y).sqrt() + squared_mmd(y, z).sqrt()
    points, labels = cloud(5, 3, 4).requires_grad_(), torch.tensor([0, 1, 1, 0, 1])
    target = mean_embedding(cloud(5, 3, 5), w, labels, 2)
    assert torch.autograd.gradcheck(lambda p: squared_mmd(mean_embedding(p, w, labels, 2), target), (points,))


def test_nonsense_is_refused():
    x, w = cloud(4, 3, 0), frequencies(8, 3, 1.0)
    for call in (
        lambda: fourier_frequencies(7, 3, 1.0),
        lambda: fourier_frequencies(8, 3, 0.0),
        lambda: fourier_features(cloud(4, 2, 0), w),
        lambda: fourier_features(torch.full((2, 3), float("nan")), w.float()),
        lambda: mean_embedding(x, w, torch.zeros(4, dtype=torch.long)),
        lambda: mean_embedding(x, w, torch.zeros(3, dtype=torch.long), 2),
        lambda: squared_mmd(torch.zeros(3), torch.zeros(4)),
    ):
        with pytest.raises(UsageError):
            call()
