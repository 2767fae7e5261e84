"""Fingerprints: the same for the same run, whatever moves or is added; every committed record fits its sheet."""

import json
import re
from collections import Counter
from functools import cache

import pytest
from omegaconf import OmegaConf

from dpot import config
from dpot import fingerprint as fingerprinting
from dpot.composing import compose_config
from dpot.config import REPOSITORY
from dpot.fingerprint import audited_code, code_fingerprint, differences, essence, fingerprint
from dpot.reporting import audits, sheets, store


def some_config(**changes):
    nodes = {
        "task": {"_target_": "dpot.tasks.generate.Generate"},
        "dataset": {"_target_": "dpot.data.digits.Digits"},
        "loss": {"_target_": "dpot.methods.generate.dp_swd.SWD", "projections": 1000, "batch": 50},
    }
    return OmegaConf.create(nodes | {"seed": 0, "output": "text", "rerun": False, "device": "cpu"} | changes)


def test_what_is_shown_does_not_change_it_but_what_is_computed_does():
    base = fingerprint(some_config())
    assert fingerprint(some_config(output="json", rerun=True, device="cuda")) == base
    assert fingerprint(some_config(seed=1)) != base
    assert fingerprint(some_config(loss={**some_config().loss, "batch": 51})) != base


def test_an_option_at_its_default_and_a_moved_class_do_not_change_it():
    base = fingerprint(some_config())
    loss = OmegaConf.to_container(some_config().loss)
    assert fingerprint(some_config(loss=loss | {"decay": False, "q": 2})) == base  # q: 2.0 by default
    assert fingerprint(some_config(loss=loss | {"_target_": "dpot.methods.dp_swd.SWD"})) == base  # where it was
    assert fingerprint(some_config(loss={k: v for k, v in loss.items() if k != "projections"})) == base
    assert fingerprint(some_config(loss=loss | {"decay": True})) != base
    assert fingerprint(some_config(loss=loss | {"_target_": "dpot.methods.generate.dp_swd.DPSWD"})) != base


def test_values_that_both_spell_out_are_compared_even_if_the_hash_leaves_them_out():
    loss = OmegaConf.to_container(some_config().loss)
    assert differences(some_config(), some_config(loss=loss | {"projections": 900, "ema": 0.5})) == ["loss.projections"]
    assert differences(some_config(), some_config(output="json")) == []


def test_component_names_are_unique():
    targets = {
        t for path in config.CONF_DIR.rglob("*.yaml") for t in re.findall(r"_target_: (dpot\S+)", path.read_text())
    }
    assert [name for name, n in Counter(t.rpartition(".")[2] for t in targets).items() if n > 1] == []


def test_comments_do_not_make_a_record_stale_but_code_does(tmp_path, monkeypatch):
    import dpot.fingerprint as module

    source = tmp_path / "dpot" / "methods"
    source.mkdir(parents=True)
    monkeypatch.setattr(module, "PACKAGE", tmp_path / "dpot")
    cfg = {"loss": {"_target_": "dpot.methods.thing.Thing"}}

    def of(text):
        (source / "thing.py").write_text(text)
        return code_fingerprint(cfg)

    base = of('"""Doc."""\nx = 1  # why\n')
    assert of('"""Other."""\n\nx = 1\n') == base
    assert of('"""Doc."""\nx = 2\n') != base


def test_the_hash_of_code_is_one_for_all_python_versions(tmp_path, monkeypatch):
    import dpot.fingerprint as module

    (tmp_path / "dpot").mkdir()
    (tmp_path / "dpot" / "thing.py").write_text("class Thing:\n    def twice(self, x=[]):\n        return 2 * x\n")
    monkeypatch.setattr(module, "PACKAGE", tmp_path / "dpot")
    assert code_fingerprint({"loss": {"_target_": "dpot.thing.Thing"}}) == "4d80ee00b8ea"  # as Python 3.11 has it


@cache
def planned(paper, kind, name, profile):
    """The composed configuration of every run of a sheet, by its row and columns."""
    sheet = sheets.load(paper, name, kind)
    small = profile in ("quick", "smoke")
    composed = {}
    for run in sheet.runs(1, False, small, profile):
        cfg = compose_config([*run.overrides, f"profile={profile}"])
        config.check(cfg)
        cfg.profile.seeds = None
        composed[run.row, run.group] = essence(cfg)
    return composed


# (kind, name, row, profile) of records that ran with other settings than their sheet has now; marked in their notes.
EXCEPTIONS = {
    *(
        ("dp_sinkhorn", *where, row, "short")
        for where in (("table", "3"), ("figure", "3"))
        for row in ("DP-MERF", "DP-Sinkhorn", "Real data", "Sinkhorn")
    ),  # CelebA: 10,000 steps instead of 40,000
    ("sketch", "table", "3", "DP-Sinkhorn", "short"),  # the same, and not yet in bfloat16
}


@pytest.mark.parametrize("paper", sorted({s.paper for s in sheets.all_sheets()}))
def test_every_committed_record_has_the_present_configuration_of_its_sheet(paper):
    wrong = []
    for sheet, home, record in store.filled(store.records(None)):
        if home.paper != paper or home.demo:
            continue
        there = planned(*home.sheet, record.config["profile"]["name"])
        (group,) = {column.overrides for column in sheet.columns if column.name in home.columns}
        wanted = there.get((home.row, group))
        mine = essence(record.config)
        if wanted is None:
            wrong.append((home, "no such run"))
        elif (wanted := wanted | {"seed": home.seed}) != mine:
            keys = [k for k in {*mine, *wanted} if mine.get(k) != wanted.get(k)]
            parts = {k: (mine.get(k), wanted.get(k)) for k in keys}
            if (*home.sheet, home.row, record.config["profile"]["name"]) not in EXCEPTIONS:
                wrong.append((home, parts))
    assert wrong == []


def test_an_audit_speaks_for_the_method_and_all_that_its_releases_pass_through(monkeypatch):
    """Its own file, base classes, gate, tape, samplers, clipping: another method's code does not count."""
    target, asked = "dpot.methods.adapt.dp_dann.DPDANN", []
    original = fingerprinting._hashed
    monkeypatch.setattr(fingerprinting, "_hashed", lambda names: asked.append(set(names)) or original(names))
    assert audited_code(target) == audited_code(target) != audited_code("dpot.methods.generate.dp_merf.DPMERF")
    (dann, _, merf) = asked
    shared = {"dpot.methods.gate", "dpot.methods.tape", "dpot.privacy.noise", "dpot.training.samplers"}
    assert shared <= dann & merf
    assert {f"dpot.methods.adapt.{name}" for name in ("dp_dann", "dann", "base")} <= dann
    assert {"dpot.training.clipped_sum", "dpot.training.sanitise", "dpot.tasks.rehearsal"} <= dann
    assert "dpot.methods.generate.dp_merf" not in dann
    assert "dpot.tasks.training" not in dann


def test_an_audit_of_other_code_is_shown_as_stale():
    """Committed audits are compared with the present code; the table says which of them are stale, and no others."""
    found = [json.loads(path.read_text()) for path in sorted((REPOSITORY / "results/audit").glob("*.json"))]
    lines = audits.page(found).splitlines()
    for one in found:
        (line,) = [line for line in lines if line.startswith(f"| {audits.called(one)} | {one['claimed_epsilon']:.3g} ")]
        assert ("(stale)" in line) == (one["code"] != audited_code(one["target"]))
    assert "(stale)" in audits.page([found[0] | {"code": "another"}])
    assert "(stale)" not in audits.page([found[0] | {"code": audited_code(found[0]["target"])}])
