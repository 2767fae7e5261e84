"""task=claims: the claims of every paper are collected, every check gives a verdict with numbers."""

import json
import re
from typing import get_args

import pytest

from dpot.composing import compose_config
from dpot.errors import UsageError
from dpot.launch import run
from dpot.papers.claims import Verdict
from dpot.tasks.claims import collected


def test_every_paper_is_collected_and_checks_run_from_the_command(tmp_path):
    papers = collected()
    assert set(papers) == {"dp_swd", "dp_sinkhorn", "wdp", "triangle_wad"}
    assert all(papers.values())
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
