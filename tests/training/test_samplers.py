"""Samplers against the laws they claim: no repeats, uniform inclusion, Poisson counts, class counts."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import scipy.stats
import torch

from dpot.errors import UsageError
from dpot.training import FixedSize, FullBatch, Poisson, Sampler, ShuffledEpochs, Stratified
from dpot.training.samplers import FAILURE, _Distinct, draws_needed

SMALLEST_P = 1e-4  # of a true sampler's runs, one in ten thousand would fail; the seeds are fixed


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inclusions(sampler: Sampler, draws: int) -> torch.Tensor:
    """How often each record was drawn; fails on a repeat within a draw."""
    counts = torch.zeros(sampler.population, dtype=torch.int64)
    for _ in range(draws):
        draw = sampler.draw()
        index = draw.index if draw.mask is None else draw.index[draw.mask]
        assert len(index.unique()) == len(index)
        counts[index] += 1
    return counts


@pytest.mark.parametrize("by_sorting", [False, True])
@pytest.mark.parametrize(("population", "batch"), [(6, 3), (5, 2)])
def test_every_subset_is_equally_likely(population: int, batch: int, by_sorting: bool) -> None:
    sampler = FixedSize(population, batch, generator(1))
    sampler._distinct.draws = None if by_sorting else draws_needed(batch, population)
    assert by_sorting or sampler._distinct.draws is not None
    subsets = Counter(frozenset(sampler.draw().index.tolist()) for _ in range(6000))
    every = [frozenset(subset) for subset in combinations(range(population), batch)]
    assert set(subsets) == set(every)
    assert scipy.stats.chisquare([subsets[subset] for subset in every]).pvalue > SMALLEST_P


@pytest.mark.parametrize(("population", "batch"), [(500, 20), (100, 80), (3000, 2500)])
def test_fixed_size_includes_everyone_equally(population: int, batch: int) -> None:
    draws = 400
    counts = inclusions(FixedSize(population, batch, generator(2)), draws).double().numpy()
    assert counts.sum() == draws * batch
    # Per record the count is Binomial(draws, rate); the hypergeometric correction is (N-1)/N.
    rate = batch / population
    statistic = ((counts - draws * rate) ** 2 / (draws * rate * (1 - rate))).sum() * (1 - 1 / population)
    assert scipy.stats.chi2.sf(statistic, population - 1) > SMALLEST_P
    assert scipy.stats.chi2.cdf(statistic, population - 1) > SMALLEST_P


def test_the_order_within_a_draw_is_uniform_too() -> None:
    sampler = FixedSize(1000, 4, generator(3))
    ranks = np.array([sampler.draw().index.argsort().argsort().tolist() for _ in range(3000)])
    counts = Counter(map(tuple, ranks))
    assert scipy.stats.chisquare(list(counts.values())).pvalue > SMALLEST_P
    assert len(counts) == 24


@pytest.mark.parametrize(("population", "batch"), [(60_000, 100), (10_000, 128), (497, 32), (20, 10)])
def test_the_number_of_draws_is_enough_and_not_excessive(population: int, batch: int) -> None:
    m = draws_needed(batch, population)
    assert m is not None
    # The number of distinct values among m draws, by its exact recursion.
    law = np.zeros(batch + 1)
    law[0] = 1.0
    seen = np.arange(batch + 1) / population
    seen[batch] = 1.0  # absorbing: enough
    for _ in range(m):
        law = law * seen + np.concatenate([[0.0], law[:-1] * (1 - seen[:-1])])
    assert law[:batch].sum() < FAILURE


def test_fixed_size_cannot_exceed_the_population() -> None:
    with pytest.raises(UsageError, match="11 cannot be drawn from 10"):
        FixedSize(10, 11, generator())


def test_poisson_counts_follow_the_binomial_law() -> None:
    sampler = Poisson(2000, 0.01, generator(4))
    counts = np.array([int(sampler.draw().mask.sum()) for _ in range(4000)])
    law = scipy.stats.binom(2000, 0.01)
    edges = np.arange(10, 31)
    bins = np.concatenate([[0], edges, [2001]])
    seen = np.histogram(counts, bins)[0]
    expected = np.diff(law.cdf(bins - 1)) * len(counts)
    assert scipy.stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > SMALLEST_P


def test_poisson_includes_records_independently() -> None:
    sampler = Poisson(3, 0.4, generator(5))
    subsets: Counter[frozenset[int]] = Counter()
    for _ in range(5000):
        draw = sampler.draw()
        subsets[frozenset(draw.index[draw.mask].tolist())] += 1
    every = [frozenset(s) for size in range(4) for s in combinations(range(3), size)]
    expected = [5000 * 0.4 ** len(s) * 0.6 ** (3 - len(s)) for s in every]
    assert scipy.stats.chisquare([subsets[s] for s in every], expected).pvalue > SMALLEST_P


def test_poisson_has_room_but_for_the_stated_probability() -> None:
    sampler = Poisson(60_000, 1 / 1200, generator(), overflow=1e-12)
    law = scipy.stats.binom(60_000, 1 / 1200)
    assert law.sf(sampler.batch) <= 1e-12 < law.sf(sampler.batch - 1)
    assert sampler.draw().index.shape == (sampler.batch,)


def test_an_overfull_poisson_draw_is_a_full_uniform_batch() -> None:
    sampler = Poisson(10, 0.5, generator(6), overflow=0.2)  # overflows often, on purpose
    counts = [int(sampler.draw().mask.sum()) for _ in range(2000)]
    law = scipy.stats.binom(10, 0.5)
    full = sum(count == sampler.batch for count in counts)
    assert max(counts) == sampler.batch
    assert scipy.stats.binomtest(full, 2000, law.sf(sampler.batch - 1)).pvalue > SMALLEST_P


def test_padding_is_zero_and_never_a_record() -> None:
    sampler = Poisson(50, 0.1, generator(7))
    data = torch.ones(50, 2, 2)
    draw = sampler.draw()
    rows = draw.rows(data)
    assert rows.shape == (sampler.batch, 2, 2)
    assert torch.equal(rows.sum((1, 2)), 4.0 * draw.mask)


@pytest.mark.parametrize("per_class", [4, [1, 5, 3]])
def test_stratified_draws_each_class_uniformly(per_class: int | list[int]) -> None:
    labels = torch.tensor([2] * 40 + [5] * 25 + [9] * 60)[torch.randperm(125, generator=generator(8))]
    sampler = Stratified(labels, per_class, generator(9))
    draws = 1500
    counts = inclusions(sampler, draws).double().numpy()
    assert torch.equal(labels[sampler.draw().index], sampler.labels)
    for label, size, b in zip([2, 5, 9], [40, 25, 60], sampler.per_class, strict=True):
        inside = counts[labels.numpy() == label]
        assert inside.sum() == draws * b
        rate = b / size
        statistic = ((inside - draws * rate) ** 2 / (draws * rate * (1 - rate))).sum() * (1 - 1 / size)
        assert SMALLEST_P < scipy.stats.chi2.sf(statistic, size - 1) < 1 - SMALLEST_P
    assert sampler.rate == max(b / n for b, n in zip(sampler.per_class, [40, 25, 60], strict=True))


def test_stratified_refuses_more_than_a_class_has() -> None:
    with pytest.raises(UsageError, match="classes of"):
        Stratified(torch.tensor([0, 0, 1]), 2, generator())


@pytest.mark.parametrize(("population", "period"), [(10, 498), (2000, 666)])
def test_shuffled_epochs_use_each_record_once_an_epoch(population: int, period: int) -> None:
    sampler = ShuffledEpochs(population, 3, generator(10))
    assert sampler.period == period
    orders = []
    for _ in range(2):
        sampler.reshuffle()
        for _ in range(sampler.period // sampler.steps_per_epoch):
            epoch = torch.cat([sampler.draw().index for _ in range(sampler.steps_per_epoch)])
            assert len(epoch.unique()) == population // 3 * 3
            orders.append(tuple(epoch.tolist()))
    assert len(set(orders)) == len(orders)


def test_full_batch_is_everyone() -> None:
    assert torch.equal(FullBatch(5, "cpu").draw().index, torch.arange(5))


def test_each_sampler_states_what_it_did() -> None:
    labels = torch.arange(100) % 10
    facts = [
        s.facts()
        for s in (
            FixedSize(100, 10, generator()),
            Poisson(100, 0.1, generator()),
            Stratified(labels, 2, generator()),
            FullBatch(100, "cpu"),
            ShuffledEpochs(100, 10, generator()),
        )
    ]
    assert [f["sampler"] for f in facts] == ["fixed-size", "poisson", "stratified", "full", "shuffled"]
    assert [f["rate"] for f in facts] == [0.1, 0.1, 0.2, 1.0, 0.1]
    assert facts[1]["batch"] == pytest.approx(10)
    assert facts[2]["per_class"] == [2] * 10


def test_the_same_generator_state_draws_the_same_batch() -> None:
    first, second = FixedSize(1000, 10, generator(11)), FixedSize(1000, 10, generator(11))
    assert torch.equal(first.draw().index, second.draw().index)
    assert not torch.equal(first.draw().index, first.draw().index)


def test_a_period_of_shuffled_batches_ends_without_a_new_order() -> None:
    sampler = ShuffledEpochs(7, 3, generator())
    for _ in range(sampler.period):
        sampler.draw()
    with pytest.raises(IndexError):
        sampler.draw()


def test_too_few_distinct_values_leave_the_first_one_in_the_free_slots() -> None:
    distinct = _Distinct([50, 50], 6, generator(), [0, 50])
    bits = torch.tensor([[3, 53, 4, 4, 3, 103, 5, 3], [1, 1, 1, 1, 1, 1, 1, 1]])
    expected = torch.tensor([[3, 4, 5, 3, 3, 3], [51, 51, 51, 51, 51, 51]])
    assert torch.equal(distinct.first_distinct(bits), expected)


def test_numbers_beyond_the_last_multiple_of_the_population_are_left_out() -> None:
    """2^63 = 3 modulo 5: the last three numbers would make 0, 1 and 2 likelier than 3 and 4."""
    sampler = FixedSize(5, 2, torch.Generator())
    last = 2**63 - 1
    bits = torch.tensor([[last, last - 1, last - 2, last - 3, 1]])
    assert sampler._distinct.first_distinct(bits).tolist() == [[(last - 3) % 5, 1]]
    assert (last - 3) % 5 == 4
