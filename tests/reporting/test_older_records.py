"""No committed record claims a proof that the documents have taken back (docs/privacy.md, older records)."""

import pytest

from dpot.privacy.statement import Statement
from dpot.reporting import store

CORRECTED = "2026-11-16T19:53"  # noise on gradients in double precision, directions that nobody knows beforehand
CONCERNED = ("DPSWD", "DPSWDAdaptation", "DPSinkhorn", "DPSGD", "DPDANN")


@pytest.fixture(scope="module")
def concerned():
    stating = [record for record in store.records(None) if "entries" in record.privacy]
    found = [record for record in stating if record.config["loss"]["_target_"].endswith(CONCERNED)]
    assert len(found) > 400
    return found


def test_older_records_say_that_they_are_not_rigorous(concerned):
    for record in concerned:
        parts = (record.metrics.get("training") or {}).get("earlier") or []
        older = record.provenance["finished"] < CORRECTED or any(part["code"] is None for part in parts)
        assert not (older and record.privacy["rigorous"]), record.homes


def test_a_record_without_proof_has_a_reason_and_a_headline_that_says_so(concerned):
    for record in concerned:
        statement = Statement.from_dict(record.privacy)
        if statement.verdict == "no" and statement.epsilon is not None:
            assert statement.reasons
            assert "without a complete proof" in record.privacy["headline"]
