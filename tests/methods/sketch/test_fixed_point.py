"""Networks in whole numbers: exact products, close to the networks themselves, the same for every batch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpot.methods.sketch.features import LearnedMap, freeze
from dpot.methods.sketch.fixed_point import LARGEST, PARTS, WholeNetwork, WholeProduct
from dpot.models.feature_network import HIDDEN, FeatureNetwork

CASES = [("dense", (7, 1, 1)), ("dense", (1, 8, 8)), ("conv", (1, 8, 8)), ("conv", (3, 9, 11))]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3000), st.sampled_from([1e-6, 1.0, 37.5, 1e9]), st.integers(0, 99))
def test_the_largest_sum_of_a_product_is_exact(inputs, size, seed):
    """Python's own integers give the same numbers, for records as large as they may be."""
    random = np.random.default_rng(seed)
    product = WholeProduct(torch.from_numpy(size * random.uniform(-1, 1, (inputs, 2))))
    signs = torch.from_numpy(random.choice([-1.0, 1.0], (2, inputs)))
    whole = torch.cat([LARGEST * signs, LARGEST * product.weights.sign().T])
    expected = [
        [sum(int(a) * int(b) for a, b in zip(row, column, strict=True)) for column in product.weights.T.tolist()]
        for row in whole.tolist()
    ]
    assert product(whole).long().tolist() == expected
    assert max(abs(value) for row in expected for value in row) < 2**53


@pytest.mark.parametrize(("style", "shape"), CASES)
def test_hidden_units_are_those_of_the_network(style, shape):
    torch.manual_seed(0)
    network = freeze(FeatureNetwork(style, shape, 3))
    whole = torch.randint(0, 256, (50, shape[0] * shape[1] * shape[2])).double()
    found = WholeNetwork(network, 255)(whole)
    assert torch.equal(found, found.round())
    torch.testing.assert_close((found / PARTS).float(), network.features((whole / 255).float()), atol=2e-3, rtol=0)


@pytest.mark.parametrize(("style", "shape"), CASES)
def test_positions_do_not_depend_on_the_batch_nor_on_how_a_library_multiplies(style, shape):
    torch.manual_seed(1)
    networks = [freeze(FeatureNetwork(style, shape, 3)) for _ in range(2)]
    own = LearnedMap(networks, torch.randn(2 * HIDDEN[style], 9), torch.randn(9))
    records = torch.rand(40, shape[0] * shape[1] * shape[2])
    records[3, 0] = torch.nan
    whole = own.exactly(records)
    assert torch.equal(whole, torch.cat([own.exactly(part) for part in records.split(7)]))
    order = torch.randperm(2 * HIDDEN[style])  # hidden units added in another order
    turned = WholeProduct(own.weights[order], 20)
    hidden = torch.cat([WholeNetwork(n, 255)((records.nan_to_num(0.0).double() * 255).round()) for n in networks], 1)
    again = turned(hidden[:, order]) / (PARTS * turned.unit) - own.shift.double()
    assert torch.equal(whole, again)


def test_weights_that_are_no_numbers_do_no_harm():
    product = WholeProduct(torch.tensor([[torch.nan, 1.0], [torch.inf, -1.0]]))
    assert torch.isfinite(product(torch.ones(1, 2).double())).all()
    zero = WholeProduct(torch.zeros(3, 2))
    assert zero(torch.ones(1, 3).double()).tolist() == [[0.0, 0.0]]
