"""DP-Sinkhorn (Cao, Bie, Vahdat, Fidler & Kreis, NeurIPS 2021): claims, tables and figures."""
