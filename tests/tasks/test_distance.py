"""Distances and attacks from the command line, on embedded digits."""

import json
from pathlib import Path

import pytest

from dpot.composing import compose_config
from dpot.errors import UsageError
from dpot.launch import run
from dpot.reporting import published, sheets
from dpot.reporting.verdicts import verdict

SMOKE = ["dataset=digits", "profile=smoke"]


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """What a task answers, in this process: a new one takes longer than the task."""
    monkeypatch.delenv("DPOT_DATA", raising=False)
    return lambda *arguments: run(compose_config([*arguments, f"output_root={tmp_path}", "device=cpu"])).data


def test_a_distance_leaves_a_record_with_its_messages(dpot):
    arguments = ["task=distance", *SMOKE, "loss=triangle_wad", "privacy=none", "loss.gamma=ones", "output=json"]
    record = json.loads(dpot(*arguments, "task.noise_rows=[4]", "task.noise_std=[3]", check=True).stdout)
    assert set(record) == {"config", "metrics", "privacy", "provenance", "files"}
    metrics = record["metrics"]
    assert metrics["distance"]["mean"] == pytest.approx(metrics["direct_distance"]["mean"])
    assert metrics["distance_1"]["mean"] > metrics["distance"]["mean"]
    assert metrics["gap"]["mean"] < 1e-9
    assert [m["what"] for m in metrics["messages"]] == ["gamma", "t", "eta mu", "eta nu"]
    assert record["privacy"]["epsilon"] is None
    assert record["privacy"]["headline"].startswith("No ε")


def test_a_private_distance_states_its_epsilon_and_bracket(answer):
    record = answer("task=distance", *SMOKE, "loss=sketch", "privacy=eps1", "task.second_size=30")
    metrics = record["metrics"]
    assert metrics["low"] <= metrics["distance"]["mean"] <= metrics["high"]
    assert metrics["points"] == [40, 30]
    assert record["privacy"]["rigorous"]
    assert any("exact distance" in what for what in record["privacy"]["not_covered"])
    assert all(0.99 < epsilon <= 1 for epsilon in record["privacy"]["parties"].values())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["loss=dp_swd"], ["does not work with DPSWD", "distance/sketch"]),
        (["loss=triangle_wad"], ["privacy=none"]),
        (["loss=sketch", "privacy=none"], ["needs a budget"]),
        (["loss=triangle_wad", "privacy=none", "loss.t=1"], ["loss.t", "less than 1"]),
        (["loss=fed_wad", "privacy=none", "task.noise_rows=[3]"], ["noise_std"]),
        (["loss=sketch", "privacy=eps1", "task.statistics=global"], ["no ε holds", "label_scale"]),
        (["loss=noisy_records", "privacy=eps1", "task.statistics=class"], ["no ε holds"]),
        (["loss=sketch", "privacy=eps1", "task.draws=2"], ["releases the same data again"]),
    ],
)
def test_wrong_input_is_one_line(answer, arguments, words):
    with pytest.raises(UsageError) as refused:
        answer("task=distance", *SMOKE, *arguments)
    assert all(word in str(refused.value) for word in words), refused.value
    assert "\n" not in str(refused.value)


def test_attacks_are_reported_with_pictures(answer):
    record = answer("task=attack", *SMOKE, "task.rounds=5")
    rows = {(r["protocol"], r["attack"]): r for r in record["metrics"]["attacks"]}
    assert rows["TriangleWad, γ = 1", "subtract γ"]["rows"] == 1
    assert rows["TriangleWad, random γ, public", "solve the transport again"]["rows"] == 1
    assert rows["TriangleWad, random γ, public", "subtract γ row by row (the paper's)"]["rows"] < 0.2
    assert Path(record["files"]["pictures"]).read_bytes().startswith(b"\x89PNG")


def test_an_attack_needs_public_records(answer):
    with pytest.raises(UsageError, match=r"task\.public"):
        answer("task=attack", *SMOKE, "task.public=1")


def test_the_table_has_its_published_rows():
    sheet, table = sheets.load("triangle_wad", 1), published.table("triangle_wad", 1)
    columns = {cell.column for cell in table.cells}
    assert {c.name for c in sheet.columns if not c.name.endswith("time/direct")} <= columns
    assert {cell.row for cell in table.cells} <= set(sheet.rows)


@pytest.mark.parametrize(("ours", "said"), [(102.9, "within"), (97.1, "within"), (103.1, "outside")])
def test_a_distance_is_held_to_three_percent(ours, said):
    assert verdict("distance", 100.0, ours, True) == said
    assert verdict("distance", 100.0, ours, False) == "not comparable"


@pytest.mark.parametrize(("ours", "said"), [(1e-15, "within"), (0.004, "within"), (0.02, "outside")])
def test_a_gap_of_nothing_allows_for_rounding(ours, said):
    assert verdict("gap", 0.0, ours, True) == said
