"""Two parts of a step side by side: small kernels leave most of a GPU idle."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


class SideStream:
    """A second stream for the part of a step that does not need the rest.

        with side.fork():
            real = ...       # draw, project and noise the private rows
        fake = ...           # meanwhile, generate
        side.join()          # from here on both may be used

    A fork waits for all that came before it, so memory of an earlier step is never written while it is read. In a
    captured step the two parts become branches of the graph. On a CPU nothing happens.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextlib.contextmanager
    def fork(self) -> Iterator[None]:
        """What is inside runs beside what follows, until `join`."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """Wait, on the device, for the other branch."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
