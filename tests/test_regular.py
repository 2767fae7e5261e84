"""A file that a user names is opened only if it is one: a pipe in its place is refused at once, not waited for."""

import os
from pathlib import Path

import pytest

from dpot.data import schema
from dpot.errors import DpotError
from dpot.methods.distance import triangle_wad
from dpot.methods.sketch import directions


@pytest.mark.parametrize(
    "read",
    [
        lambda path: triangle_wad._read(str(path)),
        lambda path: directions._from_file(str(path), 4, 2),
        schema.read,
    ],
)
def test_a_pipe_is_refused_wherever_a_configuration_can_name_a_file(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(DpotError, match="regular file"):
            read(path)
