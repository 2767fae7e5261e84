"""TriangleWad (Li, Huang, Wang & Pang 2024): claims, tables and figures."""
