"""TriangleWad's figures on embedded digits, and the parties they compare."""

from pathlib import Path

import pytest
import torch

from dpot.composing import compose_config
from dpot.launch import run
from dpot.papers.triangle_wad.clouds import Side


def test_figure_4_keeps_its_bound_and_says_which_data_it_was_made_of(tmp_path, monkeypatch):
    monkeypatch.delenv("DPOT_DATA", raising=False)
    overrides = ["task=reproduce", "paper=triangle_wad", "figure=4", "profile=smoke", f"output_root={tmp_path}"]
    figure = run(compose_config([*overrides, "device=cpu"])).data
    for row in figure["rows"]:
        assert row["constant γ p=2"] == pytest.approx(1)
        assert abs(row["right p=2"] - 1) <= row["bound p=2"] - 1 + 1e-9
    assert not figure["comparable"]
    assert figure["provenance"]["data"][0]["name"] == "digits"
    assert [Path(file).name for file in figure["files"]] == ["computed.png", "computed.md", "computed.json"]
    assert all(Path(file).parent == tmp_path / "computed/triangle_wad/figure_4" for file in figure["files"])
    assert "](computed.png)" in Path(figure["files"][1]).read_text()


def test_noisy_rows_follow_their_law():
    side = Side(torch.zeros(2000, 20, dtype=torch.float64), None, 0)
    random = torch.Generator().manual_seed(0)
    normal = side.with_noise(1000, 5.0, random).x
    assert float(normal[1000:].abs().sum()) == 0
    assert float(normal[:1000].mean()) == pytest.approx(2, abs=0.2)
    assert float(normal[:1000].std()) == pytest.approx(5, rel=0.03)
