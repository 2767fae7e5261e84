"""Plain noise on records: the baseline with an ε that needs no idea. Every record is clipped, noised and sent.

Replacing one record moves one row by at most 2R, so N(0, (2R·z)²) on every entry is one Gaussian mechanism with noise
multiplier z. The noisy clouds are compared as if they were data: in d dimensions the noise adds about 2d(2Rz)² to W_2²,
which drowns the distance long before ε is small.
"""

from __future__ import annotations

import math

import torch

from dpot.methods.distance.direct_wad import Order
from dpot.methods.distance.parties import SERVER, Distance, Estimate, Log, Party, check_together
from dpot.privacy.budget import Budget
from dpot.privacy.calibration import find_sigma
from dpot.privacy.events import Gaussian
from dpot.privacy.noise import NoiseSource
from dpot.ranges import Positive
from dpot.transport.exact import Measure
from dpot.transport.geodesic import wasserstein


class NoisyRecords(Distance):
    """W_p between two clouds of noisy records. clip: null takes √d, the norm of an image of pixels in [-1, 1]."""

    private = True

    def __init__(self, p: Order = 2.0, clip: Positive | None = None, noise_seed: int | None = None) -> None:
        self.p, self.clip, self.noise_seed = p, clip, noise_seed

    def estimate(self, first: Party, second: Party, random: torch.Generator, budget: Budget) -> Estimate:
        """Each party releases its noisy records once; they serve every later comparison."""
        check_together(first, second)
        clip = self.clip if self.clip is not None else math.sqrt(first.dimension)
        multiplier = find_sigma(Gaussian, 1, budget)
        log, clouds = Log(), []
        for number, party in enumerate((first, second)):
            noise = NoiseSource(None if self.noise_seed is None else self.noise_seed + number)
            gate = party.open_gate(budget, noise)
            name = f"noisy records, clipped to {clip!r}, noise multiplier {multiplier!r}"
            if name not in party.made:
                gate.ledger.note_uncovered("the number of records and their weights, which are public")
                release = gate.release(Gaussian(multiplier), source=f"{party.name}: its noisy records")
                data = party.clipped(clip)
                party.made[name] = Measure(release(data.points, 2 * clip), data.weights)
            sent = log.send(party.name, (SERVER,), f"noisy {party.name}", party.made[name])
            assert isinstance(sent, Measure)
            clouds.append(sent)
        value = wasserstein(clouds[0], clouds[1], self.p)
        return Estimate(value, self.p, log, details={"noise": 2 * clip * multiplier, "clip": clip})
