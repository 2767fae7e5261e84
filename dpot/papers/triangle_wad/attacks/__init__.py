"""Attacks on distances between parties: what the messages of TriangleWad and FedWad give away.

Each takes only what somebody has seen (`Log.view`), plus, for an insider, the own data, and for a denoiser, public
data. scene.py plays the protocols and scores all of them.
"""
