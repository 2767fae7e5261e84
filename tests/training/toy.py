"""A small noisy training, for the engine's tests and for the process that one of them kills.

Run as a program: `python toy.py DIRECTORY RESULT`: train with a checkpoint after every chunk, write the
final state to RESULT.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from dpot.training import EMA, CheckpointPolicy, Cosine, Engine, FixedSize, ShuffledEpochs, sanitise_parameters

DIMENSION = 6


def noising(std: float, generator: torch.Generator) -> Callable[..., Tensor]:
    """A release that nobody accounts for, in the place of the gate's."""

    def release(value: Tensor, *, by: Callable[[Tensor, Tensor], Tensor], rows: int | None = None) -> Tensor:
        empty = torch.empty(value[:rows].shape, dtype=torch.float64, device=value.device)
        return by(value, empty.normal_(0.0, std, generator=generator))

    return release


class Ledger:
    """Counts the steps it let through."""

    def __init__(self, limit: int | None = None) -> None:
        self.charged, self.limit = 0, limit

    def __call__(self, n: int) -> None:
        if self.limit is not None and self.charged + n > self.limit:
            raise PermissionError("the budget is spent")
        self.charged += n

    def state_dict(self) -> dict[str, Any]:
        return {"charged": self.charged}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.charged = state["charged"]


class Toy:
    """Everything random at once: batches, dropout, privacy noise; BatchNorm, Adam, cosine rate, EMA."""

    def __init__(
        self,
        seed: int = 0,
        device: str = "cpu",
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
        slow: float = 0.0,
        averaged: int = 1,
        **options: Any,
    ) -> None:
        torch.manual_seed(seed)
        # On the CPU first: the same numbers on every device.
        data = torch.randn(400, DIMENSION) + 1
        self.model = nn.Sequential(
            nn.Linear(DIMENSION, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, DIMENSION)
        ).to(device)
        self.data = data.to(device)
        self.optimizer = optimizer(self.model.parameters(), lr=1e-2)
        self.ema = EMA(self.model, 0.9, averaged)
        self.generators = {
            "sampling": torch.Generator(device).manual_seed(seed + 1),
            "noise": torch.Generator(device).manual_seed(seed + 2),
        }
        self.public = ShuffledEpochs(400, 50, self.generators["sampling"], steps_ahead=1)
        self.private = FixedSize(400, 20, self.generators["sampling"])
        self.ledger = Ledger()
        self.slow, self.calls = slow, 0
        steps = options.pop("steps", 60)
        settings: dict[str, Any] = {
            "schedule": Cosine(steps),
            "ema": self.ema,
            "tensors": self.public.tensors,
            "every": {self.public.period: self.public.reshuffle},
            "before": self.ledger,
            "extra_state": {"ledger": self.ledger},
            "log_every": 20,
            "fingerprint": "toy",
            "name": f"toy {seed}",
        }
        self.engine = Engine(
            self.step,
            modules={"model": self.model},
            optimizer=self.optimizer,
            generators=self.generators,
            steps=steps,
            **(settings | options),
        )

    def step(self) -> dict[str, Tensor]:
        """Autoencode a private and a public batch."""
        self.calls += 1
        time.sleep(self.slow)
        x = torch.cat([self.private.draw().rows(self.data), self.public.draw().rows(self.data)])
        loss = (self.model(x) - x).square().mean()
        loss.backward()
        sanitise_parameters(self.model.parameters(), 1.0, noising(0.01, self.generators["noise"]))
        self.optimizer.step()
        return {"loss": loss, "norm": self.model[0].weight.norm()}

    def state(self) -> dict[str, Tensor]:
        """All that a run leaves behind."""
        state = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        state |= {f"ema.{k}": v for k, v in self.ema.module.state_dict().items()}
        state |= {f"generator.{k}": g.get_state() for k, g in self.engine.all_generators().items()}
        state |= {f"tensor.{k}": v for k, v in self.public.tensors.items()}
        for i, parameter in enumerate(self.model.parameters()):
            state |= {f"optimizer.{i}.{k}": v for k, v in self.optimizer.state[parameter].items()}
        return {key: value.detach().cpu().clone() for key, value in state.items()}


def differing(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> list[str]:
    """The names of tensors that are not bit for bit the same."""
    return sorted(first.keys() ^ second.keys()) + [
        key for key in first if key in second and not torch.equal(first[key], second[key])
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    directory, result = Path(sys.argv[1]), Path(sys.argv[2])
    toy = Toy(steps=400, slow=0.004, checkpoint=CheckpointPolicy(directory, every_seconds=0))
    outcome = toy.engine.run()
    history = torch.tensor([[row["step"], row["loss"]] for row in outcome.history], dtype=torch.float64)
    ledger = torch.tensor([toy.ledger.charged, outcome.resumed_at or 0])
    safetensors.torch.save_file(toy.state() | {"history": history, "ledger": ledger}, result)
    toy.engine.discard()
