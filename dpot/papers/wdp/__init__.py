"""Wasserstein differential privacy (Yang, Qi & Zhou, AAAI 2024): claims, tables and figures."""
