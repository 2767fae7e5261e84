"""Optimal transport under differential privacy: reproduce, check and go beyond the papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpot.synthesis import Synthesizer, synthesize

__version__ = "0.1.0"
__all__ = ["Synthesizer", "__version__", "synthesize"]


def __getattr__(name: str) -> Any:
    """Synthesizer and synthesize need torch: they are imported when they are asked for."""
    if name in ("Synthesizer", "synthesize"):
        from dpot import synthesis

        return getattr(synthesis, name)
    raise AttributeError(f"module 'dpot' has no attribute {name!r}")
