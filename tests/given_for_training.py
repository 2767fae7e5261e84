"""What the example of docs/training.md takes as given: a generator, a loss, a budget and some images, all small."""

from pathlib import Path

import torch

from dpot.data.digits import Digits
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.transport import annealed_temperatures, sinkhorn_cost

images = Digits(size=8, limit=500).load(None).train.x.float() / 255
sampling, public, noise = torch.Generator(), torch.Generator(), torch.Generator()
latent = torch.empty(50, 4)
generator = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Unflatten(1, (1, 8, 8)))
adam = torch.optim.Adam(generator.parameters(), lr=1e-3)
ledger = Ledger.of(Budget(epsilon=1e6, delta=1e-5))
temperatures = annealed_temperatures(8.0, blur=0.05)
run, hash_of_config = Path(), "any"


def sinkhorn(x, y):
    return sinkhorn_cost(x, y.flatten(1), temperatures)
