"""What a checkpoint keeps of Adam."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from dpot.training import CheckpointPolicy, Engine


def test_a_resumed_optimizers_state_lies_in_memory_as_its_weights_do(tmp_path: Path) -> None:
    def engine(steps: int) -> tuple[nn.Conv2d, torch.optim.Adam, Engine]:
        torch.manual_seed(0)
        model = nn.Conv2d(3, 4, 5).to(memory_format=torch.channels_last)
        optimizer, x = torch.optim.Adam(model.parameters(), lr=0.1), torch.rand(2, 3, 8, 8)

        def step() -> dict[str, torch.Tensor]:
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return {"loss": loss}

        policy = CheckpointPolicy(tmp_path, every_seconds=0)
        return (
            model,
            optimizer,
            Engine(step, modules={"m": model}, optimizer=optimizer, generators={}, steps=steps, checkpoint=policy),
        )

    engine(3)[2].run()
    model, optimizer, again = engine(6)
    assert again.run().resumed_at == 3
    state = optimizer.state[model.weight]
    assert model.weight.stride() == state["exp_avg"].stride() == state["exp_avg_sq"].stride()
