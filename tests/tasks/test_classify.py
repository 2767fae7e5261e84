"""task=classify end to end, with the real configuration shrunk."""

import json

import pytest

from dpot.composing import compose_config
from dpot.errors import PrivacyError, UsageError
from dpot.launch import run
from dpot.reporting import published, sheets

SMALL = ["task=classify", "dataset=digits", "profile=smoke", "device=cpu", "profile.steps=6", "profile.records=240"]
SMALL += ["task.batch=24", "task.network.filters=4"]


def classify(tmp_path, *overrides):
    return run(compose_config([*SMALL, f"output_root={tmp_path}", *overrides]))


def test_dp_sgd_record_has_accuracy_and_budgets_of_every_epoch(tmp_path):
    answer = classify(tmp_path, "loss=dp_sgd", "privacy=eps1", "privacy.epsilon=3", "profile.steps=12")
    record = answer.data
    assert set(record) == {"config", "metrics", "privacy", "provenance", "files"}
    assert record["privacy"]["rigorous"], record["privacy"]["reasons"]
    assert record["privacy"]["epsilon"] <= 3
    assert record["privacy"]["releases"] == 12
    epochs = record["metrics"]["epochs"]
    assert [e["step"] for e in epochs] == [10, 12]
    assert all({"accuracy", "epsilon", "moments", "wasserstein"} <= set(e) for e in epochs)
    assert epochs[-1]["epsilon"] == pytest.approx(record["privacy"]["epsilon"])
    assert record["metrics"]["accuracy"] == epochs[-1]["accuracy"]
    again = classify(tmp_path, "loss=dp_sgd", "privacy=eps1", "privacy.epsilon=3", "profile.steps=12")
    assert again.data == json.loads(json.dumps(record))


def test_paper_mode_says_that_there_is_no_guarantee(tmp_path):
    answer = classify(tmp_path, "loss=wdp_sgd", "privacy=wdp_paper")
    record = answer.data
    assert record["privacy"]["epsilon"] is None
    assert not record["privacy"]["rigorous"]
    assert record["metrics"]["floor"] == pytest.approx(0.7196, rel=1e-3)
    assert record["metrics"]["wasserstein"] > record["metrics"]["floor"]
    assert {b["kind"] for b in record["metrics"]["budgets"]} == {"wasserstein", "bayesian"}
    assert all("reason" in b["beside"] and b["beside"]["epsilon"] == {} for b in record["metrics"]["budgets"])
    with open(record["files"]["statement"]) as page:
        assert "no (ε, δ) guarantee exists" in page.read()


def test_plain_sgd_learns(tmp_path):
    settings = ("loss=sgd", "privacy=none", "profile.steps=60", "profile.records=1000", "task.learning_rate=0.05")
    assert classify(tmp_path, *settings).data["metrics"]["accuracy"] > 50


@pytest.mark.parametrize(
    ("overrides", "error", "words"),
    [
        (["loss=wdp_sgd", "privacy=eps1"], PrivacyError, "privacy=wdp_paper"),
        (["loss=dp_sgd", "privacy=none"], UsageError, "needs a budget"),
        (["loss=sgd", "privacy=eps1"], UsageError, "privacy=none"),
        (["loss=dp_swd", "privacy=eps1"], UsageError, "classify/dp_sgd, classify/sgd, classify/wdp_sgd"),
        (["loss=wdp_sgd", "privacy=wdp_paper", "loss.left_out=2"], UsageError, "left_out"),
    ],
)
def test_impossible_combinations_are_refused_in_one_line(tmp_path, overrides, error, words):
    with pytest.raises(error, match=words) as caught:
        classify(tmp_path, *overrides)
    assert "\n" not in str(caught.value)


def test_table_2_sheet_and_published_numbers_fit_together():
    sheet, table = sheets.load("wdp", 2), published.table("wdp", 2)
    columns = {column.name for column in sheet.columns}
    assert {c.column for c in table.cells} - columns == {"DP P(A)", "BDP P(A)", "WDP P(A)"}
    assert {c.row for c in table.cells} == set(sheet.rows)
    assert len(table.cells) == 32
    runs = list(sheet.runs(seeds=1))
    for planned in [*(r for r in runs if r.row == "MNIST"), *(r for r in runs if r.group == runs[0].group)][1:]:
        compose_config([*planned.overrides, "profile=paper"])


def test_a_private_method_without_a_budget_must_not_end_with_an_empty_ledger(tmp_path, monkeypatch):
    monkeypatch.setattr("dpot.privacy.ledger.Ledger.charge", lambda self, *event, **terms: None)
    with pytest.raises(PrivacyError, match="nothing in the ledger"):
        classify(tmp_path, "loss=wdp_sgd", "privacy=wdp_paper")
    assert not list(tmp_path.rglob("record.json"))
