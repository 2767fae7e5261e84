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
