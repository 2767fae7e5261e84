"""The sketch's rules, directions and file."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from scipy import fft

from dpot.errors import DataError, UsageError
from dpot.methods.sealed import read_sealed, seal
from dpot.methods.sketch.directions import Moments, draw_directions, image_directions, public_basis
from dpot.methods.sketch.features import Layout, LearnedMap, LinearMap
from dpot.methods.sketch.file import Release, Round
from dpot.methods.sketch.rules import LEAST_KNOTS, LEAST_LINES, MOST_KNOTS, MOST_LINES, Plan, plan
from dpot.models.feature_network import FeatureNetwork

sizes = st.integers(2, 10**8)
classes = st.integers(1, 200)
mus = st.floats(1e-3, 50)


@settings(max_examples=200, deadline=None)
@given(sizes, classes, mus, st.booleans(), st.integers(1, 2), st.booleans())
def test_every_plan_is_within_its_bounds(n: int, c: int, mu: float, images: bool, rounds: int, cuda: bool) -> None:
    made = plan(n, c, mu, images, rounds, cuda)
    for layout in (made.layout, made.second_layout):
        assert LEAST_LINES <= layout.lines <= MOST_LINES
        assert LEAST_KNOTS <= layout.knots <= MOST_KNOTS
    shares = (made.norm_share, made.moment_share, made.first_share, made.second_share)
    assert sum(shares) == pytest.approx(1)
    assert all(0 < share < 1 for share in shares[:3])
    assert (made.second_share > 0) == (rounds > 1 and c > 1)  # without classes there is nothing to learn from
    assert made.per_class % 2 == 0
    assert made.per_class >= 2
    assert made.layout.planes == 0 or images
    assert Plan.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    assert made.adapted(c, cuda) == made


@settings(max_examples=100, deadline=None)
@given(sizes, classes, mus, st.floats(1, 100))
def test_more_signal_never_means_fewer_lines_or_steps(n: int, c: int, mu: float, factor: float) -> None:
    little, much = plan(n, c, mu, True), plan(n, c, mu * factor, True)
    assert much.layout.lines >= little.layout.lines
    assert (much.steps, much.second_steps) >= (little.steps, little.second_steps)
    assert much.low_noise or not little.low_noise
    assert much.count_deviation(mu * factor) <= little.count_deviation(mu) * (1 + 1e-9)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 7), (1, 28, 28)])
def test_the_public_basis_is_the_orthonormal_cosine_transform(shape: tuple[int, int, int]) -> None:
    basis = public_basis(shape).double()
    torch.testing.assert_close(basis @ basis.T, torch.eye(len(basis), dtype=torch.float64), atol=1e-5, rtol=0)
    most = math.isqrt(200 // shape[0])  # per axis: 200 functions at most
    image = np.random.default_rng(0).random(shape)
    lowest = fft.dctn(image, axes=(1, 2), norm="ortho")[:, :most, :most]
    np.testing.assert_allclose(basis.numpy() @ image.ravel(), lowest.ravel(), atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 27, 31), (3, 32, 32), (5, 1, 1), (300, 1, 1)])
@pytest.mark.parametrize("low_noise", [False, True])
def test_directions_are_unit_rows_of_the_layout(shape: tuple[int, int, int], low_noise: bool) -> None:
    basis = public_basis(shape)
    size = len(basis)
    moments = Moments(basis, torch.zeros(size), torch.diag(torch.linspace(1, 0.01, size)), 0.001)
    layout = Layout(60, 6, 5)
    drawn = draw_directions(shape, layout, moments, low_noise, torch.Generator().manual_seed(0))
    assert drawn.shape == (layout.lines + 2 * layout.planes, shape[0] * shape[1] * shape[2])
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(len(drawn)), atol=1e-3, rtol=0)


@pytest.mark.parametrize("kind", ["public", "uniform", "smoothed", "localised", "gabor", "principal"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 16, 12), (6, 1, 1)])
def test_directions_of_one_kind(kind: str, shape: tuple[int, int, int]) -> None:
    basis = public_basis(shape)
    moments = Moments(basis, torch.zeros(len(basis)), torch.diag(torch.linspace(1, 0.01, len(basis))), 0.001)
    layout = Layout(48, 6, 4)
    drawn = draw_directions(shape, layout, moments, True, torch.Generator().manual_seed(0), kind)
    assert drawn.shape == (56, math.prod(shape))
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(56), atol=1e-3, rtol=0)
    inside = (drawn[:48] @ basis.T).norm(dim=1)
    if kind == "principal":  # they never leave the subspace the moments live in
        torch.testing.assert_close(inside, torch.ones(48), atol=1e-3, rtol=0)


def test_directions_of_a_file(tmp_path: Path) -> None:
    basis = public_basis((1, 8, 8))
    moments = Moments(basis, torch.zeros(len(basis)), torch.eye(len(basis)), 0.001)
    rows = np.random.default_rng(0).standard_normal((60, 64))
    np.save(tmp_path / "own.npy", rows)

    def drawn(path: Path, lines: int) -> torch.Tensor:
        return draw_directions((1, 8, 8), Layout(lines, 6), moments, False, torch.Generator(), str(path))

    wanted = rows[:50] / np.linalg.norm(rows[:50], axis=1, keepdims=True)
    np.testing.assert_allclose(drawn(tmp_path / "own.npy", 50).numpy(), wanted, atol=1e-6)
    with pytest.raises(UsageError, match="70 or more"):
        drawn(tmp_path / "own.npy", 70)
    with pytest.raises(UsageError, match="gabor"):
        drawn(tmp_path / "gabour", 50)


def test_hard_bins_are_plain_histograms() -> None:
    layout = Layout(3, 5, hard=True)
    positions = torch.rand(200, 3, dtype=torch.float64) * 6 - 1
    counts = torch.zeros(1, layout.bins, dtype=torch.int64)
    layout.count(counts, positions, torch.zeros(200, dtype=torch.int64))
    for line in range(3):
        nearest = np.clip(np.rint(positions[:, line].numpy()), 0, 4).astype(int)
        assert counts.view(3, 5)[line].tolist() == (256 * np.bincount(nearest, minlength=5)).tolist()


def test_principal_directions_stand_out_of_the_noise() -> None:
    basis = public_basis((1, 8, 8))
    size = len(basis)
    planted = torch.zeros(size)
    planted[3] = 1
    random = torch.Generator().manual_seed(0)
    noise = torch.randn(size, size, generator=random) * 0.01
    covariance = torch.outer(planted, planted) * 4 + (noise + noise.T) / 2**0.5
    directions, variances = Moments(basis, torch.zeros(size), covariance, 0.01).principal()
    assert abs(float(directions[0] @ basis[3])) > 0.99
    assert float(variances[0]) == pytest.approx(4, rel=0.05)
    assert len(directions) == 4  # the one that stands out, and never fewer than four


def test_places_are_the_projections_centre_and_deviation() -> None:
    basis = public_basis((1, 8, 8))
    random = torch.Generator().manual_seed(1)
    mix = torch.randn(len(basis), len(basis), generator=random) / 8
    sample = torch.randn(20_000, len(basis), generator=random) @ mix + 1
    moments = Moments(basis, sample.mean(0), torch.cov(sample.T), 0.0)
    directions = torch.nn.functional.normalize(torch.randn(20, 64, generator=random), dim=1)
    centre, deviation = moments.place(directions)
    projected = sample @ basis @ directions.T
    torch.testing.assert_close(centre, projected.mean(0), atol=1e-3, rtol=0)
    torch.testing.assert_close(deviation, projected.std(0), rtol=0.01, atol=0.01)


def test_colours_of_images_are_placed_by_how_much_they_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (3, 6, 6)
    basis = public_basis(shape)
    random = torch.Generator().manual_seed(2)
    grey = torch.randn(20_000, 1, 36, generator=random).expand(-1, 3, -1)
    images = (grey + 0.3 * torch.randn(20_000, 3, 36, generator=random)).flatten(1)
    inside = images @ basis.T
    moments = Moments(basis, inside.mean(0), torch.cov(inside.T), 0.0)
    by_hand = torch.einsum("ncp,ndp->cd", *(2 * [images.view(-1, 3, 36) - images.view(-1, 3, 36).mean(0)])) / 20_000
    torch.testing.assert_close(moments.colours(3), by_hand, rtol=1e-3, atol=1e-3)
    pattern = torch.nn.functional.normalize(torch.randn(36, generator=random), dim=0)
    colours = torch.nn.functional.normalize(torch.tensor([[1.0, 1, 1], [1, -1, 0], [1, 1, -2]]), dim=1)
    rows = (colours[:, :, None] * pattern).flatten(1)
    hidden = Moments(torch.zeros_like(basis), moments.mean, moments.covariance, 0.0)  # which sees nothing of the rows
    monkeypatch.setattr(Moments, "colours", lambda self, channels: by_hand)
    _, floors = hidden.place(rows, 3)
    total = float(moments.covariance.trace())
    wanted = [0.04 * math.sqrt(max(float(c @ by_hand @ c), total / 16)) for c in colours]
    torch.testing.assert_close(floors, torch.tensor(wanted), rtol=1e-3, atol=0)
    assert floors[1] < floors[0] / 2


def test_of_directions_on_colour_images_two_in_five_have_no_grey() -> None:
    drawn = image_directions(1000, (3, 8, 8), 1.5, 4.0, torch.Generator().manual_seed(0), torch.device("cpu"))
    grey = drawn.view(1000, 3, -1).sum(1).norm(dim=1) / 3**0.5  # the length of what it sees of a grey image
    assert 0.35 < float((grey < 1e-5).float().mean()) < 0.45
    assert float(grey[grey > 1e-5].mean()) > 0.6


def test_localised_directions_look_where_the_records_vary() -> None:
    shape = (3, 20, 16)
    basis = public_basis(shape)
    images = torch.zeros(400, *shape)
    images[:, :, :, :6] = torch.rand(400, 3, 20, 6, generator=torch.Generator().manual_seed(0))
    inside = images.flatten(1) @ basis.T
    moments = Moments(basis, inside.mean(0), torch.cov(inside.T), 0.0)
    seen = (inside @ basis).view(400, *shape)  # what the subspace shows of them
    torch.testing.assert_close(moments.deviations(shape), seen.var(0).sum(0).sqrt(), atol=1e-5, rtol=1e-3)

    def on_the_left(kind: str, moments: Moments) -> float:
        layout = Layout(300, 6, 50)
        drawn = draw_directions(shape, layout, moments, True, torch.Generator().manual_seed(0), kind)
        localised = torch.cat([drawn[195:270], drawn[layout.lines : layout.lines + 50]])  # the finest, and planes
        return float(localised.view(-1, *shape)[..., :8].square().sum() / localised.square().sum())

    noise = torch.randn(len(basis), len(basis), generator=torch.Generator().manual_seed(1))
    hidden = Moments(basis, inside.mean(0), (noise + noise.T) / 2**0.5, 1.0)
    assert (hidden.deviations(shape) == 0).float().mean() > 0.8  # nothing but noise
    constant = Moments(basis, inside.mean(0), torch.zeros_like(moments.covariance), 0.0)
    assert on_the_left("mixed", moments) > 0.75
    assert on_the_left("mixed", constant) == pytest.approx(0.5, abs=0.15)  # nothing varies: everywhere
    assert on_the_left("public", moments) == on_the_left("public", constant)  # it knows nothing of the moments


def a_release() -> Release:
    torch.manual_seed(0)
    shape, count = (1, 6, 6), 2
    made = plan(1000, count, 2.0, True, cuda=False)
    layout = Layout(5, 4, 2, 3)
    linear = LinearMap.of(
        torch.nn.functional.normalize(torch.randn(9, 36), dim=1), torch.rand(9), torch.rand(9) + 0.1, layout, 255
    )
    network = FeatureNetwork("dense", shape, count).eval()
    learned = LearnedMap([network], torch.randn(100, 5), torch.randn(5))
    facts = {"networks": ["dense"], "shape": list(shape), "classes": count}
    second = Layout(5, 4)
    return Release(
        shape=shape,
        classes=count,
        records=1000,
        counts=torch.tensor([990.0, 10.0], dtype=torch.float64),
        rounds=[
            Round("linear", linear, layout, torch.randint(-9, 9, (count, layout.bins)), {"grid": 255}),
            Round("learned", learned, second, torch.randint(-9, 9, (count, second.bins)), facts),
        ],
        plan=made,
        deviation=4.0,
        extra={"class_names": ["a", "b"]},
    )


def test_a_release_comes_back_as_it_was_written(tmp_path: Path) -> None:
    before = a_release()
    before.save(tmp_path / "r.safetensors")
    after = Release.load(tmp_path / "r.safetensors")
    same = ("shape", "classes", "records", "plan", "deviation", "statement", "extra")
    assert all(getattr(before, name) == getattr(after, name) for name in same)
    assert torch.equal(before.counts, after.counts)
    x = torch.rand(11, 36)
    for one, two in zip(before.rounds, after.rounds, strict=True):
        assert torch.equal(one.noisy, two.noisy)
        assert one.layout == two.layout
        assert torch.equal(one.record_map.exactly(x), two.record_map.exactly(x))
        torch.testing.assert_close(one.record_map(x), two.record_map(x))


def test_classes_hidden_by_the_noise_have_no_share() -> None:
    release = a_release()
    assert release.uncertain == [1]
    assert release.shares.tolist() == [1.0, 0.0]
    sure = replace(release, deviation=1.0)
    assert sure.uncertain == []
    assert sure.shares.tolist() == [0.99, 0.01]
    lost = replace(release, deviation=1000.0)
    assert lost.shares.tolist() == [0.99, 0.01]  # better than none at all; the remark names both


def test_files_that_are_no_release_are_refused_by_name(tmp_path: Path) -> None:
    whole = tmp_path / "r.safetensors"
    a_release().save(whole)
    blob = whole.read_bytes()
    save_file({"x": torch.ones(2)}, tmp_path / "other")
    save_file({"x": torch.ones(2)}, tmp_path / "empty", metadata={"dpot": "{}"})
    (tmp_path / "cut").write_bytes(blob[: len(blob) // 2])
    (tmp_path / "noise").write_bytes(b"\x07" * 500)
    tensors, facts, _ = read_sealed(whole)
    (tmp_path / "newer").write_bytes(seal(tensors, facts | {"version": 9}))
    for name in ("other", "empty", "cut", "noise", "newer", "missing"):
        with pytest.raises(DataError, match=name):
            Release.load(tmp_path / name)
