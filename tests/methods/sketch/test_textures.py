"""Textures: the filters' answers, their histograms over places, their sensitivity, their place in the method."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from dpot.methods.generate.base import Problem
from dpot.methods.sketch.file import load_map
from dpot.methods.sketch.method import Sketch
from dpot.methods.sketch.textures import PARTS, SQUEEZE, Look, Pooled, TextureMap, places_of
from dpot.models.sketch_dcgan import SketchDCGAN
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource

SHAPE = (2, 9, 11)
KNOTS = 7


def drawn(textures: int = 6) -> TextureMap:
    return TextureMap.draw(textures, SHAPE, KNOTS, 255, torch.Generator().manual_seed(0))


def layout(textures: int = 6) -> Pooled:
    return Pooled(textures, KNOTS, places=places_of(SHAPE))


def images(count: int, seed: int = 1) -> torch.Tensor:
    whole = torch.randint(256, (count, math.prod(SHAPE)), generator=torch.Generator().manual_seed(seed))
    return whole.double() / 255


def test_answers_are_correlations_squeezed() -> None:
    made, x = drawn(), images(3)
    filters = made.filters.double().view(6, 2, 5, 5).numpy() / 4096
    positions = made.exactly(x).view(3, 3, 4, 6)  # 3 × 4 places in steps of two
    for n in range(3):
        for texture in range(6):
            channels = x[n].view(SHAPE).double().numpy()
            answer = sum(signal.correlate2d(channels[c], filters[texture, c], "valid") for c in range(2))[::2, ::2]
            wanted = (answer / (np.abs(answer) + SQUEEZE) + 1) * (KNOTS - 1) / 2
            np.testing.assert_allclose(positions[n, :, :, texture].numpy(), wanted, atol=1e-9)
    torch.testing.assert_close(made(x.float()).double(), made.exactly(x), atol=1e-4, rtol=0)


def test_filters_have_unit_length_and_answer_nothing_to_a_constant() -> None:
    filters = drawn(8).filters.double() / 4096
    torch.testing.assert_close(filters.norm(dim=1), torch.ones(8, dtype=torch.float64), atol=1e-3, rtol=0)
    assert float(filters.sum(1).abs().max()) < 0.01
    small = filters.view(8, 2, 5, 5)[::2]  # every other one has three pixels
    assert float(small[:, :, 0].abs().max()) == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.booleans())
def test_replacing_one_record_moves_the_counts_by_at_most_the_sensitivity(seed: int, constant: bool) -> None:
    made, own = drawn(), layout()
    x, y = images(5), torch.tensor([0, 1, 2, 0, 1])
    other, labels = x.clone(), y.clone()
    other[0] = 0.3 if constant else images(1, seed)[0]
    labels[0] = seed % 3
    counts = [torch.zeros(3, own.bins, dtype=torch.int64) for _ in range(2)]
    own.count(counts[0], made.exactly(x), y)
    own.count(counts[1], made.exactly(other), labels)
    assert float((counts[0] - counts[1]).double().norm()) <= own.sensitivity
    assert own.sensitivity == pytest.approx(PARTS * own.places * math.sqrt(12))
    assert int(counts[0].sum()) == 5 * 6 * own.unit


def test_means_are_the_counts_per_record() -> None:
    made, own, x = drawn(), layout(), images(40)
    counts = torch.zeros(1, own.bins, dtype=torch.int64)
    own.count(counts, made.exactly(x), torch.zeros(40, dtype=torch.int64))
    means = own.means(made.exactly(x)[None])
    torch.testing.assert_close(counts.double() / (40 * own.unit), means.view(1, -1), atol=1 / PARTS, rtol=0)
    torch.testing.assert_close(means.view(6, KNOTS).sum(1), torch.ones(6, dtype=torch.float64))


def test_a_texture_map_comes_back_from_its_tensors() -> None:
    made = drawn()
    again = load_map("textures", made.tensors(), {"shape": list(SHAPE), "knots": KNOTS, "grid": 255})
    assert torch.equal(again.exactly(images(2)), made.exactly(images(2)))


@pytest.mark.parametrize(("shape", "places"), [((1, 28, 28), 144), ((3, 5, 5), 1), ((1, 4, 28), 0), ((7, 1, 1), 0)])
def test_places(shape: tuple[int, int, int], places: int) -> None:
    assert places_of(shape) == places


def test_pairs_are_counted_over_planes_and_cost_what_a_line_costs() -> None:
    look = Look(pairs=2)
    made = TextureMap.draw(3, SHAPE, KNOTS, 255, torch.Generator().manual_seed(0), look)
    own, x = look.layout(3, KNOTS, SHAPE), images(4)
    assert len(made.filters) == 7
    positions = made.exactly(x)
    alone = TextureMap(made.filters[3:4], SHAPE, 8, 255).exactly(x)  # the first filter of the first pair, 8 knots
    places = positions.view(4, own.places, 7)
    torch.testing.assert_close(places[..., 3], alone.view(4, own.places))
    torch.testing.assert_close(made(x.float()).double(), positions, atol=1e-4, rtol=0)
    counts = torch.zeros(1, own.bins, dtype=torch.int64)
    own.count(counts, positions, torch.zeros(4, dtype=torch.int64))
    on_planes = counts[0, 3 * KNOTS :].view(2, 64)
    assert on_planes.sum(1).tolist() == [4 * own.unit] * 2
    means = own.means(positions.float().view(1, 4, -1))[0, 3 * KNOTS :].view(2, 64)
    torch.testing.assert_close(on_planes / (4 * own.unit), means, atol=0.02, rtol=0)
    assert own.reach(1) == pytest.approx(own.unit * math.sqrt(5))


def test_at_half_the_size_and_in_cells_it_is_the_same_filter_on_means_of_pixels() -> None:
    shape, look = (1, 22, 26), Look(scale=2, cells=2, squeeze=0.1)
    made = TextureMap.draw(3, shape, KNOTS, 255, torch.Generator().manual_seed(0), look)
    whole = torch.randint(256, (2, math.prod(shape)), generator=torch.Generator().manual_seed(2))
    x = whole.double() / 255
    halved = x.view(2, 11, 2, 13, 2).mean((2, 4)).numpy()
    positions = made.exactly(x).view(2, 2, 2, 2, 2, 3)  # record, place, cell, filter
    for texture in range(3):
        taps = made.filters[texture].double().view(5, 5).numpy() / 4096
        answer = signal.correlate2d(halved[1], taps, "valid")[::2, ::2][:4, :4]
        wanted = (answer / (np.abs(answer) + 0.1) + 1) * (KNOTS - 1) / 2
        found = positions[1, ..., texture].permute(2, 0, 3, 1).reshape(4, 4).numpy()
        np.testing.assert_allclose(found, wanted, atol=1e-9)
    torch.testing.assert_close(made(x.float()).double(), made.exactly(x), atol=1e-4, rtol=0)
    own = look.layout(3, KNOTS, shape)
    assert (own.lines, own.places) == (12, 4)
    counts = torch.zeros(1, own.bins, dtype=torch.int64)
    own.count(counts, made.exactly(x), torch.zeros(2, dtype=torch.int64))
    assert int(counts.sum()) == 2 * 12 * own.unit
    assert own.reach(1) == pytest.approx(PARTS * 4 * math.sqrt(12))


def test_an_odd_stride_sees_every_phase_of_a_pattern_that_doublings_make() -> None:
    """The places of a stride of two lie on one phase of a grid of four pixels by two; those of three on all of them."""
    for stride, phases in ((2, 2), (3, 4)):
        down, _ = Look(stride=stride).grid((3, 32, 32))
        assert len({stride * i % 4 for i in range(down)}) == phases


def test_photographs_have_settings_of_their_own() -> None:
    """Textures at three scales for 15% of the budget; what is spent stays within it."""
    torch.manual_seed(0)
    x, y = torch.rand(3000, 3, 18, 18), torch.arange(3000) % 2
    budget = Budget(10.0, 1e-4)
    problem = Problem(
        images=x,
        labels=y,
        classes=2,
        generator=SketchDCGAN(2, (3, 18, 18), width=2, blocks=0),
        budget=budget,
        ledger=Ledger.of(budget),
        noise=NoiseSource(3),
        random=torch.Generator().manual_seed(0),
        max_steps=2,
    )
    method = Sketch(rounds=1, lines=20, photographs=True)
    method.fit(problem)
    assert method.release is not None
    kinds = [one.kind for one in method.release.rounds]
    assert kinds == ["linear", "textures", "textures"]  # at a quarter of its size the image is too small
    assert method.release.plan.texture_share == 0.15
    assert problem.ledger.epsilon() <= 10
    assert problem.ledger.epsilon() > 9.9
    other = Sketch(rounds=1, lines=20)
    other.fit(replace(problem, ledger=Ledger.of(budget)))
    assert other.release is not None
    assert [one.kind for one in other.release.rounds] == ["linear"]  # on a CPU they are not chosen by rule
