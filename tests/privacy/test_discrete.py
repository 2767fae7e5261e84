"""The exact discrete Gaussian sampler: its law, for whole and rational variances, beside OpenDP's."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpot.privacy import discrete
from dpot.privacy.discrete import discrete_gaussian

VARIANCES = [Fraction(1, 7), Fraction(1), Fraction(9, 4), Fraction(40), Fraction(12345, 11)]
DRAWS = 60_000
LEVEL = 1e-6  # the noise cannot be seeded: one false alarm in a million


def law(variance: Fraction, reach: int) -> np.ndarray:
    """P(-reach … reach), normalised over all that double precision can see."""
    x = np.arange(-reach, reach + 1)
    wide = np.arange(-60 * math.isqrt(int(variance) + 1) - 60, 60 * math.isqrt(int(variance) + 1) + 61)
    return np.exp(-(x**2) / (2 * float(variance))) / np.exp(-(wide.astype(float) ** 2) / (2 * float(variance))).sum()


def chi_square(drawn: np.ndarray, variance: Fraction) -> float:
    """p-value of the drawn numbers under the law; rare values are put together."""
    reach = max(1, int(3 * math.sqrt(variance)))
    expected = len(drawn) * law(variance, reach)
    seen = np.bincount(drawn[np.abs(drawn) <= reach] + reach, minlength=2 * reach + 1)
    expected, seen = (
        np.append(a, rest) for a, rest in ((expected, len(drawn) - expected.sum()), (seen, len(drawn) - seen.sum()))
    )
    enough = expected >= 5
    expected = np.append(expected[enough], expected[~enough].sum() + 1e-9)
    seen = np.append(seen[enough], seen[~enough].sum())
    if expected[-1] < 5:
        expected, seen = (np.append(a[:-2], a[-2:].sum()) for a in (expected, seen))
    return float(stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), len(expected) - 1))


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_law(variance: Fraction) -> None:
    assert chi_square(discrete_gaussian(DRAWS, variance), variance) > LEVEL


@pytest.mark.parametrize("variance", [Fraction(4), Fraction(10**8 + 1, 3), Fraction(2**50)], ids=str)
def test_moments(variance: Fraction) -> None:
    """From variance 1 on, mean 0 and variance S to more digits than can be measured."""
    x = discrete_gaussian(DRAWS, variance).astype(np.float64) / math.sqrt(variance)
    assert abs(x.mean()) < 5 / math.sqrt(DRAWS)
    assert abs(x.var() - 1) < 5 * math.sqrt(2 / DRAWS)
    assert abs(np.mean(x**4) - 3) < 5 * math.sqrt(96 / DRAWS)
    assert len(discrete_gaussian(0, variance)) == 0


def test_same_law_as_opendp() -> None:
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64")
    theirs = np.array(opendp.m.make_gaussian(*space, scale=1.5)([0] * 20_000))
    ours = discrete_gaussian(20_000, Fraction(9, 4))
    table = [[(drawn == k).sum() for k in range(-4, 5)] + [(np.abs(drawn) > 4).sum()] for drawn in (theirs, ours)]
    assert stats.chi2_contingency(np.array(table)).pvalue > LEVEL


def test_close_calls_are_settled_by_whole_numbers() -> None:
    """Coins whose uniform number agrees with p in all 64 bits draw more bits, and only then decide."""
    third = Fraction(1, 3)
    first = (1 << 64) // 3
    later = iter([np.array([0], np.uint64), np.array([2**64 - 1], np.uint64)])
    assert discrete._below(first, third, lambda _: next(later)) is True
    assert discrete._below(first, third, lambda _: next(later)) is False
    assert discrete._below(first - 1, third, lambda _: pytest.fail("no more bits were needed")) is True
    # through the vectorised coin: the word just below and just above p·2^64
    for word, won in ((first - 5, True), (first + 5, False)):
        coins = discrete._coins(np.array([1 / 3]), lambda _: third, lambda n, w=word: np.full(n, w, np.uint64))
        assert coins.tolist() == [won]


def test_uniform_below_has_no_remainder_bias() -> None:
    """Words beyond the last whole multiple of the bound are drawn again."""
    bound = 3
    limit = (1 << 63) // bound * bound
    words = iter([np.array([(limit << 1) & (2**64 - 1), 14 << 1], np.uint64), np.array([7 << 1], np.uint64)])
    assert discrete._uniform_below(2, bound, lambda _: next(words)).tolist() == [7 % 3, 14 % 3]


@pytest.mark.parametrize("variance", [0, -1, Fraction(2**56), Fraction(1, 2**56)])
def test_refused_variances(variance: Fraction) -> None:
    with pytest.raises(ValueError, match="variance"):
        discrete_gaussian(3, variance)
