"""The private sliced distance: sensitivity, ε, truth of the pieces, and a bracket that covers at its rate."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpot.errors import UsageError
from dpot.methods.distance.noisy_records import NoisyRecords
from dpot.methods.distance.parties import SERVER, Party
from dpot.methods.distance.sketch import Grid, SketchDistance, hat_features, sketch, sliced_cramer
from dpot.privacy.budget import Budget
from dpot.privacy.errors import BudgetExceeded, LedgerMismatch
from dpot.privacy.events import Gaussian
from dpot.privacy.gaussian import gaussian_epsilon, gaussian_noise_multiplier
from dpot.privacy.noise import NoiseSource
from dpot.transport.directions import uniform_directions
from dpot.transport.geodesic import measure
from dpot.transport.sliced import sliced_wasserstein, wasserstein_1d

LARGE = Budget(500.0, 1e-5, conversion="tight")  # hardly any noise


def cloud(n, d, seed, shift=0.0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


def grid_of(d=3, k=5, cells=12, reach=4.0, clip=100.0, seed=0):
    u = uniform_directions(k, d, torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Grid(u, cells, reach, clip)


def play(method, x, y, budget, seed=0, **given):
    parties = Party("mu", x, **given), Party("nu", y)
    return method.estimate(*parties, torch.Generator().manual_seed(seed), budget), parties


@given(st.lists(st.floats(-6, 6), min_size=1, max_size=20))
@settings(max_examples=15, deadline=None)
def test_hat_functions_sum_to_one_with_norm_at_most_one(values):
    features = hat_features(torch.tensor([values], dtype=torch.float64), grid_of())
    torch.testing.assert_close(features.sum(-1), torch.ones(1, len(values), dtype=torch.float64))
    assert float(features.min()) >= 0
    assert float(features.norm(dim=-1).max()) <= 1 + 1e-12


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_replacing_a_record_moves_the_sketch_by_at_most_the_sensitivity(seed):
    random = torch.Generator().manual_seed(seed)
    x = 20 * torch.randn(6, 3, generator=random, dtype=torch.float64)
    weights = torch.rand(6, generator=random, dtype=torch.float64) + 0.1
    other = x.clone()
    other[2] = 30 * torch.randn(3, generator=random, dtype=torch.float64)
    grid = grid_of(clip=2.0)
    moved = (sketch(measure(x, weights), grid) - sketch(measure(other, weights), grid)).norm()
    assert float(moved) <= math.sqrt(2 * 5) * float(measure(x, weights).weights.max()) + 1e-12


def test_the_worst_replacement_reaches_the_sensitivity():
    u = torch.eye(1, dtype=torch.float64)
    grid = Grid(u, 4, 2.0, 10.0)
    a, b = (torch.tensor([[v]], dtype=torch.float64) for v in (-2.0, 2.0))  # both on a knot
    assert float((sketch(measure(a), grid) - sketch(measure(b), grid)).norm()) == pytest.approx(math.sqrt(2))


def test_cumulated_weights_are_cell_averages_of_the_cdf():
    x = torch.tensor([[-1.3], [0.2], [0.9]], dtype=torch.float64)
    grid = Grid(torch.ones(1, 1, dtype=torch.float64), 4, 2.0, 10.0)
    cumulated = sketch(measure(x), grid)[0].cumsum(0)[:-1]
    fine = torch.linspace(-2, 2, 400_001, dtype=torch.float64)
    cdf = (x.flatten()[None] <= fine[:, None]).double().mean(1)
    averages = torch.stack([part.mean() for part in cdf[:-1].view(4, -1)])
    torch.testing.assert_close(cumulated, averages, atol=1e-4, rtol=0)


@given(st.integers(0, 1000), st.integers(2, 12))
@settings(max_examples=25, deadline=None)
def test_discretisation_loses_at_most_h(seed, cells):
    x, y = cloud(9, 1, seed).clamp(-3, 3), cloud(6, 1, seed + 1, 0.4).clamp(-3, 3)
    grid = Grid(torch.ones(1, 1, dtype=torch.float64), cells, 3.0, 10.0)
    coarse = grid.width * float((sketch(measure(x), grid) - sketch(measure(y), grid)).cumsum(1)[:, :-1].abs().sum())
    exact = float(wasserstein_1d(x.T, y.T, 1.0))
    assert coarse - 1e-9 <= exact <= coarse + grid.width + 1e-9


def test_sliced_cramer_is_the_energy_distance_in_one_dimension():
    x, y = cloud(40, 1, 0), cloud(30, 1, 1, 0.7)
    found = float(sliced_cramer(measure(x), measure(y), torch.ones(1, 1, dtype=torch.float64)))
    assert found == pytest.approx(stats.energy_distance(x.flatten(), y.flatten()) / math.sqrt(2))


@pytest.mark.parametrize("kind", ["wasserstein", "cramer"])
def test_with_hardly_any_noise_the_truth_along_the_directions_comes_out(kind):
    x, y = cloud(2000, 8, 0), cloud(1500, 8, 1, 0.5)
    estimate, _ = play(SketchDistance(directions=64, cells=64, clip=10.0, kind=kind), x, y, LARGE)
    u = estimate.log.view(SERVER)["directions"]
    along = sliced_wasserstein(x, y, u, 1.0) if kind == "wasserstein" else sliced_cramer(measure(x), measure(y), u)
    assert estimate.value == pytest.approx(float(along), rel=0.05)


def test_exact_is_the_sliced_distance_of_the_clipped_clouds():
    x, y = cloud(30, 4, 0), cloud(20, 4, 1)
    u = uniform_directions(500, 4, torch.Generator().manual_seed(500), dtype=torch.float64)
    found = SketchDistance(clip=100.0).exact(Party("mu", x), Party("nu", y))
    assert found == pytest.approx(float(sliced_wasserstein(x, y, u, 1.0)))


@pytest.mark.parametrize("epsilon", [0.5, 10.0])
def test_each_party_keeps_its_epsilon_with_the_least_noise(epsilon):
    budget = Budget(epsilon, 1e-5, conversion="tight")
    estimate, parties = play(SketchDistance(directions=8), cloud(50, 4, 0), cloud(80, 4, 1), budget)
    for party in parties:
        statement = party.statement()
        assert statement.rigorous
        assert epsilon * (1 - 1e-6) <= statement.epsilon <= epsilon
        assert statement.releases == 1
    least = gaussian_noise_multiplier(epsilon, 1e-5) * math.sqrt(2 * 8)
    assert estimate.details["noise"] == pytest.approx(math.hypot(least / 50, least / 80), rel=1e-6)


ONE = Budget(1.0, 1e-5, conversion="tight")


@pytest.mark.parametrize("method", [SketchDistance(directions=8), NoisyRecords()])
def test_what_a_party_released_serves_every_later_comparison(method):
    """Four estimates used to print ε = 1 each from a new ledger, and to release four times: ε = 2.155."""
    first, second, third = Party("a", cloud(50, 4, 0)), Party("b", cloud(80, 4, 1)), Party("c", cloud(60, 4, 2))
    random = torch.Generator().manual_seed(0)
    values = {method.estimate(first, second, random, ONE).value for _ in range(4)}
    assert len(values) == 1
    method.estimate(third, first, random, ONE)
    for party in (first, second, third):
        assert party.ledger.releases == 1
        assert party.statement().epsilon == pytest.approx(1.0, rel=1e-6)


def test_another_release_is_added_to_the_one_ledger():
    first, second = Party("a", cloud(50, 4, 0)), Party("b", cloud(80, 4, 1))
    random = torch.Generator().manual_seed(0)
    SketchDistance(directions=8).estimate(first, second, random, ONE)
    with pytest.raises(BudgetExceeded, match="a: sketch of 9"):
        SketchDistance(directions=9).estimate(first, second, random, ONE)
    with pytest.raises(LedgerMismatch, match="delta"):
        SketchDistance(directions=8).estimate(first, second, random, Budget(1.0, 1e-6))
    first.open_gate(Budget(9.0, 1e-5, conversion="tight"), NoiseSource()).release(Gaussian(2.0))(torch.zeros(3), 1.0)
    both = 1 / math.hypot(1 / gaussian_noise_multiplier(1.0, 1e-5), 1 / 2.0)
    assert first.statement().epsilon == pytest.approx(gaussian_epsilon(both, 1e-5), rel=1e-6)
    assert first.statement().releases == 2


def test_sketches_on_different_grids_are_not_compared():
    parties = [Party(name, cloud(50, 4, seed)) for seed, name in enumerate("abcd")]
    random = torch.Generator().manual_seed(0)
    for pair in (parties[:2], parties[2:]):
        SketchDistance(directions=8).estimate(*pair, random, ONE)
    with pytest.raises(UsageError, match="different grids"):
        SketchDistance(directions=8).estimate(parties[0], parties[2], random, ONE)


def test_a_grid_made_for_fewer_records_covers_a_little_less_often():
    first, second, large = (Party(name, cloud(n, 60, 0)) for name, n in (("a", 50), ("b", 50), ("c", 500)))
    random, method = torch.Generator().manual_seed(0), SketchDistance(directions=8, failure=0.1)
    assert method.estimate(first, second, random, ONE).rate == 0.9
    assert method.estimate(first, large, random, ONE).rate == pytest.approx(1 - 0.09 - 0.01 * 550 / 100)


def test_the_release_has_the_stated_noise():
    x = torch.zeros(20, 4, dtype=torch.float64)
    method = SketchDistance(directions=100, cells=50, noise_seed=1)
    estimate, _ = play(method, x, x, Budget(1.0, 1e-5, conversion="tight"))
    view = estimate.log.view(SERVER)
    difference = (view["sketch mu"] - view["sketch nu"]).std()
    assert float(difference) == pytest.approx(estimate.details["noise"], rel=0.05)


def test_a_fixed_noise_seed_is_not_called_rigorous():
    _, parties = play(SketchDistance(noise_seed=1), cloud(9, 3, 0), cloud(9, 3, 1), Budget(1.0, 1e-5))
    assert not parties[0].statement().rigorous


def test_labels_take_part():
    x = cloud(200, 5, 0)
    y = torch.zeros(200, dtype=torch.int64)
    same = Party("mu", x, labels=y, classes=2), Party("nu", x, labels=y, classes=2)
    other = Party("mu", x, labels=y, classes=2), Party("nu", x, labels=1 - y, classes=2)
    method = SketchDistance(clip=10.0, cells=200, label_scale=5.0)
    values = [method.estimate(*pair, torch.Generator().manual_seed(0), LARGE).value for pair in (same, other)]
    assert values[0] < 0.1 < values[1]
    with pytest.raises(UsageError, match="labels"):
        play(method, x, x, LARGE)


def test_weights_take_part():
    x = torch.cat((torch.zeros(900, 3), torch.ones(900, 3))).double()
    heavy = torch.cat((torch.full((900,), 9.0), torch.ones(900))).double()
    method = SketchDistance(clip=2.0, cells=100)
    weighted, parties = play(method, x, x, LARGE, weights=heavy)
    assert weighted.low <= method.exact(*parties) <= weighted.high
    assert weighted.value == pytest.approx(method.exact(*parties), rel=0.25)


@pytest.mark.parametrize("kind", ["wasserstein", "cramer"])
@pytest.mark.parametrize(
    ("shift", "epsilon", "sizes"), [(0.0, 1.0, (200, 200)), (0.4, 3.0, (250, 150)), (1.0, 50.0, (100, 300))]
)
def test_the_bracket_covers_the_truth_at_its_rate(kind, shift, epsilon, sizes):
    """Over fresh directions and fresh noise; 40 draws at rate .9 fall to 27 hits or fewer once in 10,000."""
    x, y = cloud(sizes[0], 6, 0), cloud(sizes[1], 6, 1, shift)
    method = SketchDistance(directions=16, clip=8.0, kind=kind, failure=0.1)
    truth = method.exact(Party("mu", x), Party("nu", y), directions=1500)
    random = torch.Generator().manual_seed(7)
    budget = Budget(epsilon, 1e-5, conversion="tight")
    hits = 0
    for _ in range(40):
        estimate = method.estimate(Party("mu", x), Party("nu", y), random, budget)
        hits += estimate.low <= truth <= estimate.high
        assert estimate.low <= estimate.value <= estimate.high
    assert hits > 27


def test_the_bracket_covers_with_labels_and_weights_too():
    """A class that one side lacks, weights on the other; 30 draws at rate .9 fall to 19 or fewer once in 10,000."""
    x, y = cloud(300, 4, 2), cloud(120, 4, 3, 0.5)
    weights = torch.rand(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1

    def parties():
        first = Party("mu", x, weights, torch.arange(300) % 3, classes=3)
        return first, Party("nu", y, labels=torch.arange(120) % 2, classes=3)

    method = SketchDistance(directions=6, clip=6.0, failure=0.1, label_scale=2.0)
    truth, random = method.exact(*parties(), directions=1500), torch.Generator().manual_seed(8)
    found = [method.estimate(*parties(), random, Budget(30.0, 1e-6, conversion="tight")) for _ in range(30)]
    assert sum(e.low <= truth <= e.high for e in found) > 19


def test_the_proved_bracket_covers_the_average_over_the_directions_in_use():
    x, y = cloud(200, 6, 0), cloud(300, 6, 1, 0.5)
    method = SketchDistance(directions=8, clip=20.0, failure=0.1)
    random = torch.Generator().manual_seed(3)
    for _ in range(15):
        estimate, _ = play(
            method, x, y, Budget(5.0, 1e-5, conversion="tight"), seed=int(torch.randint(9999, (), generator=random))
        )
        u = estimate.log.view(SERVER)["directions"]
        truth = float(sliced_wasserstein(x, y, u, 1.0))
        assert estimate.details["along_low"] <= truth <= estimate.details["along_high"]


def test_two_directions_are_the_least():
    with pytest.raises(UsageError):
        SketchDistance(directions=1)
