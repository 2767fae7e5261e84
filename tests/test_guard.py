"""Configurations that somebody sends: each of a corpus of hostile ones is refused in one line, harmless ones pass."""

import pickle

import pytest
from hydra import initialize_config_dir
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from dpot import config, launch
from dpot.guard import CheckedLoader, guarded


@pytest.fixture(scope="module")
def attacks(script):
    return {attack.name: attack for attack in script("attacks").ATTACKS}


def composed(words):
    """What each job of a command line would be given: composed as Hydra does, by the loader that runs it."""
    flags = get_args_parser().parse_args(words)
    launch._refuse_flags(flags)
    path = create_config_search_path(str(config.CONF_DIR))
    if flags.config_dir:
        path.prepend("command-line", f"file://{flags.config_dir}", SearchPathQuery(provider="schema"))
    loader = CheckedLoader(path)
    name = flags.config_name or "config"
    if not flags.multirun:
        return [loader.load_configuration(name, flags.overrides, RunMode.RUN)]
    master = loader.load_configuration(name, flags.overrides, RunMode.MULTIRUN)
    swept = next(text for text in flags.overrides if "," in text)
    key, _, values = swept.partition("=")
    fixed = [text for text in flags.overrides if text != swept and not text.startswith("hydra")]
    return [loader.load_sweep_config(master, [*fixed, f"{key}={value}"]) for value in values.split(",")]


def started(words):
    """Everything that is refused before a task begins."""
    for cfg in composed(words):
        OmegaConf.set_struct(cfg, False)
        del cfg["hydra"]
        config.check(cfg)
        for group in ("task", "loss", "tracker"):
            config.instantiate(cfg[group], group)


def test_every_hostile_configuration_is_refused_in_one_line(attacks, script, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    obeyed = []
    for number, (name, attack) in enumerate(attacks.items()):
        place = tmp_path / str(number)
        words = script("attacks").lay_out(attack, place)
        try:
            started(words)
        except Exception as error:
            line = launch.explain(error)
            if "internal" in line or launch._exit_code(error) != 2 or "hunter2" in line or "\n" in line:
                obeyed.append((name, line))
        else:
            obeyed.append((name, "it was obeyed"))
    assert not obeyed
    assert len(attacks) > 40


def test_settings_of_ones_own_pass(tmp_path, monkeypatch):
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "default.yaml").write_text(
        "# @package _global_\n"
        "data_root: ${oc.env:SCRATCH}/data\n"
        "privacy: {epsilon: 3}\n"
        "hydra: {verbose: true, sweeper: {params: {seed: '0,1'}}, job_logging: {root: {level: WARNING}}}\n"
    )
    words = ["--config-dir", str(tmp_path), "hydra/launcher=submitit_slurm", "hydra.launcher.partition=gpu"]
    (cfg,) = composed([*words, "hydra.launcher.setup=[module load cuda]"])
    assert cfg.data_root == "/scratch/me/data"
    assert cfg.privacy.epsilon == 3
    assert cfg.hydra.launcher.setup == ["module load cuda"]


def test_what_has_passed_is_what_runs():
    """The object that was looked at is the one that Hydra goes on with: nothing is composed a second time."""
    seen = []
    with guarded(then=seen.append), initialize_config_dir(version_base="1.3", config_dir=str(config.CONF_DIR)):
        loader = GlobalHydra.instance().config_loader()
        given = loader.load_configuration("config", ["seed=3"], RunMode.RUN)
    assert isinstance(loader, CheckedLoader)
    assert [id(cfg) for cfg in seen] == [id(given)]
    assert type(pickle.loads(pickle.dumps(CheckedLoader(loader.config_search_path)))) is CheckedLoader  # for launchers
