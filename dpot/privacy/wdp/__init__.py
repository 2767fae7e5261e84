"""Wasserstein differential privacy (Yang, Qi & Zhou, AAAI 2024), as printed, with what holds instead; docs/wdp.md."""
