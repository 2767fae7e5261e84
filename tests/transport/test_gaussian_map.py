"""The map between Gaussians, against its closed form, its definition and POT."""

import numpy as np
import ot
import torch

from dpot.transport.gaussian_map import gaussian_map, symmetric_power


def covariance(seed, size=6):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((size, size))
    return torch.from_numpy(a @ a.T + 0.1 * np.eye(size))


def test_it_carries_one_covariance_onto_the_other():
    a, b = covariance(0), covariance(1)
    move = gaussian_map(a, b)
    torch.testing.assert_close(move @ a @ move.T, b)
    torch.testing.assert_close(move, move.T)
    assert torch.linalg.eigvalsh(move).min() > 0


def test_diagonal_covariances_are_scaled_axis_by_axis():
    a, b = torch.tensor([1.0, 4.0, 9.0]).double(), torch.tensor([4.0, 1.0, 9.0]).double()
    torch.testing.assert_close(gaussian_map(a.diag(), b.diag()), (b / a).sqrt().diag())


def test_it_is_pots_map():
    a, b = covariance(2), covariance(3)
    zero = np.zeros(6)
    theirs, _ = ot.gaussian.bures_wasserstein_mapping(zero, zero, a.numpy(), b.numpy())
    np.testing.assert_allclose(gaussian_map(a, b).numpy(), theirs, rtol=1e-6)


def test_powers_lift_eigenvalues_that_noise_made_negative():
    matrix = torch.diag(torch.tensor([1.0, -0.5])).double()
    torch.testing.assert_close(symmetric_power(matrix, 1.0, floor=1e-2), torch.diag(torch.tensor([1.0, 1e-2])).double())
