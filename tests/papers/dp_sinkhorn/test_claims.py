"""DP-Sinkhorn's claims: verdicts known from elsewhere (closed forms, other accountants, the paper's own tables)."""

import pytest

from dpot.papers.dp_sinkhorn import claims

KNOWN = {
    claims.sensitivity_of_clipped_rows: ("holds", "7.0711"),
    claims.runs_stay_below_epsilon_10: ("holds", "9.160 by ours"),
    claims.fresh_rows_take_bias: ("holds", "p = 1"),
}


@pytest.mark.parametrize("check", KNOWN, ids=lambda check: check.__name__)
def test_verdicts_agree_with_what_is_known(check):
    verdict, words = KNOWN[check]
    finding = check()
    assert finding.verdict == verdict
    assert words in finding.evidence
