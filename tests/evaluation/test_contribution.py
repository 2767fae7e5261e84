"""Shapley values: closed forms, and models that learn."""

import pytest
import torch

from dpot.evaluation.contribution import SoftmaxRegression, federated, retrained, shapley


def test_an_additive_game_gives_everybody_their_own():
    worth = [1.0, 2.0, 5.0]
    assert shapley(3, lambda s: sum(worth[i] for i in s)) == pytest.approx(worth)


def test_the_glove_game():
    """One left glove (party 0), two right ones: 2/3, 1/6, 1/6."""
    assert shapley(3, lambda s: float(0 in s and len(s) > 1)) == pytest.approx([2 / 3, 1 / 6, 1 / 6])


def data(n, seed, flip=0.0):
    random = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.nn.functional.one_hot(y, 3).double() * 2 + 0.3 * torch.randn(n, 3, generator=random, dtype=torch.float64)
    flipped = torch.rand(n, generator=random) < flip
    return x, torch.where(flipped, (y + 1) % 3, y)


def test_a_party_with_wrong_labels_contributes_least_and_values_add_up():
    model, held = SoftmaxRegression(3, rate=0.5), data(60, 9)
    parties = [data(30, 0), data(30, 1), data(30, 2, flip=1.0)]
    values = retrained(model, parties, held, steps=30)
    assert min(values) == values[2]
    x, y = (torch.cat([p[i] for p in parties]) for i in (0, 1))
    everybody = model.accuracy(model.train(model.start(x), x, y, 30), *held)
    assert sum(values) == pytest.approx(everybody - 1 / 3)
    for found in federated(model, parties, held, torch.Generator().manual_seed(0), rounds=2):
        assert min(found) == found[2]
