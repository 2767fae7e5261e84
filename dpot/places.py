"""Where a user's files lie is nobody else's business: absolute paths in what is kept, reduced to a name and a hash."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any

MASKED = "/…/"
HASHED = 12  # letters
# inside a longer text: a path that begins at a slash or ~/ which does not follow a part of a path or an address
_PATH = re.compile(r"(?<![\w.:/~…#-])(?:file:///|~?/)[^\s,;'\"\[\]{}()]+")


def without_places(value: Any) -> Any:
    """The value with each absolute path in it as /…/NAME#HASH: the same path gives the same text, again and again."""
    if isinstance(value, Mapping):
        return {key: without_places(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_places(inner) for inner in value]
    if not isinstance(value, str):
        return value
    key, equals, path = value.partition("=")
    if equals and re.fullmatch(r"[\w.+~@/-]+", key) and _absolute(path):
        return f"{key}={_masked(path)}"
    return _masked(value) if _absolute(value) else _PATH.sub(lambda found: _masked(found[0]), value)


def _absolute(text: str) -> bool:
    """Whether the whole text is one path, which may hold blanks."""
    return re.match(r"(file:///|~?/)[^/]", text) is not None and not any(c in text for c in ",\n\"'")


def _masked(path: str) -> str:
    if path.startswith(MASKED):
        return path
    plain = os.path.normpath(os.path.expanduser(path.removeprefix("file://")))
    return f"{MASKED}{os.path.basename(plain)}#{hashlib.sha256(os.fsencode(plain)).hexdigest()[:HASHED]}"
