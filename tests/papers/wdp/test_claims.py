"""The claims about WDP: verdicts, and the numbers in the evidence, as the reference computation found them."""

import numpy as np
import ot
import pytest

from dpot.papers.wdp.claims import CLAIMS, distance, line_distance, mixture_distance

EXPECTED = {
    "Proposition 1": ("holds", ["0 violations in 2000"]),
    "Proposition 2": ("holds", ["0 violations in 2000"]),
    "Proposition 3": ("holds", ["0 violations in 2000"]),
    "Proposition 4": ("holds", ["0 violations in 2000"]),
    "Proposition 5": ("conditional", ["1.414 > 1"]),
    "Proposition 6": ("conditional", ["(0.01, 0)", "joint distance 10"]),
    "Proposition 7": ("false", ["claimed 0.4289, true 1", "claimed 0.4918, true 10"]),
    "Proposition 8": ("false", ["claimed 0.5, true 1", "claimed 0.1, true 1", "0.5359"]),
    "Proposition 9": ("false", ["claimed 0.9269, true 1"]),
    "Proposition 10": ("false", ["claimed 0.7071, true 1"]),
    "Proposition 11": ("false", ["claimed ε=2, true 4"]),
    "Proposition 12": ("false", ["0.01 into 10"]),
    "Proposition 13": ("holds", ["0 violations"]),
    "Theorem 1": ("false", ["true 0.5", "4.5e-05"]),
    "Theorem 2": ("false", ["1.128", "0.0397", "true 0.73", "3.25", "0.82"]),
    "Theorem 3": ("false", ["4296", "43.67", "0.7811"]),
    "Lemma 1": ("holds", ["quadrature 9.0625, lemma 9.0625"]),
    "WDP": ("false", ["W = 0.01", "total variation 1"]),
    "Figures 2, 4": ("false", ["84267", "8630"]),
    "Table 2": ("false", ["0.7196", "63.49 against 0.76", "12.99 against 0.52", "8.103 against 0.4"]),
    "Table 2, P(A)": (
        "false",
        ["gives 0.948, printed 0.623", "gives 0.993, printed 0.999", "gives 0.900, printed 0.898"],
    ),
    "Instead of 7, 8": ("holds", ["off by at most"]),
    "Instead of 11": ("holds", ["0 violations"]),
}


def test_every_row_is_there_once():
    assert [claim.name for claim in CLAIMS] == list(EXPECTED)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.name)
def test_verdict_and_evidence(claim):
    finding = claim.check()
    verdict, numbers = EXPECTED[claim.name]
    assert finding.verdict == verdict, finding.evidence
    for number in numbers:
        assert number in finding.evidence


def test_distances_against_pot():
    rng = np.random.default_rng(0)
    for order in (1.0, 2.0, 3.0):
        x, y = rng.normal(size=(2, 7, 2))
        costs = ot.dist(x, y, "euclidean") ** order
        assert distance(x, y, order) == pytest.approx(ot.emd2(ot.unif(7), ot.unif(7), costs) ** (1 / order))
    u, v = np.sort(rng.normal(size=(2, 200_000)))
    ours = line_distance(lambda p: u[(p * len(u)).astype(int)], lambda p: v[(p * len(v)).astype(int)], 2)
    assert ours == pytest.approx(float(ot.wasserstein_1d(u, v, p=2)) ** 0.5, rel=1e-6)


def test_mixture_distance_at_the_ends():
    """No record sampled: equal laws. Always sampled: a translate."""
    assert mixture_distance(0.0, 1.0, 0.3, 2) == pytest.approx(0, abs=1e-4)
    assert mixture_distance(1.0, 1.0, 0.3, 2) == pytest.approx(1, rel=1e-3)
