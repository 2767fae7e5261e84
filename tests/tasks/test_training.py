"""The skeleton of the tasks that learn: what they refuse before they read, and what a killed run may leave."""

import re

import numpy as np
import pytest
from omegaconf import OmegaConf

from dpot import config
from dpot.composing import compose_config
from dpot.config import CONF_DIR
from dpot.errors import UsageError
from dpot.launch import run
from dpot.privacy.noise import NoiseSource
from dpot.record import Run
from dpot.tasks import training
from dpot.tasks.classify import Classify
from dpot.tasks.training import TrainingTask, losses_of

REPOSITORY = CONF_DIR.parent
LOSSES = sorted(
    path.relative_to(CONF_DIR / "loss").with_suffix("").as_posix() for path in CONF_DIR.glob("loss/**/*.yaml")
)
PRIVACY = ("eps10", "none")
DIGITS = ["dataset=digits", "profile=smoke", "device=cpu"]
CLASSIFY = ["task=classify", *DIGITS, "profile.records=240", "profile.steps=4", "task.batch=24"]
CLASSIFY += ["task.network.filters=2"]
RUNS = {
    "generate": ["task=generate", *DIGITS, "loss=dp_merf", "loss.features=20", "loss.batch=50", "classifier.kinds=[]"],
    "classify": CLASSIFY,
    "synthesize": ["task=synthesize", *DIGITS, "dataset.size=8", "generator.width=4", "task.utility=false"],
    "adapt": ["task=adapt", "dataset=dslr_to_webcam", *DIGITS[1:], "loss.batch=16", "task.picture=none"],
}
RUNS["synthesize"] += ["profile.steps=2", "loss.rounds=1", "privacy.epsilon=10"]


@pytest.fixture(scope="module")
def nodes():
    """Every task and loss of conf/, composed."""
    tasks = {name: compose_config([f"task={name}"]) for name in config.options("task")}
    losses = {name: compose_config([f"loss={name}"]).loss for name in LOSSES}
    privacy = {name: compose_config([f"privacy={name}"]).privacy for name in PRIVACY}
    return tasks, losses, privacy


def test_every_task_runs_a_loss_or_refuses_it_in_one_line_with_the_choices(nodes):
    tasks, losses, privacy = nodes
    learning = set()
    for task, cfg in tasks.items():
        made = config.instantiate(cfg.task, "task")
        if not isinstance(made, TrainingTask):
            continue
        learning.add(task)
        for loss, node in losses.items():
            refusals = []
            for terms in privacy.values():
                own = cfg.copy()
                OmegaConf.set_struct(own, False)
                own.loss, own.privacy = node, terms
                try:
                    made.check(own)
                except UsageError as error:
                    refusals.append(str(error))
            assert not any("\n" in refusal for refusal in refusals)
            if loss in losses_of(made.name):
                assert len(refusals) < len(privacy), (task, loss, refusals)
                assert all(refusal.startswith("privacy") for refusal in refusals)
            else:
                assert len(refusals) == len(privacy), (task, loss)
                choices = re.findall(r"choose loss= from (.*)$", refusals[0])[0].split(", ")
                assert tuple(choices) == losses_of(made.name)
                assert choices
    assert learning == {"generate", "adapt", "classify", "classify_colour", "distance", "synthesize"}
    assert {loss for task in learning for loss in losses_of(task.partition("_")[0])} == set(LOSSES)


def test_no_other_task_but_the_audit_looks_at_the_loss():
    readers = {path.stem for path in (REPOSITORY / "dpot/tasks").glob("*.py") if "cfg.loss" in path.read_text()}
    assert readers - {"training", "audit", "distance"} == set()


@pytest.mark.parametrize("task", ["generate", "adapt", "classify", "classify_colour", "distance", "synthesize"])
def test_a_task_alone_chooses_a_loss_a_budget_and_data_that_suit_it(nodes, task):
    cfg = nodes[0][task]
    config.check(cfg)
    config.instantiate(cfg.task, "task").check(cfg)
    assert (cfg.dataset._target_ == "dpot.data.pairs.Adaptation") == (task == "adapt")


def test_a_loss_of_another_task_is_refused_before_any_data_are_read(tmp_path):
    wrong = ["task=generate", "loss=classify/dp_sgd", "data_root=/nowhere", f"output_root={tmp_path}", "device=cpu"]
    with pytest.raises(UsageError, match=r"does not work with DPSGD; choose loss= from .*dp_merf"):
        run(compose_config(wrong))
    assert not list(tmp_path.iterdir())


def test_what_is_no_loss_at_all_is_refused(nodes):
    cfg = nodes[0]["generate"].copy()
    cfg.loss = nodes[2]["none"]
    with pytest.raises(UsageError, match="choose loss= from"):
        config.instantiate(cfg.task, "task").check(cfg)


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    (root / "office31").mkdir()
    rng = np.random.default_rng(0)
    for domain in ("dslr", "webcam"):
        x, y = rng.standard_normal((93, 10)).astype(np.float32), np.arange(93) % 31
        np.savez(root / "office31" / f"{domain}_resnet50.npz", x=x, y=y)
    return root


@pytest.mark.parametrize("task", RUNS)
def test_killed_between_record_and_discard_a_run_leaves_nothing_to_the_next(tmp_path, monkeypatch, office, task):
    cfg = compose_config([*RUNS[task], f"output_root={tmp_path}", f"data_root={office}"])

    def killed(self):
        assert (self.directory / "record.json").exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Run, "discard", killed)
        with pytest.raises(KeyboardInterrupt):
            run(cfg)
    assert list(tmp_path.rglob("*.dpot"))  # the states of noise generators
    first = next(tmp_path.rglob("record.json")).read_text()
    run(cfg)
    (record,) = tmp_path.rglob("record.json")
    assert record.read_text() == first
    assert not list(tmp_path.rglob("*.dpot"))
    assert not list(tmp_path.rglob("checkpoints"))


def test_left_over_checkpoints_of_every_step_and_part_go(tmp_path):
    with Run(compose_config([*RUNS["generate"], f"output_root={tmp_path}"])) as place:
        for name in (
            "step-000000000000.dpot",
            "alignment/step-000000000007.dpot",
            "step-000000000001.part",
            "marks.json",
        ):
            (place.checkpoints / name).parent.mkdir(parents=True, exist_ok=True)
            (place.checkpoints / name).write_text("")
        assert place.finished() is None
        assert len(list(place.checkpoints.rglob("step-*"))) == 3  # an unfinished run goes on from them
        place.finish({}, {}, {"checksum": "of nothing"})
        assert place.finished() is not None
        assert not place.checkpoints.exists()
        place.finished()  # and where there are none, nothing happens


def test_classifiers_side_by_side_learn_what_each_learns_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "NoiseSource", lambda device: NoiseSource(seed=7, device=device))

    def configs(folder):
        cfgs = [compose_config([*CLASSIFY, f"output_root={tmp_path}/{folder}", f"seed={seed}"]) for seed in (0, 1)]
        for cfg in cfgs:
            config.check(cfg)
        return cfgs

    task = Classify(batch=24)
    alone = [task.run(cfg).data["metrics"] for cfg in configs("alone")]
    together = [answer.data["metrics"] for answer in task.run_together(configs("together"))]
    for one, other in zip(alone, together, strict=True):
        assert one["training"]["history"] == other["training"]["history"]
        assert one["epochs"] == other["epochs"]
    assert together[0]["training"]["history"] != together[1]["training"]["history"]


def test_every_option_that_a_sheet_or_a_page_names_is_an_ordinary_one():
    hidden = re.compile(r"(?<![\w)])\+(?:task|dataset|generator|loss|privacy|classifier|profile)\.")
    pages = [*REPOSITORY.glob("experiments/*.yaml"), *REPOSITORY.glob("docs/**/*.md"), *CONF_DIR.rglob("*.yaml")]
    assert not [path for path in [*pages, REPOSITORY / "README.md"] if hidden.search(path.read_text())]
