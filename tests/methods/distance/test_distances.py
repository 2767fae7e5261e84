"""Protocols between parties: what they estimate, what they send, what they may claim."""

import math

import numpy as np
import pytest
import torch

from dpot.errors import DataError, UsageError
from dpot.methods.distance.direct_wad import DirectWad
from dpot.methods.distance.fed_wad import FedWad
from dpot.methods.distance.noisy_records import NoisyRecords
from dpot.methods.distance.parties import SERVER, Log, Party, clipped
from dpot.methods.distance.sketch import SketchDistance
from dpot.methods.distance.triangle_wad import TriangleWad
from dpot.privacy.budget import Budget
from dpot.transport.geodesic import measure, wasserstein

NONE = Budget(None)


def cloud(n, d, seed, shift=0.0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


def play(method, x, y, budget=NONE, seed=123, **given):
    parties = Party("mu", x, **given), Party("nu", y)
    return method.estimate(*parties, torch.Generator().manual_seed(seed), budget), parties


X, Y = cloud(40, 6, 0), cloud(40, 6, 1, 1.0)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_direct_is_the_distance(p):
    assert play(DirectWad(p), X, Y)[0].value == pytest.approx(wasserstein(measure(X), measure(Y), p))


@pytest.mark.parametrize(("p", "t"), [(1.0, 0.5), (2.0, 0.5), (2.0, 1e-6), (1.0, 0.8), (2.0, 1 - 1e-6), (3.0, 0.9999)])
def test_constant_defence_data_are_exact_whatever_t_and_p(p, t):
    truth = wasserstein(measure(X), measure(Y), p)
    assert play(TriangleWad(p, t, gamma="ones"), X, Y)[0].value == pytest.approx(truth)
    printed = play(TriangleWad(p, t, gamma="ones", scale="printed"), X, Y)[0].value
    assert printed == pytest.approx(truth * (1 - t) / t**p)


def test_random_defence_data_are_within_the_proved_bound_and_better_for_small_t():
    truth = wasserstein(measure(X), measure(Y))
    errors = []
    for t in (0.02, 0.5):
        estimate = play(TriangleWad(2.0, t), X, Y)[0]
        errors.append(abs(estimate.value - truth))
        assert errors[-1] <= estimate.details["error_bound"]
    assert errors[0] < errors[1]


def test_given_defence_data_and_unequal_weighted_parties():
    x, y, w = cloud(7, 3, 0), cloud(11, 3, 1, 2.0), torch.rand(7).double() + 0.2
    gamma = measure(torch.zeros(1, 3, dtype=torch.float64))
    estimate, _ = play(TriangleWad(gamma="given", defence=gamma), x, y, weights=w)
    assert estimate.value == pytest.approx(wasserstein(measure(x, w), measure(y)))
    with pytest.raises(UsageError, match="given"):
        TriangleWad(gamma="given")


def test_defence_data_come_from_a_file_too(tmp_path):
    np.save(tmp_path / "gamma.npy", np.full((4, 6), 0.3, dtype=np.float32))
    method = TriangleWad(gamma="given", defence=str(tmp_path / "gamma.npy"))
    assert play(method, X, Y)[0].value == pytest.approx(wasserstein(measure(X), measure(Y)))
    with pytest.raises(UsageError, match="6 columns"):
        play(method, X[:, :5], Y[:, :5])
    (tmp_path / "text.npy").write_text("γ")
    np.save(tmp_path / "flat.npy", np.ones(6))
    np.savez(tmp_path / "several.npz", a=np.ones((2, 6)))
    for name in ("text.npy", "none.npy", "several.npz"):
        with pytest.raises(DataError, match=name):
            TriangleWad(gamma="given", defence=str(tmp_path / name))
    with pytest.raises(UsageError, match=r"flat\.npy"):
        TriangleWad(gamma="given", defence=str(tmp_path / "flat.npy"))


@pytest.mark.parametrize("method", [DirectWad(1.0), TriangleWad(1.0, 0.3), TriangleWad(2.0, 0.5, gamma="ones")])
def test_the_same_records_in_another_order_are_at_distance_zero(method):
    x = X[[0] * 5 + list(range(20))]  # some of them several times
    assert play(method, x, x.flip(0))[0].value == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 9), (9, 1)])
def test_one_record_is_enough(n, m):
    x, y = cloud(n, 2, 0), cloud(m, 2, 1, 1.0)
    truth = wasserstein(measure(x), measure(y), 1.0)
    assert truth == pytest.approx(float(torch.cdist(x, y).mean()))  # there is one plan only
    assert play(DirectWad(1.0), x, y)[0].value == pytest.approx(truth)
    assert play(TriangleWad(1.0, 0.2, gamma="ones"), x, y)[0].value == pytest.approx(truth)
    assert play(FedWad(1.0, rounds=30, t=None), x, y)[0].value >= truth - 1e-9
    private, _ = play(SketchDistance(clip=5.0), x, y, Budget(1.0, 1e-5))
    assert 0 <= private.low <= private.value <= private.high < math.inf


def test_fed_wad_converges_with_a_random_t_and_stays_above_with_a_fixed_one():
    truth = wasserstein(measure(X), measure(Y))
    moving = play(FedWad(t=None, rounds=20), X, Y)[0].value
    fixed = play(FedWad(t=0.5, rounds=20), X, Y)[0].value
    assert truth - 1e-9 <= moving <= 1.02 * truth
    assert fixed >= truth - 1e-9
    assert fixed > moving


def test_transports_are_counted_as_they_are_made(monkeypatch):
    made = []
    import dpot.transport.exact as exact

    original = exact.exact_plan
    monkeypatch.setattr(exact, "exact_plan", lambda *a, **k: made.append(1) or original(*a, **k))
    for method in (DirectWad(), TriangleWad(), FedWad(rounds=3)):
        made.clear()
        estimate, _ = play(method, X, Y)
        assert estimate.details["transports"] == len(made)


def test_nothing_leaves_a_party_but_logged_copies():
    log = Log()
    x = measure(cloud(3, 2, 0))
    sent = log.send("mu", ("nu",), "x", x)
    sent.points.zero_()
    assert float(x.points.abs().sum()) > 0
    assert log.view("server") == {}
    assert set(log.view("nu")) == {"x"}


def test_a_secret_reference_is_not_in_the_servers_view():
    log = play(TriangleWad(secret=True), X, Y)[0].log
    assert "gamma" not in log.view(SERVER)
    assert {"gamma", "eta mu", "eta nu", "t"} <= set(log.view("nu"))
    assert "gamma" in play(TriangleWad(), X, Y)[0].log.view(SERVER)


@pytest.mark.parametrize("method", [DirectWad(), FedWad(rounds=1), TriangleWad()])
def test_methods_without_noise_claim_no_epsilon(method):
    _, parties = play(method, X, Y)
    for party in parties:
        statement = party.statement()
        assert statement.epsilon is None
        assert not statement.rigorous


def test_noisy_records_keep_their_epsilon_and_have_the_stated_noise():
    budget = Budget(2.0, 1e-5, conversion="tight")
    x = torch.zeros(400, 50, dtype=torch.float64)
    estimate, parties = play(NoisyRecords(clip=1.0, noise_seed=5), x, x, budget)
    sent = estimate.log.view(SERVER)["noisy mu"].points
    assert float(sent.std()) == pytest.approx(estimate.details["noise"], rel=0.02)
    assert parties[0].statement().epsilon == pytest.approx(2.0, rel=1e-6)
    assert parties[0].statement().epsilon <= 2.0


def test_clipping_keeps_directions_and_bounds_norms():
    data = clipped(measure(torch.tensor([[3.0, 4.0], [0.3, 0.4]]).double()), 1.0)
    torch.testing.assert_close(data.points, torch.tensor([[0.6, 0.8], [0.3, 0.4]]).double())


@pytest.mark.parametrize(
    "given",
    [
        {"points": torch.zeros(0, 3)},
        {"points": torch.tensor([[0.0], [float("nan")]])},
        {"weights": torch.tensor([-1.0, 3.0])},  # |-1/2| would be more than the sensitivity allows for
        {"weights": torch.ones(3)},
        {"weights": torch.zeros(2)},
        {"labels": torch.zeros(3, dtype=torch.int64)},
    ],
)
def test_what_no_party_can_hold_is_refused(given):
    with pytest.raises(UsageError, match="mu"):
        Party("mu", **({"points": torch.zeros(2, 1)} | given))


def test_wrong_parties_are_refused():
    with pytest.raises(UsageError, match="columns"):
        play(DirectWad(), cloud(3, 2, 0), cloud(3, 3, 0))
