"""TriangleWad's claims come out as they should, and the checks can come out otherwise."""

import pytest
import torch

from dpot.claims import triangle_wad
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


@pytest.mark.parametrize("claim", triangle_wad.CLAIMS, ids=lambda c: c.name)
def test_verdicts(claim):
    finding = claim.check()
    assert finding.verdict == EXPECTED[claim.name], finding.evidence
    assert any(ch.isdigit() for ch in finding.evidence)


def test_theorem_1_would_hold_if_the_error_fell_fast_enough(monkeypatch):
    direct = triangle_wad.wasserstein(measure(triangle_wad.X), measure(triangle_wad.Y))

    def through(gamma, t, p):
        return (1 - t) * (direct + 0.1 * float(gamma.points.square().mean()))

    monkeypatch.setattr(triangle_wad, "_through", through)
    assert triangle_wad.theorem_1().verdict == "holds"


def test_hiding_would_be_seen(monkeypatch):
    monkeypatch.setattr(triangle_wad, "resolved", lambda eta, gamma, t: torch.zeros_like(eta.points))
    assert triangle_wad.matching_is_hidden().verdict == "holds"
    assert triangle_wad.secret_reference().verdict == "holds"
