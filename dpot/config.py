"""Configuration: where it lies, what it may name, and how its values are checked.

The signature of a component is its schema. A config node with a `_target_` may hold only parameters of
that target, with values its annotations admit (types, Literal choices, the ranges of dpot/ranges.py). A
target must be one that a file of conf/ names, and be defined in one of the component packages below: a config
somebody sends you runs no code of its own choosing.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dpot.errors import UsageError
from dpot.ranges import NonNegativeInt, Range

PACKAGE = Path(__file__).resolve().parent
# A wheel packs conf/, experiments/ and results/published/ into the package; in a clone they lie beside it.
INSTALLED = (PACKAGE / "conf").is_dir()
REPOSITORY = PACKAGE if INSTALLED else PACKAGE.parent
CONF_DIR = REPOSITORY / "conf"

COMPONENT_PACKAGES = (
    "dpot.data.",
    "dpot.engines.",
    "dpot.evaluation.",
    "dpot.methods.",
    "dpot.models.",
    "dpot.papers.",
    "dpot.privacy.",
    "dpot.tasks.",
    "dpot.profiles",
    "dpot.trackers",
)
GROUPS = ("task", "dataset", "generator", "loss", "privacy", "classifier", "tracker", "profile", "engine")


def root_settings(
    seed: NonNegativeInt = 0,
    device: str = "auto",
    data_root: str | None = None,
    output_root: str = "outputs",
    output: Literal["text", "json"] = "text",
    debug: bool = False,
    large_delta: bool = False,
    rerun: bool = False,
    paper: str | None = None,
    table: int | str | None = None,
    figure: str | int | None = None,
) -> None:
    """The keys of conf/config.yaml that belong to no group; only its signature is used."""


def targets(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every (key, dotted name) of a `_target_` inside node, at any depth."""
    if isinstance(node, DictConfig | Mapping):
        for name in node:
            raw = _raw(node, name)
            path = f"{key}.{name}" if key else str(name)
            if name == "_target_":
                yield key, str(raw)
            else:
                yield from targets(raw, path)
    elif isinstance(node, ListConfig) or (isinstance(node, Sequence) and not isinstance(node, str)):
        for i in range(len(node)):
            yield from targets(_raw(node, i), f"{key}[{i}]")


def _raw(node: Any, name: Any) -> Any:
    """The value without failing on interpolations that cannot be resolved yet."""
    if isinstance(node, DictConfig | ListConfig):
        inner = node._get_node(name)
        return inner if isinstance(inner, DictConfig | ListConfig) else getattr(inner, "_value", lambda: inner)()
    return node[name]


@cache
def known_targets() -> frozenset[str]:
    """The components that files of conf/ name."""
    files = [path.read_text() for path in CONF_DIR.rglob("*.yaml")]
    return frozenset(name for text in files for name in re.findall(r"^\s*_target_: (\S+)", text, re.MULTILINE))


def refuse_foreign_targets(cfg: DictConfig) -> None:
    """Refuse a config that names other code than the components of conf/ (dpot/guard.py looks at Hydra's part)."""
    for key, name in targets(cfg):
        if key.split(".")[0] != "hydra" and name not in known_targets():
            raise UsageError(f"{key}._target_={name} is refused: no file of conf/ names this component")


def _refuse_computed_targets(cfg: DictConfig) -> None:
    """Refuse components that only appear once interpolations are resolved: nobody would see them in the file."""
    try:
        resolved = list(targets(OmegaConf.to_container(cfg, resolve=True)))
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0].removeprefix("UsageError raised while resolving interpolation: ")
        key = f"{error.full_key}: " if error.full_key else ""
        raise UsageError(f"{key}{reason.removeprefix(key)}") from None
    for key, name in set(resolved) - set(targets(cfg)):
        raise UsageError(f"{key}._target_={name} is refused: a component must be written out")


def locate(name: str, key: str) -> Callable[..., Any]:
    """The class or function a `_target_` names; it must be defined where its name says.

    `dpot.tasks.base.importlib.import_module` resolves through attributes to something that is not ours,
    so the object's own module is what counts.
    """
    module_name, _, attribute = name.rpartition(".")
    if not module_name.startswith(tuple(p.rstrip(".") for p in COMPONENT_PACKAGES)):
        raise UsageError(f"{key}._target_={name} is refused: it is not a component of dpot")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{key}._target_={name} does not exist ({error})") from None
    if not callable(found) or getattr(found, "__module__", "") != module_name:
        raise UsageError(f"{key}._target_={name} is refused: it is not defined in {module_name}")
    return typing.cast(Callable[..., Any], found)


def check(cfg: DictConfig) -> None:
    """Check every component node and the root keys against the signatures they configure, in place."""
    refuse_foreign_targets(cfg)
    _refuse_computed_targets(cfg)
    known = [*inspect.signature(root_settings).parameters, *GROUPS]
    for name in map(str, cfg):
        if name not in known:
            raise unknown_key(name, known)
    check_arguments(cfg, root_settings, "", only_known=True)
    # The privacy budget first: it is the cheapest to import and the costliest to get wrong.
    for key, name in sorted(targets(cfg), key=lambda item: item[0] != "privacy"):
        if key.split(".")[0] == "hydra":
            continue
        node = OmegaConf.select(cfg, key)
        check_arguments(node, locate(name, key), key)


def check_arguments(node: DictConfig, target: Callable[..., Any], key: str, only_known: bool = False) -> None:
    """Check the values of a node against the signature of its target, and bring them to its types, in place."""
    call = target.__init__ if inspect.isclass(target) else target
    hints = typing.get_type_hints(call, include_extras=True)
    parameters = inspect.signature(target).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name in list(node):
        if name == "_target_":
            continue
        path = f"{key}.{name}" if key else str(name)
        if name not in parameters:
            if open_ended or only_known:
                continue
            raise unknown_key(path, list(parameters))
        if OmegaConf.is_missing(node, name):
            raise UsageError(f"{path}: must be given")
        try:
            value = node[name]
        except Exception as error:
            raise UsageError(f"{path}: {str(error).splitlines()[0]}") from None
        coerced = coerce(value, hints.get(str(name), Any), path)
        if type(coerced) is not type(value) and not isinstance(value, DictConfig | ListConfig):
            node[name] = coerced


def coerce(value: Any, hint: Any, key: str) -> Any:
    """The value as its annotation wants it, or a UsageError that names the key and what it admits."""
    origin = typing.get_origin(hint)
    if hint is Any or hint is inspect.Parameter.empty or (isinstance(value, DictConfig) and "_target_" in value):
        return value
    if origin is Annotated:
        base, *constraints = typing.get_args(hint)
        value = coerce(value, base, key)
        for constraint in constraints:
            if isinstance(constraint, Range) and not constraint.holds(value):
                raise UsageError(f"{key}={value}: must be {constraint.describe()}")
        return value
    if origin in (Union, types.UnionType):
        failure: UsageError | None = None
        for option in typing.get_args(hint):
            try:
                return coerce(value, option, key)
            except UsageError as error:
                if failure is None or typing.get_origin(option) in (Annotated, Literal):
                    failure = error
        raise failure or UsageError(f"{key}={value}: no value is admitted here")
    if origin is Literal:
        choices = typing.get_args(hint)
        if value in choices and type(value) in {type(c) for c in choices}:
            return value
        raise UsageError(f"{key}={value}: choose from {', '.join(map(str, choices))}")
    if hint is type(None):
        if value is None:
            return None
        raise UsageError(f"{key}={value}: must be null")
    if hint in _SCALARS:
        return _SCALARS[hint](value, key)
    if origin in (list, tuple, Sequence):
        if not isinstance(value, ListConfig | list | tuple):
            raise UsageError(f"{key}={value}: must be a list, written as [a,b,c]")
        inner = typing.get_args(hint)[:1] or (Any,)
        return [coerce(item, inner[0], f"{key}[{i}]") for i, item in enumerate(value)]
    if origin in (dict, Mapping):
        if not isinstance(value, DictConfig | Mapping):
            raise UsageError(f"{key}={value}: must be names with values, written as {{a:1,b:2}}")
        inner = typing.get_args(hint)[1:] or (Any,)
        return {name: coerce(value[name], inner[0], f"{key}.{name}") for name in value}
    return value


def _integer(value: Any, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not float(value).is_integer():
        raise UsageError(f"{key}={value}: must be a whole number")
    return int(value)


def _number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{key}={value}: must be a number")
    return float(value)


def _boolean(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{key}={value}: must be true or false")
    return value


def _string(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{key}={value}: must be text")
    return value


_SCALARS: dict[Any, Callable[[Any, str], Any]] = {int: _integer, float: _number, bool: _boolean, str: _string}


def instantiate(node: DictConfig, key: str, **given: Any) -> Any:
    """Build the component a node describes; `given` are the arguments only the running task knows."""
    target = locate(str(node["_target_"]), key)
    arguments: dict[str, Any] = {}
    for name in map(str, node):
        if name == "_target_":
            continue
        value = node[name]
        if isinstance(value, DictConfig) and "_target_" in value:
            value = instantiate(value, f"{key}.{name}")
        elif isinstance(value, DictConfig | ListConfig):
            value = OmegaConf.to_container(value, resolve=True)
        arguments[name] = value
    accepted = inspect.signature(target).parameters
    arguments.update({name: value for name, value in given.items() if name in accepted})
    missing = [
        name
        for name, p in accepted.items()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and name not in arguments
    ]
    if missing:
        raise UsageError(f"{key}.{missing[0]}: must be given")
    return target(**arguments)


def in_family(overrides: Sequence[str]) -> list[str]:
    """The overrides with each loss looked up in its task's family: `task=adapt loss=swd` is loss=adapt/swd.

    Names that the family does not have stay as they are. A sweep's values are looked up one by one; one over tasks
    keeps its losses as they were written.
    """
    tasks = [o.partition("=")[2] for o in overrides if o.startswith("task=")]
    family = tasks[-1].partition("_")[0] if tasks else ""
    folder = CONF_DIR / "loss" / family
    if not family.isidentifier() or not folder.is_dir():
        return list(overrides)

    def placed(name: str) -> str:
        return f"{family}/{name}" if (folder / f"{name}.yaml").is_file() else name

    return [
        f"loss={','.join(map(placed, o.partition('=')[2].split(',')))}" if o.startswith("loss=") else o
        for o in overrides
    ]


def options(group: str) -> list[str]:
    """The choices of a config group."""
    return sorted(path.stem for path in (CONF_DIR / group).glob("*.yaml"))


def _suggest(name: str, choices: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, choices, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{hint} Choices: {', '.join(choices)}" if hint else f"; choices: {', '.join(choices)}"


def unknown_key(path: str, choices: Sequence[str]) -> UsageError:
    """The error for a key that does not exist, with the closest one suggested."""
    return UsageError(f"{path}: no such key{_suggest(path.rpartition('.')[2], choices)}")


def unknown(what: str, name: str, choices: Sequence[str]) -> UsageError:
    """The error for a name that is not among the choices, with the closest one suggested."""
    return UsageError(f"{what}={name}: no such {what}{_suggest(name, choices)}")
