"""DP-SWD's claims: verdicts that are known from elsewhere (closed forms, other accountants, the paper's own tables)."""

import pytest
import torch

from dpot.papers.dp_swd import claims

KNOWN = {
    claims.projections_follow_a_beta_law: ("holds", "d = 784"),
    claims.central_limit_is_a_bound: ("false", "exceeded"),
    claims.printed_sigmas_follow_from_equation_6: ("false", "7 of 8"),
    claims.printed_sigmas_give_epsilon_10: ("conditional", "MNIST c 8.11"),
    claims.smoothed_distance_is_a_metric: ("holds", "0 violations"),
    claims.samples_are_diverse: ("false", "MNIST: SWD 0.181, DP-SWD-c 0.008"),
}


@pytest.mark.parametrize("check", KNOWN, ids=lambda check: check.__name__)
def test_verdicts_agree_with_what_is_known(check):
    verdict, words = KNOWN[check]
    finding = check()
    assert finding.verdict == verdict
    assert words in finding.evidence


def test_a_check_can_come_out_otherwise(monkeypatch):
    """With directions that are not uniform, the law of the projections is not Beta."""
    monkeypatch.setattr(claims, "uniform_directions", lambda k, d, random: torch.eye(d).repeat(k // d + 1, 1)[:k])
    assert claims.projections_follow_a_beta_law().verdict == "false"


def test_the_spread_within_classes_of_a_grid_is_that_of_its_images():
    """Class by class, gaps left out: images of class c have deviation c/20 in every pixel."""
    random = torch.Generator().manual_seed(0)
    noise = torch.randn(10, 10, 28, 28, generator=random).double()
    noise = (noise - noise.mean(1, keepdim=True)) / noise.std(1, keepdim=True)
    images = 0.5 + noise * torch.arange(10).view(10, 1, 1, 1) / 20
    grid = torch.ones(302, 302, dtype=torch.float64)
    for row in range(10):
        for column in range(10):
            top, left = 2 + 30 * row, 2 + 30 * column
            grid[top : top + 28, left : left + 28] = images[row, column]
    assert claims.within_classes(grid.numpy()) == pytest.approx(sum(range(10)) / 200)


def test_samples_like_those_without_noise_would_be_called_diverse(monkeypatch):
    monkeypatch.setattr(claims, "within_classes", lambda grid: 0.2)
    assert claims.samples_are_diverse().verdict == "holds"
