"""The single launcher: `dpot task=... key=value ...`, or `python -m dpot`.

Config → checks → task → answer. The answer goes to stdout (as text, or as one JSON document with
`output=json`); everything else goes to stderr. Exit code 0: done; 1: the run failed; 2: the command or
the configuration asks for something impossible. `dpot -m` sweeps: every job runs, failures are named
with their overrides, one table shows them all, and the exit code says whether any failed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from yaml import YAMLError

from dpot import config, helping, sweeps
from dpot.composing import compose_config
from dpot.errors import DpotError, UsageError
from dpot.guard import guarded
from dpot.tasks.base import Answer, Task, dump

# Before torch is imported: its forward and backward passes have a thread pool each, and two pools that spin while they
# wait make a small training step twice as slow as one thread alone.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


class Outcome:
    """The exit code of the one job of this process (Hydra hands back no return value)."""

    exit_code = 0


def main() -> None:
    """Run the command line and exit."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let errors reach us whole; we make one line of them
    sys.argv[1:] = arguments = sys.argv[1:] or ["--help"]
    debug = any(a.replace(" ", "") == "debug=true" for a in arguments)
    try:
        if (answer := helping.answered(arguments)) is not None:
            print(answer)
            sys.exit(0)
        flags = get_args_parser().parse_args(arguments)
        _refuse_flags(flags)
        overrides = _overrides(flags.overrides)
        sys.argv[1:] = [a for a in arguments if a not in flags.overrides] + overrides
        passive = flags.help or flags.hydra_help or flags.info or flags.cfg or flags.shell_completion
        if not passive:
            _check_command(overrides, flags)
        with guarded(then=None if passive else _make_output_root):
            hydra.main(version_base="1.3", config_path=str(config.CONF_DIR), config_name="config")(job)()
        sys.exit(sweeps.finish(as_json="output=json" in overrides) if flags.multirun else Outcome.exit_code)
    except KeyboardInterrupt:
        if debug:
            traceback.print_exc()
        print("dpot: interrupted; the same command goes on from the last checkpoint, if there is one", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        if debug:
            traceback.print_exc()
        _say(error)
        sys.exit(_exit_code(error))


def job(cfg: DictConfig) -> None:
    """One job: check its config, run its task, print or keep its answer.

    Nothing is raised to Hydra, which would add lines of its own; `Outcome` and job.json say what went wrong.
    """
    settings = HydraConfig.get()
    overrides = list(settings.overrides.task)
    place = Path(settings.runtime.output_dir) if settings.mode == RunMode.MULTIRUN else None
    try:
        with _stdout_to_stderr(cfg.output == "json"):
            answer = run(cfg)
    except Exception as error:
        if cfg.debug:
            traceback.print_exc()
        Outcome.exit_code = _exit_code(error)
        line = explain(error)
        if place:
            sweeps.leave(place, {"overrides": overrides, "error": line, "exit_code": Outcome.exit_code})
            line = f"job {settings.job.num} ({' '.join(overrides)}) failed: {line}"
        _say(error, line)
        return
    if place:
        sweeps.leave(place, {"overrides": overrides, "answer": answer.data, "exit_code": answer.exit_code})
    Outcome.exit_code = answer.exit_code
    try:
        if cfg.output == "text":
            answer.show(Console(soft_wrap=not sys.stdout.isatty()))
        elif not place:
            print(dump(answer.data))
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the reader has seen enough (dpot ... | head); rich then wants to exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def run(cfg: DictConfig) -> Answer:
    """Check a composed config and run its task: what the command line and the tests call."""
    from dpot.precision import suited_convolutions
    from dpot.profiles import settle

    config.check(cfg)
    settle(cfg)
    task: Task = config.instantiate(cfg.task, "task")
    with suited_convolutions():
        return task.run(cfg)


def explain(error: BaseException) -> str:
    """One line a user can act on."""
    if isinstance(error, DpotError):
        return " ".join(str(error).split())
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        if group:
            return str(config.unknown(group, name, list(error.options or [])))
    if isinstance(error, HydraException | OmegaConfBaseException):
        return _explain_config(str(error))
    if isinstance(error, YAMLError):
        return f"a file of settings is not plain YAML: {' '.join(str(error).split())}"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return f"out of memory: {str(error).splitlines()[0] if str(error) else ''}; lower the batch or the samples"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"no space left on the device ({error.filename or 'output_root'}): free some, or set output_root"
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{error.filename or 'output_root'}: {error.strerror}; change its rights, or set output_root"
    first = str(error).splitlines()[0] if str(error) else ""
    return f"internal error: {type(error).__name__}: {first} (debug=true shows the traceback)"


def _say(error: BaseException, line: str | None = None) -> None:
    print(f"dpot: {line or explain(error)}", *getattr(error, "listed", ()), sep="\n  ", file=sys.stderr)


def _explain_config(message: str) -> str:
    found = re.search(r"Could not override '([^']+)'", message)
    if found:
        key = found.group(1)
        parent, _, name = key.rpartition(".")
        chosen = [a for a in sys.argv[1:] if "=" in a and not a.startswith((key, "-")) and "," not in a]
        with contextlib.suppress(Exception):
            cfg = compose_config(chosen)
            node = OmegaConf.select(cfg, parent) if parent else cfg
            names = [str(k) for k in node if k != "_target_"]
            if name not in names:
                return str(config.unknown_key(key, names))
    reason = re.search(r"Could not (?:find|load|append|override)[^\n]*", message)
    return reason.group(0) if reason else " ".join(message.split())


def _exit_code(error: BaseException) -> int:
    if isinstance(error, DpotError):
        return error.exit_code
    return 2 if isinstance(error, HydraException | OmegaConfBaseException | YAMLError) else 1


def _refuse_flags(flags: Any) -> None:
    """Refuse another main configuration, and a run that Hydra has pickled: to read it is to run it."""
    if flags.config_path is not None:
        raise UsageError("--config-path is refused: --config-dir adds a folder of settings to those of dpot")
    if getattr(flags, "experimental_rerun", None) is not None:
        raise UsageError("--experimental-rerun is refused: it unpickles a file; give the command again instead")


def _overrides(given: Sequence[str]) -> list[str]:
    for item in given:
        if "=" not in item and not item.startswith("~"):
            raise UsageError(f"{item}: settings are written as key=value (dpot --help lists them)")
    return config.in_family(given)


def _check_command(overrides: Sequence[str], flags: Any) -> None:
    """Say what is wrong with a command before anything is composed."""
    for text, parsed in zip(overrides, OverridesParser.create().parse_overrides(list(overrides)), strict=True):
        if parsed.is_sweep_override() and not flags.multirun:
            raise UsageError(f"{text}: several values need a sweep: dpot -m ... (or quote the value)")


def _make_output_root(cfg: DictConfig) -> None:
    """Hydra would, and says less where it cannot."""
    try:
        Path(cfg.output_root).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"output_root={cfg.output_root}: cannot write there ({error.strerror})") from None


@contextlib.contextmanager
def _stdout_to_stderr(active: bool) -> Iterator[None]:
    """Keep stdout for the one JSON document: prints of libraries and child processes go to stderr."""
    if not active:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
