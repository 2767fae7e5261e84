"""Documents: the example method runs as it stands, links lead to files, commands name configurations that exist."""

import re
import sys
import types
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from dpot import record
from dpot.composing import compose_config
from dpot.config import CONF_DIR, in_family, options
from dpot.launch import run

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), flags=re.DOTALL)


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The configuration of a task with the method of docs/add_a_method.md as its loss."""
    page = REPOSITORY / "docs" / "add_a_method.md"
    (source,), (settings,) = blocks(page, "python"), blocks(page, "yaml")
    body = source.split("class ClassMeans")[1]
    assert len([line for line in body.splitlines() if line.strip()]) <= 35  # "30 lines", signature and docstring apart
    module = types.ModuleType("dpot.methods.generate.class_means")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source, "class_means.py", "exec"), module.__dict__)
    monkeypatch.setattr(record, "code_fingerprint", lambda cfg: "as in the document")  # there is no file to hash

    def composed(*overrides):
        cfg = compose_config([*overrides, "device=cpu", f"output_root={tmp_path}"])
        OmegaConf.set_struct(cfg, False)
        cfg.loss = OmegaConf.create(settings)
        return cfg

    return composed


def test_the_example_training_runs_as_it_stands(tmp_path, monkeypatch):
    (source,) = blocks(REPOSITORY / "docs" / "training.md", "python")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(source, "training.md", "exec"), names)
    assert names["outcome"].steps == 60
    (entry,) = names["gate"].ledger.entries
    assert (entry.count, str(entry.sampler)) == (60, "poisson")
    assert 0 < names["gate"].ledger.epsilon() <= 10
    assert not list(tmp_path.rglob("*.dpot"))  # discarded


def test_the_example_method_can_be_audited_as_it_stands(example):
    answer = run(example("task=audit", "task.canaries=120", "privacy.epsilon=2", "task.replays=3"))
    data, controls = answer.data, answer.data["controls"]
    assert (data["method"], data["canaries"], data["guesses"]) == ("class_means", 120, 60)
    assert data["lower_bound"] <= data["claimed_epsilon"] <= 2
    assert controls["positive"]["lower_bound"] > data["claimed_epsilon"]
    assert controls["null"]["passed"]
    # two images of norm 10 that have nothing in common are √2·10 apart: the bound is attained
    assert controls["sensitivity"]["declared"] == pytest.approx(2**0.5 * 10, rel=0.03)
    assert controls["sensitivity"]["actual"] == pytest.approx(2**0.5 * 10, rel=1e-3)
    assert data["passed"]


def test_the_example_method_runs_as_it_stands(example):
    answer = run(example("task=generate", "dataset=digits", "profile=smoke", "privacy=eps10")).data
    assert answer["privacy"]["rigorous"]
    assert answer["privacy"]["entries"][0]["source"] == "dpot/methods/generate/class_means.py"
    assert answer["privacy"]["releases"] == 1
    assert 9 < answer["privacy"]["epsilon"] <= 10
    history = answer["metrics"]["training"]
    assert history["steps"] == 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_to_files(page):
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        if not re.match(r"^[a-z]+:", link):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_name_choices_that_exist(page):
    groups = [path.name for path in CONF_DIR.iterdir() if path.is_dir()]
    for command in re.findall(r"\bdpot (?:-m )?(task=[^\n`]*)", page.read_text()):
        for group, values in re.findall(rf"\b({'|'.join(groups)})=([\w/,]+)", command):
            for value in values.split(","):
                known = {*options(group), *(f"{p.parent.name}/{p.stem}" for p in (CONF_DIR / group).glob("*/*.yaml"))}
                task = command.partition(" ")[0]
                (chosen,) = [o for o in in_family([task, f"{group}={value}"]) if o != task] or [task]
                known |= {"null", "class_means"}
                assert chosen.partition("=")[2] in known, f"{page.name}: {group}={value}"
