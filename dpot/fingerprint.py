"""When two runs are the same: a short name of everything in a configuration that a result depends on.

What is hashed is the *essence* of a configuration: the names of its components and those values that are not the
component's own defaults. A new option renames no run (it has its default), nor does a class that moves to another
module (its name stays). A default that changes would be missed by the hash; `differences` finds it by comparing the
values that both configurations spell out.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dpot import config
from dpot.config import PACKAGE, targets
from dpot.errors import UsageError
from dpot.places import without_places

# Keys that change how a run is shown, watched or placed, but not what it computes.
NOT_FINGERPRINTED = (
    *("output", "debug", "rerun", "large_delta", "data_root", "output_root", "tracker", "device", "engine"),
    *("paper", "table", "figure", "hydra"),
)
# What an audit speaks for: see audited_code.
AUDIT = ("dpot.privacy.audit", "dpot.tasks.rehearsal", "dpot.tasks.scenes", "dpot.tasks.audit")
MAKES_RELEASES = (
    *("dpot.methods.", "dpot.transport.", "dpot.privacy.noise", "dpot.privacy.counts", "dpot.privacy.discrete"),
    *("dpot.training.samplers", "dpot.training.sanitise", "dpot.training.clipped_sum"),
)
PLUMBING = ("dpot.methods.work",)  # checkpoints, engines, names


def fingerprint(cfg: DictConfig | Mapping[str, Any]) -> str:
    """A short name of what a result depends on."""
    return hashlib.sha256(json.dumps(essence(cfg), sort_keys=True, default=str).encode()).hexdigest()[:12]


def essence(cfg: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    """The stable names of a configuration's components, with the values that are not their defaults."""
    return {key: _essential(value) for key, value in _plain(cfg).items()}


def differences(one: DictConfig | Mapping[str, Any], other: DictConfig | Mapping[str, Any]) -> list[str]:
    """The keys on which two configurations both speak and disagree."""
    return list(_disagreements(_plain(one), _plain(other), ""))


def _plain(cfg: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    plain: Any = OmegaConf.to_container(cfg, resolve=True) if isinstance(cfg, DictConfig) else dict(cfg)
    return {key: value for key, value in plain.items() if key not in NOT_FINGERPRINTED}


def _essential(value: Any) -> Any:
    if isinstance(value, Mapping) and "_target_" in value:
        name = str(value["_target_"]).rpartition(".")[2]
        defaults = _defaults(str(value["_target_"]))
        kept = {key: _essential(v) for key, v in value.items() if key != "_target_"}
        return {"": name} | {key: v for key, v in kept.items() if key not in defaults or v != defaults[key]}
    return _comparable(value)


def _comparable(value: Any) -> Any:
    """2 and 2.0, [1, 2] and (1, 2) are the same value."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list | tuple):
        return [_essential(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _essential(item) for key, item in value.items()}
    return value


def _defaults(target: str) -> dict[str, Any]:
    """What a component's parameters are unless they are given; nothing for a component that exists no more."""
    try:
        found = config.locate(components().get(target.rpartition(".")[2], target), "_target_")
    except UsageError:
        return {}
    parameters = inspect.signature(found).parameters.values()
    return {p.name: _comparable(p.default) for p in parameters if p.default is not p.empty}


@cache
def components() -> dict[str, str]:
    """Where each component that a file of conf/ names is defined, by its name."""
    return {target.rpartition(".")[2]: target for target in config.known_targets()}


def _disagreements(one: Any, other: Any, key: str) -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in one:
            if name in other:
                yield from _disagreements(one[name], other[name], f"{key}.{name}" if key else str(name))
    elif key.endswith("_target_"):
        if str(one).rpartition(".")[2] != str(other).rpartition(".")[2]:
            yield key
    elif without_places(_comparable(one)) != without_places(_comparable(other)):  # a record has no absolute paths
        yield key


def code_fingerprint(cfg: DictConfig | Mapping[str, Any]) -> str:
    """A hash of the code of the components a config names: a record made by other code is stale.

    Comments, docstrings and layout do not count: what is hashed is the syntax tree.
    """
    return _hashed({target.rpartition(".")[0] for key, target in targets(cfg) if key.split(".")[0] != "hydra"})


def audited_code(target: str) -> str:
    """A hash of the code that an audit of this method speaks for: an audit made with other code is stale.

    That is the gate with its tape, the method's own file and those of dpot/methods that it builds on, what these
    import for drawing, clipping, projecting and adding noise, and the audit itself.
    """
    found, ahead = set(AUDIT), [target.rpartition(".")[0], "dpot.methods.gate"]
    while ahead:
        name = ahead.pop()
        if name in found or name in PLUMBING:
            continue
        found.add(name)
        if name.startswith("dpot.methods."):
            ahead += [other for other in _imported(name) if other.startswith(MAKES_RELEASES)]
    return _hashed({name for name in found if _source(name).exists()})


def _imported(module: str) -> frozenset[str]:
    """The modules of the package that a module imports."""
    source = _source(module)
    return _read(source, source.stat().st_mtime_ns)[1] if source.exists() else frozenset()


def _source(module: str) -> Path:
    return (PACKAGE.parent / Path(*module.split("."))).with_suffix(".py")


def _hashed(modules: Iterable[str]) -> str:
    """A hash of the syntax trees of modules, without docstrings."""
    digest = hashlib.sha256()
    for source in map(_source, sorted(modules)):
        digest.update(_read(source, source.stat().st_mtime_ns)[0].encode())
    return digest.hexdigest()[:12]


@lru_cache(maxsize=256)
def _read(source: Path, changed: int) -> tuple[str, frozenset[str]]:
    """The syntax tree of a file as text, and the modules it imports; read once, unless the file has changed."""
    tree, found = ast.parse(source.read_text()), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return _dumped(tree), frozenset(name for name in found if _source(name).exists())


def _dumped(tree: ast.AST) -> str:
    """A syntax tree as Python 3.11 writes it; later versions add an empty field, or leave empty ones out."""
    options: dict[str, Any] = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    return ast.dump(tree, **options).replace(", type_params=[]", "")
