"""Privacy noise: its law, its tails, and that no experiment seed reaches it."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from dpot.privacy.errors import InvalidParameter
from dpot.privacy.events import DiscreteGaussian
from dpot.privacy.noise import NoiseSource
from dpot.privacy.rdp import rdp


def test_normal_law_and_tails() -> None:
    """A private source cannot be seeded, so every check here allows one false alarm in a million."""
    x = NoiseSource().normal((400_000,), std=2.5).double().numpy() / 2.5
    assert stats.kstest(x[:100_000], stats.norm.cdf).pvalue > 1e-6
    assert abs(x.mean()) < 5 / math.sqrt(len(x))
    assert abs(x.var() - 1) < 5 * math.sqrt(2 / len(x))
    for threshold in (2.0, 3.0, 4.0):
        expected = len(x) * 2 * stats.norm.sf(threshold)
        count = int((np.abs(x) > threshold).sum())
        assert stats.poisson.cdf(count, expected) > 1e-6
        assert stats.poisson.sf(count - 1, expected) > 1e-6


def test_shapes_and_types() -> None:
    noise = NoiseSource()
    assert noise.normal((2, 3)).dtype == torch.float32
    like = torch.zeros(4, 5, dtype=torch.float64)
    drawn = noise.normal_like(like, 3.0)
    assert drawn.shape == like.shape
    assert drawn.dtype == torch.float64
    assert noise.normal((0, 3)).shape == (0, 3)
    assert noise.discrete_gaussian((2, 3), 4.0).dtype == torch.int64
    assert noise.discrete_gaussian((0,), 4.0).numel() == 0


def test_experiment_seed_does_not_reach_the_noise() -> None:
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002 - the very seed that must not matter
        source = NoiseSource()
        drawn.append((source.normal((64,)), source.discrete_gaussian((64,), 1e6)))
    assert not torch.equal(drawn[0][0], drawn[1][0])
    assert not torch.equal(drawn[0][1], drawn[1][1])


def test_noise_does_not_disturb_the_experiment() -> None:
    torch.manual_seed(5)
    expected = torch.randn(4)
    torch.manual_seed(5)
    source = NoiseSource()
    source.normal((100,))
    source.discrete_gaussian((10,), 3.0)
    assert torch.equal(torch.randn(4), expected)


def test_noise_is_uncorrelated_with_the_experiment() -> None:
    torch.manual_seed(0)
    a = torch.randn(200_000)
    b = NoiseSource().normal((200_000,))
    assert abs(float((a * b).mean())) < 5 / math.sqrt(200_000)


def test_cpu_generator_gets_more_than_32_bits() -> None:
    """torch keeps 32 bits of a CPU seed: two sources must differ in the state itself, not by such a seed."""
    state = NoiseSource().generator.get_state()
    words = np.frombuffer(state[24 : 24 + 8 * 624].numpy().tobytes(), dtype=np.uint64)
    assert words.max() < 2**32
    # a state seeded from one word obeys s[i] = 1812433253·(s[i-1] ^ s[i-1]>>30) + i
    previous, index = words[:-1].astype(object), range(1, 624)
    chained = [(1812433253 * (p ^ (p >> 30)) + i) % 2**32 for p, i in zip(previous, index, strict=True)]
    assert sum(c == w for c, w in zip(chained, words[1:], strict=True)) < 5


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 5.3])
def test_discrete_gaussian_law(seed: int | None, sigma: float) -> None:
    """P(x) ∝ exp(-x²/2σ²) on the integers, by a χ² test with the tails pooled."""
    n = 20_000
    drawn = NoiseSource(seed).discrete_gaussian((n,), sigma).numpy()
    support = np.arange(-200, 201)
    law = np.exp(-0.5 * (support / sigma) ** 2)
    law /= law.sum()
    common = support[n * law >= 5]
    low, high = common[0], common[-1]
    inner = (support >= low) & (support <= high)
    expected = np.append(law[inner], 1 - law[inner].sum()) * n
    observed = np.array([(drawn == x).sum() for x in range(low, high + 1)])
    observed = np.append(observed, n - observed.sum())
    if expected[-1] < 1:
        expected, observed = expected[:-1], observed[:-1]
        expected *= observed.sum() / expected.sum()
    assert stats.chisquare(observed, expected).pvalue > 1e-6
    variance = (law * support**2).sum()
    fourth = (law * support.astype(float) ** 4).sum()
    assert abs(drawn.var() - variance) < 5 * math.sqrt((fourth - variance**2) / n)


def test_opendps_own_guarantee_is_the_event_we_charge() -> None:
    """OpenDP's privacy map is ρ-zCDP, ρ = Δ²/2σ²: the Rényi curve of our event is ρ·α."""
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64")
    rho = opendp.m.make_gaussian(*space, scale=7.0).map(d_in=math.sqrt(12))
    assert rdp(DiscreteGaussian(7.0, 1, 12), [3.0])[0] == pytest.approx(3 * rho, rel=1e-9)


def test_a_fixed_seed_is_reproducible_and_says_so() -> None:
    a, b = NoiseSource(3), NoiseSource(3)
    assert torch.equal(a.normal((5,)), b.normal((5,)))
    assert torch.equal(a.discrete_gaussian((5,), 3.0), b.discrete_gaussian((5,), 3.0))
    assert a.record()["reproducible"] is True
    assert NoiseSource().record()["reproducible"] is False


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_input_has_a_name(bad: float) -> None:
    with pytest.raises(InvalidParameter):
        NoiseSource().normal((2,), bad)
    with pytest.raises(InvalidParameter):
        NoiseSource().discrete_gaussian((2,), bad)
