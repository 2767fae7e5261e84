"""DP-Sinkhorn's accounting, against the numbers of the paper and of the libraries."""

import pytest

from dpot.papers.dp_sinkhorn.accounting import RUNS, Training, epsilon_of, noise_for


@pytest.mark.parametrize(
    ("run", "theirs", "modern", "pld"),
    [(RUNS[0], 10.0003, 9.160, 8.533), (RUNS[2], 10.005, 9.255, 8.676)],
)
def test_dp_sinkhorn_runs(run: Training, theirs: float, modern: float, pld: float) -> None:
    row = epsilon_of(run)
    assert row["paper_dp_sinkhorn"] == pytest.approx(theirs, abs=5e-4)
    assert row["dpot_rdp_tight"] == pytest.approx(modern, rel=1e-3)
    assert row["dp_accounting_rdp"] == pytest.approx(modern, rel=1e-3)
    assert row["dp_accounting_pld"] == pytest.approx(pld, rel=2e-3)


def test_dp_noise_for() -> None:
    row = noise_for(480_000, 1.0)
    assert row["paper_dp_sinkhorn"] == pytest.approx(2.919, rel=2e-3)
    assert row["dpot_rdp_tight"] == pytest.approx(2.440, rel=2e-3)
    assert row["dp_accounting_pld"] == pytest.approx(2.266, rel=2e-3)
