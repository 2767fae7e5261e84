"""Documents: code blocks run, commands compose, links lead to files and headings.

A block says its language. Python blocks of a page run one after the other in one namespace, in a scratch directory;
`pycon` blocks are doctests; every `dpot` command is composed and checked, and the cheap ones run on embedded digits.
"""

import doctest
import functools
import re
import shlex
import sys
import types
from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from dpot import config, record
from dpot.composing import compose_config
from dpot.launch import run
from dpot.reporting import sheets

REPOSITORY = Path(__file__).resolve().parents[1]
NOTES = sorted((REPOSITORY / "results" / "notes").glob("*.md"))  # histories: their commands are of their time
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
LANGUAGES = {"python", "pycon", "sh", "yaml", "text"}
# The tasks whose first command really runs, and what makes it small.
DIGITS = ["dataset=digits", "dataset.limit=200"]
FEW = ["profile=smoke", "profile.steps=5", "profile.samples=100", "device=cpu"]
CHEAP = {
    "calibrate": [],
    "compare": [],
    "data": [],
    "distance": [*DIGITS, "task.size=50"],
    "generate": [*DIGITS, *FEW],
    "synthesize": [*FEW, "dataset.size=8", "loss.rounds=1", "privacy.epsilon=10"],
}
OTHER_PROGRAMS = {"cd", "git", "pip", "source", "python", "pytest", "bundle/dpot", ".venv/bin/dpot"}


def name_of(page):
    return str(page.relative_to(REPOSITORY))


def fenced(page):
    """Every (language, text) between two lines of backticks."""
    return re.findall(r"^```(.*)\n((?:.*\n)*?)```$", page.read_text(), flags=re.MULTILINE)


def blocks(page, *languages):
    return [text for language, text in fenced(page) if language in languages]


def prose(page):
    return re.sub(r"^```.*\n(?:.*\n)*?```$", "", page.read_text(), flags=re.MULTILINE)


def having(*languages):
    return [pytest.param(page, id=name_of(page)) for page in PAGES if blocks(page, *languages)]


def shell_commands(page):
    """The commands of a page's sh blocks, each as its words, without comments."""
    for text in blocks(page, "sh"):
        for line in text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


def dpot_commands(page):
    """The overrides of every dpot command of a page, in blocks and in the text, where it names no placeholder."""
    found = [words[1:] for words in shell_commands(page) if words[0].endswith("dpot")]
    for code in re.findall(r"`dpot ([^`]+)`", prose(page)):
        if not re.search(r"\.\.\.|…|--|\b[A-Z]{3,}\b", code):
            found.append(shlex.split(code))
    return [tuple(word for word in words if not word.startswith(("-", "hydra/"))) for words in found]


@functools.cache
def composed(overrides):
    """The checked configuration of a command; of a sweep, one with each of its values."""
    # the page on adding a method names one that is not there; it must fit where another fits
    overrides = [o.replace("class_means", "dp_merf") for o in overrides if "=" in o]
    plain, swept = [], []
    for text, parsed in zip(overrides, OverridesParser.create().parse_overrides(overrides), strict=True):
        (swept if parsed.is_sweep_override() else plain).append(text)
    values = [[f"{key}={v}" for v in text.split(",")] for key, _, text in (o.partition("=") for o in swept)]
    firsts = [each[0] for each in values]
    for choice in [firsts, *(firsts[:i] + [v] + firsts[i + 1 :] for i, each in enumerate(values) for v in each[1:])]:
        cfg = compose_config([*plain, *choice])
        config.check(cfg)
        if cfg.paper and cfg.task._target_.endswith(("Reproduce", "Compare")):
            for kind in ("table", "figure"):
                if cfg[kind] is not None:
                    sheets.load(cfg.paper, cfg[kind], kind)
    return cfg


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """An empty directory to run in, without the data and the caches of this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPOT_DATA", raising=False)
    monkeypatch.setenv("DPOT_OFFLINE", "1")
    monkeypatch.setenv("DPOT_OUTPUT", str(tmp_path / "outputs"))
    monkeypatch.setenv("DPOT_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page):
    for language, text in fenced(page):
        assert language in LANGUAGES, f"a block of no known language: {text[:60]}"
    hidden = re.findall(r"^ {4,}(?:dpot|make|from|import|>>>) .*$", prose(page), flags=re.MULTILINE)
    assert not hidden, "indented code is tested by nobody: fence it"


@pytest.mark.parametrize("page", having("python"))
def test_python_blocks_run(page, scratch):
    space = {"__name__": "document"}
    for number, source in enumerate(blocks(page, "python")):
        exec(compile(source, f"{name_of(page)}, block {number + 1}", "exec"), space)


@pytest.mark.parametrize("page", having("pycon"))
def test_sessions_give_what_they_show(page):
    for number, text in enumerate(blocks(page, "pycon")):
        example = doctest.DocTestParser().get_doctest(text, {}, name_of(page), name_of(page), number)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(example)
        assert runner.summarize(verbose=False).failed == 0
        assert example.examples


@pytest.mark.parametrize("page", having("yaml"))
def test_yaml_blocks_parse(page):
    for text in blocks(page, "yaml"):
        assert isinstance(yaml.safe_load(text), dict)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_compose(page):
    for overrides in dpot_commands(page):
        composed(overrides)


def test_commands_of_other_programs_are_there():
    targets = re.findall(r"^([\w%-]+):", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE)
    patterns = [target.replace("%", r"[\w ]+") for target in targets]
    for page in PAGES:
        for program, *arguments in shell_commands(page):
            if program == "make":
                for word in arguments:
                    assert "=" in word or any(re.fullmatch(p, word) for p in patterns), f"{page.name}: make {word}"
            elif program != "dpot":
                assert program in OTHER_PROGRAMS, f"{page.name}: {program}"
            for word in arguments:
                if word.startswith(("scripts/", "tests/")):
                    assert (REPOSITORY / word).exists(), f"{page.name}: {word}"


def cheap_commands():
    """The first command of each cheap task, on the front page or after it."""
    seen = set()
    for page in PAGES:
        for words in shell_commands(page):
            task = next((w.removeprefix("task=") for w in words if w.startswith("task=")), "generate")
            if words[0] == "dpot" and "-m" not in words and task in CHEAP and task not in seen:
                seen.add(task)
                yield pytest.param(tuple(words[1:]), task, id=f"{name_of(page)}:{task}")
    assert seen == set(CHEAP), "a task that used to be shown is shown no more"


@pytest.mark.parametrize(("words", "task"), cheap_commands())
def test_cheap_commands_run(words, task, scratch):
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images[:600], digits.target, strict=False)):
        folder = scratch / "photos" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15).astype("uint8")).save(folder / f"{number}.png")
    cfg = compose_config([*words, *CHEAP[task]])
    assert run(cfg).data


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The configuration of a task with the method of docs/add_a_method.md as its loss."""
    page = REPOSITORY / "docs" / "add_a_method.md"
    source, settings = blocks(page, "python")[0], blocks(page, "yaml")[0]
    body = source.split("class ClassMeans")[1]
    assert len([line for line in body.splitlines() if line.strip()]) <= 35  # "30 lines", signature and docstring apart
    module = types.ModuleType("dpot.methods.generate.class_means")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source, "class_means.py", "exec"), module.__dict__)
    monkeypatch.setattr(record, "code_fingerprint", lambda cfg: "as in the document")  # there is no file to hash
    known = config.known_targets() | {f"{module.__name__}.ClassMeans"}
    monkeypatch.setattr(config, "known_targets", lambda: known)  # as if the file of conf/ were there

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
    cfg = example("task=audit", "task.repetitions=2000", "task.pairs=6", "task.nulls=2")
    cfg.loss.norm_bound = 1
    data = run(cfg).data
    assert data["name"] == "class_means"
    assert data["lower_bound"] <= data["claimed_epsilon"] <= 3
    # two images of norm 1 that have nothing in common are √2 apart: the bound is attained
    assert data["parts"]["sensitivity"]["actual"] == pytest.approx(1, rel=1e-3)
    assert data["passed"]


def test_the_example_method_runs_as_it_stands(example):
    answer = run(example("task=generate", "dataset=digits", "profile=smoke", "privacy=eps10")).data
    assert answer["privacy"]["rigorous"]
    assert answer["privacy"]["entries"][0]["source"] == "dpot/methods/generate/class_means.py"
    assert answer["privacy"]["releases"] == 1
    assert 9 < answer["privacy"]["epsilon"] <= 10
    history = answer["metrics"]["training"]
    assert history["steps"] == 20


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *NOTES], ids=name_of)
def test_links_lead_to_files_and_headings(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"^[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_histories_stay_in_the_notes(page):
    """A commit id in a document is a trial log on its way in: those belong to results/notes/."""
    assert not re.findall(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7}\b", prose(page))
