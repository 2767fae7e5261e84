"""Sanitising against closed forms: bounds that hold for every input, unbiased directions, noise variance."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from toy import noising

from dpot.errors import UsageError
from dpot.privacy.noise import NoiseSource
from dpot.training import (
    clip_block,
    clip_rows,
    per_sample_gradients,
    sanitise_images,
    sanitise_parameters,
    sum_of_clipped,
)

ANY_FLOAT32 = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=3, max_side=6),
    elements=st.floats(width=32, allow_nan=True, allow_infinity=True),
)
CLIPS = st.floats(1e-3, 1e3)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def exact_norms(rows: Tensor) -> list[float]:
    """Norms by correctly rounded sums, independent of torch's."""
    return [math.sqrt(math.fsum(float(v) ** 2 for v in row.flatten())) for row in rows]


@given(ANY_FLOAT32, CLIPS)
@settings(max_examples=200, deadline=None)
def test_no_row_exceeds_the_bound_whatever_the_input(values: np.ndarray, clip: float) -> None:
    clipped = clip_rows(torch.from_numpy(values), clip)
    assert torch.isfinite(clipped).all()
    assert all(norm <= clip for norm in exact_norms(clipped))


@example(np.array([[3.4026164e38]], dtype=np.float32), 0.125)  # the factor is below the normal range of float32
@given(ANY_FLOAT32, CLIPS)
@settings(max_examples=200, deadline=None)
def test_no_block_exceeds_the_bound_whatever_the_input(values: np.ndarray, clip: float) -> None:
    clipped = clip_block(torch.from_numpy(values), clip)
    assert torch.isfinite(clipped).all()
    assert exact_norms(clipped[None])[0] <= clip


@given(ANY_FLOAT32, CLIPS)
@settings(max_examples=200, deadline=None)
def test_each_row_is_kept_or_scaled_or_zeroed(values: np.ndarray, clip: float) -> None:
    rows = torch.from_numpy(values)
    for row, after, norm in zip(rows, clip_rows(rows, clip), exact_norms(rows), strict=True):
        if not math.isfinite(norm):
            assert torch.equal(after, torch.zeros_like(row))
        elif norm <= clip * (1 - 1e-9):
            assert torch.equal(after, row)
        elif clip / norm > 1e-30:  # below, single precision cannot hold the scaled row
            torch.testing.assert_close(
                after.double(), row.double() * (clip / norm), rtol=2e-6, atol=1e-37 + clip * 1e-9
            )


def test_clipping_has_the_derivative_of_its_formula() -> None:
    rows = torch.randn(6, 5, dtype=torch.float64, generator=generator(2)) * torch.tensor(
        [[0.1], [0.2], [1], [3], [9], [30]]
    )
    assert torch.autograd.gradcheck(lambda x: clip_rows(x, 1.5), rows.requires_grad_())


def test_a_bad_row_touches_no_other_row() -> None:
    rows = torch.randn(4, 5, generator=generator())
    bad = rows.clone()
    bad[2, 3] = float("nan")
    kept = [0, 1, 3]
    assert torch.equal(clip_rows(bad, 1.0)[kept], clip_rows(rows, 1.0)[kept])


@pytest.mark.parametrize("per", ["row", "block"])
def test_image_gradients_without_noise_are_the_clipped_gradients(per: str) -> None:
    images = torch.randn(6, 1, 4, 4, generator=generator(), requires_grad=True)
    weights = torch.randn(6, 1, 4, 4, generator=generator(1))
    out = sanitise_images(images, 0.5, noising(0.0, generator()), per)  # type: ignore[arg-type]
    assert torch.equal(out, images)
    (out * weights).sum().backward()
    expected = clip_rows(weights, 0.5) if per == "row" else clip_block(weights, 0.5)
    assert torch.equal(images.grad, expected)


def test_image_gradients_carry_gaussian_noise_of_the_stated_size() -> None:
    images = torch.zeros(200, 500, requires_grad=True)
    sanitise_images(images, 1.0, noising(0.3, generator(3)), "row").sum().mul(0).backward()
    noise = images.grad.flatten().double().numpy()
    assert scipy.stats.kstest(noise, "norm", args=(0, 0.3)).pvalue > 1e-4
    variance = noise.var(ddof=1) * (noise.size - 1) / 0.3**2
    assert 1e-4 < scipy.stats.chi2.cdf(variance, noise.size - 1) < 1 - 1e-4


def test_noise_of_double_precision_is_added_and_rounded_once() -> None:
    expected = NoiseSource(seed=4).normal((40, 5), 0.3, torch.float64).float()
    images, weights = torch.zeros(40, 5, requires_grad=True), nn.Parameter(torch.zeros(40, 5))
    sanitise_images(images, 1.0, noising(0.3, NoiseSource(seed=4).generator)).mul(0).sum().backward()
    sanitise_parameters([weights], 1.0, noising(0.3, NoiseSource(seed=4).generator))
    assert torch.equal(images.grad, expected)
    assert torch.equal(weights.grad, expected)


def test_a_nan_loss_does_not_reach_the_released_gradient() -> None:
    images = torch.ones(3, 4, requires_grad=True)
    out = sanitise_images(images, 1.0, noising(0.1, generator()), "block")
    (out * torch.tensor([1.0, float("nan"), float("inf")])[:, None]).sum().backward()
    again = torch.ones(3, 4, requires_grad=True)
    sanitise_images(again, 1.0, noising(0.1, generator()), "block").mul(0).sum().backward()
    assert torch.equal(images.grad, again.grad)  # exactly the noise, as for a zero gradient


def test_half_precision_gradients_keep_their_kind() -> None:
    images = torch.zeros(3, 4, dtype=torch.bfloat16, requires_grad=True)
    (sanitise_images(images, 1.0, noising(0.0, generator())) * 8).sum().backward()
    assert images.grad.dtype == torch.bfloat16
    torch.testing.assert_close(images.grad.float(), torch.full((3, 4), 0.5), rtol=1e-2, atol=0)


def test_an_unknown_way_to_clip_is_refused() -> None:
    with pytest.raises(UsageError, match="'row' or 'block'"):
        sanitise_images(torch.zeros(1, 1), 1.0, noising(0.0, generator()), "column")  # type: ignore[arg-type]


def test_the_parameter_gradient_is_clipped_as_one_vector() -> None:
    a, b, unused = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2))
    a.grad, b.grad = torch.tensor([3.0, 0.0, 0.0]), torch.tensor([[4.0, 0.0], [0.0, 0.0]])
    sanitise_parameters([a, b, unused], 1.0, noising(0.0, generator()))  # the norm is 5
    torch.testing.assert_close(a.grad, torch.tensor([0.6, 0.0, 0.0]))
    torch.testing.assert_close(b.grad, torch.tensor([[0.8, 0.0], [0.0, 0.0]]))
    assert torch.equal(unused.grad, torch.zeros(2))
    sanitise_parameters([a, b, unused], 1.0, noising(1.0, generator()))
    assert (unused.grad != 0).all()


@pytest.mark.parametrize("like_the_weights", [True, False])
def test_the_parameter_gradient_keeps_its_numbers_where_the_weights_have_them(like_the_weights) -> None:
    slopes = torch.randn(4, 3, 2, 2), torch.randn(5)
    weights = nn.Parameter(torch.zeros(4, 3, 2, 2).to(memory_format=torch.channels_last))
    bias = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    weights.grad, bias.grad = torch.empty_like(weights).copy_(slopes[0]), slopes[1].double()
    if not like_the_weights:
        weights.grad = slopes[0].clone()
    sanitise_parameters([weights, bias], 0.5, noising(0.0, generator()))
    norm = math.sqrt(sum(float(slope.double().square().sum()) for slope in slopes))
    torch.testing.assert_close(weights.grad, slopes[0] * 0.5 / norm)
    torch.testing.assert_close(bias.grad, slopes[1].double() * 0.5 / norm, rtol=1e-5, atol=0)
    assert weights.grad.stride() == weights.stride()


def test_per_sample_gradients_are_those_of_a_loop() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    module[0].bias.requires_grad_(False)
    x, y = torch.randn(6, 5), torch.randint(3, (6,))
    found = per_sample_gradients(module, nn.functional.cross_entropy, x, y)
    assert set(found) == {"0.weight", "2.weight", "2.bias"}
    for i in range(6):
        module.zero_grad()
        nn.functional.cross_entropy(module(x[i : i + 1]), y[i : i + 1]).backward()
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                torch.testing.assert_close(found[name][i], parameter.grad)


def test_batch_statistics_have_no_per_sample_gradient() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.raises(UsageError, match="BatchNorm"):
        per_sample_gradients(module, nn.functional.mse_loss, torch.zeros(3, 2), torch.zeros(3, 2))


@given(st.integers(0, 2**31), st.floats(0.01, 10))
@settings(max_examples=50, deadline=None)
def test_adding_a_record_moves_the_sum_by_at_most_the_clip(seed: int, clip: float) -> None:
    source = generator(seed)
    rows = {
        "w": torch.randn(8, 3, 2, generator=source, dtype=torch.float64),
        "b": torch.randn(8, 4, generator=source, dtype=torch.float64) * 10,
    }
    rows["b"][5, 0] = float("inf")
    everyone = torch.ones(8, dtype=torch.bool)
    for left_out in range(8):
        mask = everyone.clone()
        mask[left_out] = False
        with_it, without = sum_of_clipped(rows, clip, everyone), sum_of_clipped(rows, clip, mask)
        moved = math.sqrt(sum(float((with_it[k] - without[k]).square().sum()) for k in rows))
        assert moved <= clip * (1 + 1e-12)
        if left_out == 5:
            assert moved == 0.0
