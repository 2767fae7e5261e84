"""What `dpot task=... --help` and `dpot --version` answer, and how tab completion is switched on.

The options of a component are the keys of its file in conf/, and the comment behind a key is its line of help.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from dpot import config
from dpot.version import __version__

COMPLETION = 'tab completion: eval "$(dpot -sc install=bash)" (or fish, zsh), in ~/.bashrc to keep it'
OPTION = re.compile(r"^(?P<key>[a-z]\w*):\s*(?P<value>.*?)\s*(?:#\s+(?P<about>.*))?$")
BASE = re.compile(r"(?:defaults: \[|\s+- )(\w+)(?:, _self_\])?$")


def answered(arguments: Sequence[str]) -> str | None:
    """What can be answered without Hydra; None: it is for Hydra."""
    if "--version" in arguments:
        return f"dpot {__version__}"
    if arguments and (arguments[-1] in ("-sc", "--shell-completion") or "completion" in arguments[0].strip("-")):
        return None if arguments[-1].startswith(("install=", "uninstall=", "query=")) else COMPLETION
    chosen = [word for word in arguments if re.fullmatch(r"[a-z_]+=[\w/]+", word)]
    if ("--help" in arguments or "-h" in arguments) and any(word.startswith("task=") for word in chosen):
        return _chosen(config.in_family(chosen))
    return None


def _chosen(overrides: Sequence[str]) -> str:
    """The options of each component that the command names, the task's first."""
    named = {group: name for group, _, name in (word.partition("=") for word in overrides) if group in config.GROUPS}
    parts = [_component(group, name) for group, name in sorted(named.items(), key=lambda item: item[0] != "task")]
    others = [group for group in config.GROUPS if group not in named and group != "tracker"]
    more = f"dpot task={named['task']} {others[0]}=NAME --help shows the options of another part ({', '.join(others)});"
    return "\n\n".join([*parts, f"{more}\ndpot --help lists the names, and --cfg job prints all settings."])


def _component(group: str, name: str) -> str:
    path = config.CONF_DIR / group / f"{name}.yaml"
    if not path.is_file():
        raise config.unknown(group, name, config.options(group))
    lines = path.read_text().splitlines()
    examples = [line.removeprefix("# ") for line in lines if line.startswith("# dpot ")]
    found = {f"{group}.{key}={value}": about for key, (value, about) in options(path).items()}
    width = min(max(map(len, found), default=0), 40)
    told = [f"  {setting:<{width}}  {about}".rstrip() for setting, about in found.items()]
    heading = f"{group}={name}" + (": its options with their defaults" if told else " has no options of its own")
    return "\n".join([heading, *(f"  {example}" for example in examples), *told])


def options(path: Path) -> dict[str, tuple[str, str]]:
    """The default and the line of help of each key of a component; a variant has those of the file it is based on."""
    found: dict[str, tuple[str, str]] = {}
    for line in path.read_text().splitlines():
        base = BASE.match(line)
        if base:
            found |= options(path.with_name(f"{base[1]}.yaml"))
        match = OPTION.match(line)
        if match and match["key"] != "defaults":
            known = found.get(match["key"], ("", ""))[1]
            found[match["key"]] = (match["value"] or "…", match["about"] or known)
    return found
