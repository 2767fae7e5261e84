"""The private side of the sketch: sensitivities by replaying neighbouring data sets, shards, processes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpot.methods.gate import Gate, Release
from dpot.methods.sketch.counters import Stream, over
from dpot.methods.sketch.features import UNIT, Layout, LearnedMap, LinearMap, RecordMap
from dpot.methods.sketch.release import (
    Sketcher,
    class_counts,
    coefficient_grid,
    read_moments,
)
from dpot.methods.sketch.rules import plan
from dpot.methods.tape import Passed, Tape
from dpot.models.feature_network import FeatureNetwork
from dpot.privacy.errors import InvalidParameter
from dpot.privacy.events import CountGaussian
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource

SHAPE, CLASSES = (1, 5, 6), 3
LAYOUT = Layout(7, 5, 4, 3)
POSITIONS = LAYOUT.lines + 2 * LAYOUT.planes


def records(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(count, math.prod(SHAPE), generator=random) ** 2
    return x, torch.randint(CLASSES, (count,), generator=random)


def stream_of(x: Tensor, y: Tensor, chunk: int = 13) -> Stream:
    def parts() -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(x.split(chunk), y.split(chunk), strict=True)

    return parts


def sketcher(stream: Stream, noise: NoiseSource | None = None, tape: Tape | None = None) -> Sketcher:
    gate = Gate(ledger=Ledger(1e-5), noise=noise or NoiseSource(), tape=tape)
    return Sketcher(over(stream), SHAPE, CLASSES, plan(200, CLASSES, 2.0, True), 1.0, gate)


def at(own: Sketcher, noise_multiplier: float) -> Release:
    return own.open(noise_multiplier**-2, "a release")


def linear_map(seed: int = 0) -> LinearMap:
    random = torch.Generator().manual_seed(seed)
    directions = torch.nn.functional.normalize(torch.randn(POSITIONS, math.prod(SHAPE), generator=random), dim=1)
    return LinearMap.of(directions, directions.sum(1) / 3, torch.full((POSITIONS,), 0.3), LAYOUT, 255)


def learned_map() -> LearnedMap:
    torch.manual_seed(3)
    network = FeatureNetwork("dense", SHAPE, CLASSES).eval().requires_grad_(False)
    return LearnedMap([network], torch.randn(100, POSITIONS) * 2, torch.full((POSITIONS,), -2.0))


MAPS: dict[str, RecordMap] = {"linear": linear_map(), "learned": learned_map()}


def released(x: Tensor, y: Tensor, record_map: RecordMap) -> list[Passed]:
    """What every release would give before noise, with the sensitivity that its noise is scaled by."""
    tape = Tape(strength=0)
    own = sketcher(stream_of(x, y), tape=tape)
    own.norms(at(own, 1.0))
    own.moments(2.0, at(own, 1.0), at(own, 1.0))
    own.bins(record_map, LAYOUT, at(own, 1.0))
    return tape.passed


def change(before: Passed, after: Passed) -> float:
    """‖change‖ over the sensitivity; the second moments have one for the diagonal and one for the rest."""
    assert torch.equal(torch.as_tensor(before.sensitivity), torch.as_tensor(after.sensitivity))
    return float(((before.value - after.value).double() / before.sensitivity).norm())


odd_values = st.sampled_from([0.0, 1.0, 0.5, -3.0, 7.0, math.nan, math.inf, -math.inf, 1e-9])
odd_record = st.one_of(
    odd_values.map(lambda v: torch.full((math.prod(SHAPE),), v)),
    st.lists(odd_values, min_size=30, max_size=30).map(torch.tensor),
    st.integers(0, 1000).map(lambda seed: records(1, seed)[0][0]),
)


@pytest.mark.parametrize("kind", MAPS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(new=odd_record, label=st.integers(0, CLASSES - 1), place=st.integers(0, 19))
def test_replacing_one_record_moves_no_release_beyond_its_sensitivity(
    kind: str, new: Tensor, label: int, place: int
) -> None:
    x, y = records(20)
    x2, y2 = x.clone(), y.clone()
    x2[place], y2[place] = new, label
    before, after = (released(*data, MAPS[kind]) for data in ((x, y), (x2, y2)))
    assert len(before) == 4  # lengths, mean, second moments, bins
    assert all(change(*pair) <= 1 for pair in zip(before, after, strict=True))
    assert before[-1].sensitivity == pytest.approx(math.sqrt(2 * LAYOUT.pieces) * UNIT)


@settings(max_examples=40, deadline=None)
@given(new=odd_record, label=st.integers(0, CLASSES - 1))
def test_hard_bins_have_the_same_sensitivity(new: Tensor, label: int) -> None:
    hard = replace(LAYOUT, hard=True)
    x, y = records(6)
    x2, y2 = torch.cat([new[None], x[1:]]), torch.cat([torch.tensor([label]), y[1:]])
    counts = [torch.zeros(CLASSES, hard.bins, dtype=torch.int64) for _ in range(2)]
    for own, (data, labels) in zip(counts, ((x, y), (x2, y2)), strict=True):
        hard.count(own, MAPS["linear"].exactly(data), labels)
    assert float((counts[0] - counts[1]).double().norm()) <= hard.sensitivity
    assert set((counts[0] % UNIT).unique().tolist()) == {0}  # whole records, nothing shared between knots


def test_the_sensitivity_of_the_bins_is_attained() -> None:
    """A record on a knot of every line and plane, moved to another class: no smaller bound would do."""
    on_knots = LinearMap(torch.zeros(POSITIONS, 30), torch.ones(POSITIONS), -torch.ones(POSITIONS), 255)
    x, y = records(4)
    counts = [torch.zeros(CLASSES, LAYOUT.bins, dtype=torch.int64) for _ in range(2)]
    for own, labels in zip(counts, (y, torch.cat([(y[:1] + 1) % CLASSES, y[1:]])), strict=True):
        LAYOUT.count(own, on_knots.exactly(x), labels)
    assert float((counts[0] - counts[1]).double().norm()) == pytest.approx(LAYOUT.sensitivity, rel=1e-12)


@pytest.mark.parametrize("kind", MAPS)
def test_streams_of_any_split_add_up_to_the_same_counts(kind: str) -> None:
    """Whole numbers: the order and the sizes of the parts do not matter, not even in the last bit."""
    x, y = records(101)
    whole = released(x, y, MAPS[kind])
    order = torch.randperm(101, generator=torch.Generator().manual_seed(5))
    shards = [released(x[rows], y[rows], MAPS[kind]) for rows in order.split([1, 40, 60])]
    for release in range(4):
        added = sum(shard[release].value for shard in shards)
        assert torch.equal(torch.as_tensor(added), whole[release].value)


def test_the_moments_are_those_of_the_records() -> None:
    """Without clipping and with little noise, mean and covariance in the subspace are the sample's."""
    x, y = records(400)
    own = sketcher(stream_of(x, y))
    bound = 8.0
    moments = read_moments(own.moments(bound, at(own, 1e-3), at(own, 1e-4)), SHAPE, bound, 1e-4)
    inside = (x @ moments.basis.T).double()
    torch.testing.assert_close(moments.mean.double(), inside.mean(0), atol=0.02, rtol=0)
    torch.testing.assert_close(moments.covariance.double(), torch.cov(inside.T, correction=0), atol=0.05, rtol=0)


def test_class_counts_are_close_and_add_up_to_the_public_number() -> None:
    x, y = records(500)
    own = sketcher(stream_of(x, y))
    chosen = own.plan
    multiplier = 1 / math.sqrt(chosen.first_share)
    errors = []
    for _ in range(40):
        noisy = own.bins(linear_map(), LAYOUT, at(own, multiplier))
        counts = class_counts(noisy, LAYOUT, 500)
        assert float(counts.sum()) == pytest.approx(500)
        errors += (counts - torch.bincount(y, minlength=CLASSES)).tolist()
    claimed = replace(chosen, layout=LAYOUT).count_deviation(1.0)
    found = math.sqrt(sum(e * e for e in errors) / len(errors))
    # sharing out the gap to the public number takes 1/classes of the variance away
    assert found == pytest.approx(claimed * math.sqrt(1 - 1 / CLASSES), rel=0.35)


def test_charges_of_all_shares_are_one_release() -> None:
    own = sketcher(stream_of(*records(10)))
    shares = (0.01, 0.15, 0.44, 0.4)
    releases = [own.open(share, f"part {share}") for share in shares]
    multipliers = [release.noise_multiplier for release in releases]
    assert sum(1 / z**2 for z in multipliers) == pytest.approx(1.0)
    assert not own.gate.ledger.entries  # opened, and nothing has passed
    for release in releases:
        release(torch.zeros(1, dtype=torch.int64), 1.0)
    entries = own.gate.ledger.entries
    assert [entry.event.noise_multiplier for entry in entries] == multipliers  # type: ignore[attr-defined]


def test_long_records_are_cut_more_coarsely_where_the_noise_could_not_be_drawn() -> None:
    """White images of 64×64 in colour at ε = 1, which were refused after a part of the budget had been spent."""
    shape, z = (3, 64, 64), 3.73
    x = torch.ones(40, math.prod(shape))
    gate = Gate(ledger=Ledger(1e-5), noise=NoiseSource(1))
    own = Sketcher(over(stream_of(x, torch.zeros(40, dtype=torch.int64))), shape, 1, plan(40, 1, 1 / z, True), z, gate)
    own.check([(0.5, LAYOUT)])
    bound = own._bound(64)
    for_mean, for_square = own.open(0.03, "mean"), own.open(0.12, "second moments")
    grid = coefficient_grid(bound, for_square.noise_multiplier)
    assert 1 < grid < 64
    seen, total, square = own.moments(bound, for_mean, for_square)
    # in units of 1/grid: the sum of 40 records of length √d, and the noise that R asks for
    noise = 2 * bound * for_mean.noise_multiplier
    length = float(total.double().norm()) / grid
    assert length**2 == pytest.approx(40**2 * math.prod(shape) + len(total) * noise**2, rel=0.3)
    above = square.double()[torch.triu(torch.ones_like(square, dtype=torch.bool), 1)] / grid**2
    assert float(above.std()) == pytest.approx(bound**2 * for_square.noise_multiplier, rel=0.05)
    mean = read_moments((seen, total, square), shape, bound, for_square.noise_multiplier).mean
    assert float(mean.norm()) == pytest.approx(length / 40, rel=1e-4)


def test_grey_images_of_28_pixels_are_cut_as_before() -> None:
    assert coefficient_grid(65 / 63 * 28, 3.73 / math.sqrt(0.12)) == 64  # ε = 1, and even for the longest there may be


def test_noise_that_cannot_be_drawn_is_refused_before_anything_is_charged() -> None:
    own = sketcher(stream_of(*records(20)))
    own.noise_multiplier = 1e6
    with pytest.raises(InvalidParameter, match=r"raise privacy\.epsilon"):
        own.check([(0.5, Layout(4000, 24))])
    release = own.gate.release(CountGaussian(1e6))
    with pytest.raises(InvalidParameter, match="exact noise"):
        release(torch.zeros(3, dtype=torch.int64), 1000.0)
    assert own.gate.ledger.entries == []
