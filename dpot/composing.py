"""The configuration that a command line stands for, composed from Python."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from dpot import guard  # noqa: F401 (what configurations may read of the environment)
from dpot.config import CONF_DIR, GROUPS, in_family


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """The config a command line would get, for use from Python, inside a running job too.

    Hydra takes a tenth of a second to compose. A sheet has hundreds of runs, so each choice of a group is composed once
    with its task (a task may change the defaults of other groups; no other group does), and runs are put together.
    Single values are set as Hydra sets them.
    """
    texts = in_family(overrides)
    parsed = OverridesParser.create().parse_overrides(texts)
    if any(not one.key_or_group.partition(".")[0].isidentifier() or one.package for one in parsed):
        return _composed(tuple(texts))  # hydra/launcher, a group under another name
    if any(one.key_or_group.startswith("hydra") for one in parsed):
        return _composed(tuple(texts))
    choices = {one.key_or_group: text for one, text in zip(parsed, texts, strict=True) if one.key_or_group in GROUPS}
    task = (choices.pop("task"),) if "task" in choices else ()
    cfg = deepcopy(_choices(task))
    for group, choice in choices.items():
        cfg[group] = deepcopy(_choices((*task, choice))[group])
    values = [one for one in parsed if one.key_or_group not in GROUPS]
    ConfigLoaderImpl._apply_overrides_to_config(values, cfg)
    return cfg


def _composed(overrides: tuple[str, ...]) -> DictConfig:
    running = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(CONF_DIR)):
            return compose("config", overrides=list(overrides))
    finally:
        GlobalHydra.instance().clear()
        if running is not None:
            GlobalHydra.instance().initialize(running)


_choices = lru_cache(maxsize=256)(_composed)
