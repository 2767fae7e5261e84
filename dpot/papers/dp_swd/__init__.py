"""DP-SWD (Rakotomamonjy & Ralaivola, ICML 2021): claims, tables and figures."""
