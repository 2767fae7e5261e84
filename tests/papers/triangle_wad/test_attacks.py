"""Every attack recovers what it says it does, from the messages alone; and what hides is not "recovered"."""

import math

import pytest
import torch

from dpot.errors import UsageError
from dpot.methods.distance.fed_wad import FedWad
from dpot.methods.distance.parties import SERVER, Party
from dpot.methods.distance.triangle_wad import TriangleWad
from dpot.papers.triangle_wad.attacks import denoising, geodesic, inversion
from dpot.papers.triangle_wad.attacks.scores import recovery
from dpot.privacy.budget import Budget
from dpot.transport.geodesic import measure


def images(n, seed):
    """Smooth values in [-1, 1]: a few random waves, cut."""
    random = torch.Generator().manual_seed(seed)
    waves = torch.linspace(0, 1, 60, dtype=torch.float64)
    amplitude = torch.randn(n, 5, generator=random, dtype=torch.float64)
    return (amplitude @ torch.stack([torch.cos(math.pi * k * waves) for k in range(5)])).clamp(-1, 1)


MU, NU = images(60, 0), images(60, 1)


def log_of(method, **given):
    parties = Party("mu", MU, **given), Party("nu", NU)
    return method.estimate(*parties, torch.Generator().manual_seed(0), Budget(None)).log


def test_constant_defence_data_are_subtracted():
    view = log_of(TriangleWad(gamma="ones", t=0.3)).view(SERVER)
    guess = inversion.subtracted(view["eta mu"].points, view["gamma"].points, view["t"])
    assert recovery(guess, MU, 1e-12).rows == 1


def test_the_papers_row_by_row_attack_fails_on_random_data_and_the_others_do_not():
    view = log_of(TriangleWad(sigma=1.0)).view(SERVER)
    eta, gamma, t = view["eta mu"], view["gamma"], view["t"]
    assert recovery(inversion.subtracted(eta.points, gamma.points, t), MU).rows < 0.1
    assert recovery(inversion.resolved(eta, gamma, t), MU, 1e-12).rows == 1
    assert recovery(inversion.range_matched(eta.points, gamma.points, t), MU, 1e-12).rows == 1


@pytest.mark.parametrize(("p", "t", "sigma"), [(1.0, 0.5, 1.0), (1.0, 0.05, 0.2), (3.0, 0.5, 1.0), (2.0, 0.99, 4.0)])
@pytest.mark.parametrize("size", [None, 30])  # fewer points of γ: each serves several records
def test_the_matching_is_found_again_whatever_the_order_and_t(p, t, sigma, size):
    view = log_of(TriangleWad(p, t, sigma=sigma, size=size)).view(SERVER)
    assert recovery(inversion.resolved(view["eta mu"], view["gamma"], t, p), MU, 1e-9).rows == 1


def test_where_messages_are_means_over_gamma_part_of_the_rows_is_recovered():
    weights = torch.rand(len(MU), generator=torch.Generator().manual_seed(0)).double() + 0.2
    view = log_of(TriangleWad(), weights=weights).view(SERVER)
    eta, gamma = view["eta mu"], view["gamma"]
    found = recovery(inversion.resolved(eta, gamma, 0.5), MU)
    assert 0.2 < found.rows < 1
    assert found.psnr > recovery(inversion.subtracted(eta.points, gamma.points, 0.5), MU).psnr + 5


def test_an_insider_finds_the_secret_reference():
    log = log_of(TriangleWad(sigma=1.0, secret=True))
    view = log.view("nu")
    gamma = inversion.gamma_of_insider(NU, view["eta nu"].points, view["t"])
    secret = view["gamma"].points
    nearest = secret[torch.cdist(gamma, secret).argmin(1)]
    assert recovery(gamma, nearest, 1e-12).rows == 1
    assert recovery(inversion.resolved(view["eta mu"], measure(gamma), view["t"]), MU, 1e-9).rows == 1


def test_fed_wads_second_party_gets_every_row():
    view = log_of(FedWad(rounds=20)).view("nu")
    assert recovery(geodesic.closed_form(view["gamma"], measure(NU)), MU, 1e-3).rows == 1
    place = view["half mu"] / (view["half mu"] + view["half nu"])
    assert recovery(geodesic.extrapolated(view["gamma"], measure(NU), place), MU, 1e-3).rows == 1
    # with a random t the middle is the wrong place, and the exchanged distances tell the right one
    view = log_of(FedWad(rounds=20, t=None)).view("nu")
    place = view["half mu"] / (view["half mu"] + view["half nu"])
    by_distances = recovery(geodesic.extrapolated(view["gamma"], measure(NU), place), MU)
    assert by_distances.psnr > recovery(geodesic.closed_form(view["gamma"], measure(NU)), MU).psnr + 10
    with pytest.raises(UsageError):
        geodesic.extrapolated(view["gamma"], measure(NU), 1.0)


def test_wiener_filter_is_the_conditional_mean_of_gaussians():
    random = torch.Generator().manual_seed(0)
    mixing = torch.randn(4, 4, generator=random, dtype=torch.float64)
    public = torch.randn(200_000, 4, generator=random, dtype=torch.float64) @ mixing + 1
    x, t, sigma = public[:2000], 0.4, 0.7
    eta = (1 - t) * x + t * sigma * torch.randn(x.shape, generator=random, dtype=torch.float64)
    error = (denoising.wiener(eta, t, sigma, public) - x).square().sum(1).mean()
    covariance = mixing.T @ mixing
    noise = (t * sigma / (1 - t)) ** 2
    best = torch.trace(
        covariance - covariance @ torch.linalg.inv(covariance + noise * torch.eye(4).double()) @ covariance
    )
    assert float(error) == pytest.approx(float(best), rel=0.1)


def test_noise_that_hides_pixels_hides_neither_membership_nor_labels():
    random = torch.Generator().manual_seed(3)
    labels = torch.arange(600) % 3
    centres = 2 * torch.randn(3, 60, generator=random, dtype=torch.float64)
    x = centres[labels] + 1.0 * torch.randn(600, 60, generator=random, dtype=torch.float64)
    eta = 0.5 * x[:100] + 0.5 * torch.randn(100, 60, generator=random, dtype=torch.float64)
    assert float((denoising.linked(eta, x, 0.5) == torch.arange(100)).double().mean()) > 0.9
    guess = denoising.wiener(eta, 0.5, 1.0, x[100:])
    assert float((denoising.inferred_labels(guess, x[100:], labels[100:]) == labels[:100]).double().mean()) > 0.95


def test_public_records_of_one_class_name_that_class():
    assert denoising.inferred_labels(MU[:3], NU, torch.full((60,), 4)).tolist() == [4, 4, 4]


def test_scores():
    exact = recovery(MU, MU)
    assert (exact.rows, exact.max_error, exact.to_dict()["psnr"]) == (1.0, 0.0, 999.0)
    assert recovery(MU + 0.2, MU).psnr == pytest.approx(20.0)
    assert recovery(MU + 0.2, MU).rows == 0
    with pytest.raises(UsageError):
        recovery(MU[:3], MU)
