"""task=claims: every module of claims is collected, every check gives a verdict with numbers."""

import json
import re
from typing import get_args

import pytest
import torch

from dpot.claims import dp_sinkhorn, dp_swd
from dpot.claims.base import Verdict
from dpot.composing import compose_config
from dpot.errors import UsageError
from dpot.launch import run
from dpot.tasks.claims import collected

# what is known from elsewhere (closed forms, other accountants, the papers' own tables)
KNOWN = {
    dp_swd.projections_follow_a_beta_law: ("holds", "d = 784"),
    dp_swd.central_limit_is_a_bound: ("false", "exceeded"),
    dp_swd.printed_sigmas_follow_from_equation_6: ("false", "7 of 8"),
    dp_swd.printed_sigmas_give_epsilon_10: ("conditional", "MNIST c 8.11"),
    dp_swd.smoothed_distance_is_a_metric: ("holds", "0 violations"),
    dp_sinkhorn.sensitivity_of_clipped_rows: ("holds", "7.0711"),
    dp_sinkhorn.runs_stay_below_epsilon_10: ("holds", "9.160 by ours"),
    dp_sinkhorn.fresh_rows_take_bias: ("holds", "p = 1"),
}


@pytest.mark.parametrize("check", KNOWN, ids=lambda check: check.__name__)
def test_verdicts_agree_with_what_is_known(check):
    verdict, words = KNOWN[check]
    finding = check()
    assert finding.verdict == verdict
    assert words in finding.evidence


def test_a_check_can_come_out_otherwise(monkeypatch):
    """With directions that are not uniform, the law of the projections is not Beta."""
    monkeypatch.setattr(dp_swd, "uniform_directions", lambda k, d, random: torch.eye(d).repeat(k // d + 1, 1)[:k])
    assert dp_swd.projections_follow_a_beta_law().verdict == "false"


def test_every_paper_is_collected_and_checks_run_from_the_command(tmp_path):
    papers = collected()
    assert {"dp_swd", "dp_sinkhorn"} <= set(papers)
    answer = run(compose_config(["task=claims", "paper=dp_swd", f"output_root={tmp_path}"]))
    claims = answer.data["claims"]
    assert len(claims) == len(papers["dp_swd"])
    for claim in claims:
        assert {"paper", "claim", "verdict", "evidence"} <= set(claim)
        assert claim["verdict"] in get_args(Verdict)
        assert re.search(r"\d", claim["evidence"])
    kept = json.loads((tmp_path / "claims" / "dp_swd.json").read_text())
    assert kept["claims"] == claims
    assert kept["provenance"]["commit"]


def test_an_unknown_paper_is_answered_with_the_known():
    with pytest.raises(UsageError, match="dp_swd"):
        run(compose_config(["task=claims", "paper=nobody"]))
