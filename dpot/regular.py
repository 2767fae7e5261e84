"""Regular files only: what a user or a configuration names is opened by these, never by its bare name."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

from dpot.errors import DataError


def printable(path: Path | str) -> str:
    """A path, or a name out of a file, as one line that any terminal can take: no control characters, no lone bytes."""
    return "".join(c if c.isprintable() else "\ufffd" for c in str(path))


def unreadable(path: Path, error: OSError) -> DataError:
    """The error for a file that the system does not let us read."""
    return DataError(f"{printable(path)} cannot be read ({error.strerror}): check its permissions")


def irregular(path: Path) -> DataError:
    """The error for a pipe, a device or a folder in the place of a file."""
    return DataError(f"{printable(path)} is not a regular file (but a pipe, a device or a folder): take it away")


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading: a pipe would keep us waiting for ever, a device never ends.

    What was opened is looked at, not the name, which may lead elsewhere a moment later. O_NONBLOCK opens a pipe
    that nobody writes to; on a regular file it does nothing.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise unreadable(path, error) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise irregular(path)
    return os.fdopen(handle, "rb")
