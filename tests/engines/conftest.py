"""What the tests of all engines share."""

import os
from functools import partial
from pathlib import Path

import pytest

from dpot import synthesis
from dpot.methods.sketch.method import Sketch
from dpot.privacy.noise import NoiseSource


@pytest.fixture
def same_noise(monkeypatch):
    """Every release draws the noise that one before it drew; short fits."""
    monkeypatch.setattr(synthesis, "NoiseSource", partial(NoiseSource, seed=5))
    monkeypatch.setattr(Sketch, "network_steps", 2)
    monkeypatch.setattr(Sketch, "synthetic", 200)


@pytest.fixture
def workers_find_the_tests(monkeypatch):
    """Workers of a cluster on this machine import what the tests define."""
    here = Path(__file__).resolve().parents[1]
    known = [str(here), str(here.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(known))
