"""Adam by our kernel, and what of it a checkpoint keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from dpot.training import CheckpointPolicy, Engine
from dpot.training.adam import fits, spread


def test_the_kernel_in_tritons_interpreter(interpreted) -> None:  # type: ignore[no-untyped-def]
    interpreted(Path(__file__).with_name("interpreted_adam.py"))


def test_only_plain_adam_is_taken() -> None:
    weights = [nn.Parameter(torch.zeros(3))]
    assert fits(torch.optim.Adam(weights, weight_decay=1e-5))
    assert not fits(torch.optim.Adam(weights, amsgrad=True))
    assert not fits(torch.optim.AdamW(weights))


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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_steps_are_torchs() -> None:
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(300, 200, device="cuda")), nn.Parameter(torch.randn(5, device="cuda"))]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    options = {"weight_decay": 1e-2, "capturable": True, "fused": True}
    mine, other = (torch.optim.Adam(p, lr=torch.tensor(1e-2, device="cuda"), **options) for p in (ours, theirs))  # type: ignore[arg-type]
    spread(mine)
    for _ in range(5):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        mine.step()
        other.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(mine.state[p]["exp_avg_sq"], other.state[q]["exp_avg_sq"])
