"""The real Inception weights, where they are at hand: another distance for another set, none for the same."""

import os

import pytest
import torch

from dpot.errors import DataError
from dpot.evaluation.fid import FrechetInception, frechet_distance, inception, read_weights


@pytest.fixture(scope="module")
def network():
    from dpot.data.weights import inception_weights

    if "DPOT_DATA" not in os.environ:
        pytest.skip("DPOT_DATA is not set")
    try:
        found = inception_weights(os.environ["DPOT_DATA"], download=False)
    except DataError as error:
        pytest.skip(str(error))
    return inception(read_weights(found.path), "cpu")


def test_features_and_distances(network, tmp_path):
    protocol = FrechetInception(samples=2)
    generator = torch.Generator().manual_seed(0)
    noise, dark = torch.rand(2, 1, 28, 28, generator=generator), torch.zeros(2, 1, 28, 28)
    dark[:, :, 10:18, 10:18] = torch.rand(2, 1, 8, 8, generator=generator)
    first = protocol.reference_statistics(noise, network, tmp_path, "noise")
    second = protocol.statistics(dark, network)
    assert first[0].shape == second[0].shape == (2048,)
    some, others = ((mean[::8], covariance[::8, ::8]) for mean, covariance in (first, second))
    assert frechet_distance(some, some) == pytest.approx(0, abs=1e-3)
    assert frechet_distance(some, others) > 2
    unread = torch.nn.Identity()  # what is kept is read back, and nothing is computed
    kept = protocol.reference_statistics(noise, unread, tmp_path, "noise")
    torch.testing.assert_close(kept[0], first[0])
    other = protocol.reference_statistics(dark, network, tmp_path, "noise")  # other images of the same shape
    torch.testing.assert_close(other[0], second[0])
    assert len(list(tmp_path.iterdir())) == 2


def test_other_weights_are_refused():
    with pytest.raises(DataError, match="not the FID Inception weights"):
        inception({"Conv2d_1a_3x3.conv.weight": torch.zeros(1)}, "cpu")
