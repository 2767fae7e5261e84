"""Optimal transport under differential privacy: reproduce, check and go beyond the papers."""

__version__ = "0.1.0"
