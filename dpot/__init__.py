"""Optimal transport under differential privacy: reproduce, check and go beyond the papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpot.version import __version__

if TYPE_CHECKING:
    from dpot.synthesis import Synthesizer, synthesize

__all__ = ["Synthesizer", "__version__", "synthesize"]


def __getattr__(name: str) -> Any:
    """Synthesizer and synthesize need torch: they are imported when they are asked for."""
    if name in ("Synthesizer", "synthesize"):
        from dpot import synthesis

        return getattr(synthesis, name)
    raise AttributeError(f"module 'dpot' has no attribute {name!r}")
