"""The configuration that a command line stands for, composed from Python."""

from __future__ import annotations

from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from dpot.config import CONF_DIR, in_family


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """The config a command line would get, for use from Python, inside a running job too."""
    running = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(CONF_DIR)):
            return compose("config", overrides=in_family(overrides))
    finally:
        GlobalHydra.instance().clear()
        if running is not None:
            GlobalHydra.instance().initialize(running)
