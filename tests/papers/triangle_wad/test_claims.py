"""TriangleWad's claims come out as they should, and the checks can come out otherwise."""

import pytest
import torch

from dpot.papers.triangle_wad import claims
from dpot.transport.geodesic import measure

EXPECTED = {
    "Theorem 1": "false",
    "Theorem 1, corrected": "holds",
    "Algorithm": "conditional",
    "Table 1, ones": "false",
    "Attack analysis": "false",
    "Attack analysis, secret γ": "false",
    "Complexity": "conditional",
    "Table 1, FedWad": "false",
}


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda c: c.name)
def test_verdicts(claim):
    finding = claim.check()
    assert finding.verdict == EXPECTED[claim.name], finding.evidence
    assert any(ch.isdigit() for ch in finding.evidence)


def test_theorem_1_would_hold_if_the_error_fell_fast_enough(monkeypatch):
    direct = claims.wasserstein(measure(claims.X), measure(claims.Y))

    def through(gamma, t, p):
        return (1 - t) * (direct + 0.1 * float(gamma.points.square().mean()))

    monkeypatch.setattr(claims, "_through", through)
    assert claims.theorem_1().verdict == "holds"


def test_hiding_would_be_seen(monkeypatch):
    monkeypatch.setattr(claims, "resolved", lambda eta, gamma, t: torch.zeros_like(eta.points))
    assert claims.matching_is_hidden().verdict == "holds"
    assert claims.secret_reference().verdict == "holds"
