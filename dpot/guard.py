"""What Hydra may be told by a configuration that somebody sends you: nothing that runs, writes or reads beyond the run.

Hydra obeys its own part of a configuration before any task begins: it sets environment variables, opens log files,
calls logging factories, builds launchers, sweepers and callbacks, makes folders. So the check stands where Hydra
composes, and what has passed it is the very object that runs, for each job of a sweep too, in whichever process.

Hydra's part must be the one that conf/ alone gives. Three things are left to choose: one of a few launchers, what a
sweep runs over, and how much is logged. Settings of a launcher (a partition, a `setup` command) are taken from the
command line and from conf/, which are yours, and from nowhere else.

`${oc.env:NAME}` is answered in data_root and output_root only, and only for names that hold places: a secret of the
environment would otherwise be kept in a record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any
from unittest import mock

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra._internal.utils import create_config_search_path
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, Node, OmegaConf
from omegaconf.resolvers import oc

from dpot import config
from dpot.errors import UsageError

LAUNCHERS = ("basic", "joblib", "submitit_local", "submitit_slurm", "ray")
# Below `hydra.`: what Hydra itself fills in, and the little that may be chosen.
FREE = (
    *("overrides", "runtime", "mode", "verbose", "job.name", "job.override_dirname", "job.config_name"),
    *("sweeper.params", "sweeper.max_batch_size", "job_logging.root.level", "hydra_logging.root.level"),
)
ADVICE = {
    "launcher": "settings of a launcher go on the command line",
    "job.env": "set variables of the environment in your shell",
    **dict.fromkeys(("run", "sweep.", "output_subdir"), "output_root says where runs are kept"),
    **dict.fromkeys(("job_logging", "hydra_logging"), "the log goes to stderr; only its level can be chosen"),
}
ROOTS = ("data_root", "output_root")
PLACES = ("DPOT_DATA", "DPOT_OUTPUT", "HOME", "SCRATCH", "TMPDIR", "WORK")


class CheckedLoader(ConfigLoaderImpl):
    """Hydra's loader of configurations, which gives out none that `refuse` has not let pass."""

    def __init__(self, config_search_path: Any, then: Callable[[DictConfig], None] | None = None) -> None:
        super().__init__(config_search_path)
        self.then = then

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """The configuration of a command line, or of one job of a sweep."""
        cfg = super().load_configuration(config_name, overrides, run_mode, from_shell, validate_sweep_overrides)
        refuse(cfg, overrides)
        if self.then is not None:
            self.then(cfg)
        return cfg

    def _process_config_searchpath(
        self, config_name: str | None, parsed_overrides: list[Override], repo: CachingConfigRepository
    ) -> None:
        """More places to read from come from the command line alone: to look into pkg://… is to import it."""
        loaded = repo.load_config(config_path=config_name) if config_name is not None else None
        named = loaded is not None and OmegaConf.select(loaded.config, "hydra.searchpath", default=None) is not None
        if named or any(one.get_key_element().startswith("hydra.searchpath") for one in parsed_overrides):
            raise UsageError("hydra.searchpath is refused: name a folder of your own with --config-dir")


@contextmanager
def guarded(then: Callable[[DictConfig], None] | None = None) -> Iterator[None]:
    """Inside, Hydra composes by CheckedLoader. `then` is told each configuration that passed."""
    with mock.patch("hydra._internal.hydra.ConfigLoaderImpl", partial(CheckedLoader, then=then)):
        yield


def refuse(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Refuse a composed configuration whose Hydra part does more than choose, or which names code that is not ours."""
    launcher = str(cfg.hydra.runtime.choices.get("hydra/launcher"))
    if launcher not in LAUNCHERS:
        raise UsageError(f"hydra/launcher={launcher} is refused: choose from {', '.join(LAUNCHERS)}")
    if sorted([*cfg.hydra.overrides.hydra, *cfg.hydra.overrides.task]) != sorted(overrides):
        raise UsageError("hydra.overrides is refused: what was typed on the command line cannot be set in a file")
    if not re.fullmatch(r"[\w.-]+", str(cfg.hydra.job.name)):  # a cluster's scripts are made with it
        raise UsageError(f"hydra.job.name={cfg.hydra.job.name!r} is refused: letters and digits only")
    typed = [text for text in overrides if text.lstrip("+~").startswith("hydra.launcher.")]
    own = _leaves(_reference((f"hydra/launcher={launcher}", *typed)))
    found = _leaves(OmegaConf.to_container(cfg.hydra, resolve=False))
    for key in [*found, *own]:
        if found.get(key, _ABSENT) != own.get(key, _ABSENT) and not f"{key}.".startswith(_FREE_BEGINNINGS):
            advice = next((text for part, text in ADVICE.items() if key.startswith(part)), "leave it out")
            raise UsageError(f"hydra.{key} is refused, because Hydra would obey it before dpot begins: {advice}")
    config.refuse_foreign_targets(cfg)


_ABSENT = object()
_FREE_BEGINNINGS = tuple(f"{key}." for key in FREE)


@lru_cache(maxsize=16)
def _reference(overrides: tuple[str, ...]) -> Any:
    """Hydra's part as conf/ gives it."""
    loader = ConfigLoaderImpl(create_config_search_path(str(config.CONF_DIR)))
    cfg = loader.load_configuration("config", list(overrides), RunMode.RUN)
    return OmegaConf.to_container(cfg.hydra, resolve=False)


def _leaves(node: Any, key: str = "") -> dict[str, Any]:
    """Every value below a node by its path; an empty mapping or list is a value."""
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    found = {path: value for name, inner in pairs for path, value in _leaves(inner, f"{key}.{name}").items()}
    return found or {key.lstrip("."): node}


def _environment(name: str, default: Any = oc._DEFAULT_MARKER_, *, _node_: Node) -> str | None:
    key = str(_node_._get_full_key(None))
    if key not in ROOTS or name not in PLACES:
        raise UsageError(
            f"{key}: ${{oc.env:{name}}} is refused: only {' and '.join(ROOTS)} may read the environment, and there "
            f"only {', '.join(PLACES)}"
        )
    return oc.env(name, default)


OmegaConf.register_new_resolver("oc.env", _environment, replace=True)
