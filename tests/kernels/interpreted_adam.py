"""Adam's Triton kernel against torch's own steps, on the CPU by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dpot.kernels import adam


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1, "betas": (0.5, 0.9), "eps": 1e-3}])
def test_steps_are_torchs(settings: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adam, "LARGE", 50)
    torch.manual_seed(0)
    shapes = (70, 40), (3, 8, 5, 5), (7,), ()
    ours = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    ours[1].data = ours[1].data.contiguous(memory_format=torch.channels_last)
    theirs = [nn.Parameter(p.detach().double()) for p in ours]
    mine = torch.optim.Adam(ours, lr=torch.tensor(1e-2), **settings, fused=True)  # type: ignore[arg-type]
    other = torch.optim.Adam(theirs, lr=1e-2, **settings)  # type: ignore[arg-type]
    launched = []
    for step in range(4):
        for p, q in zip(ours, theirs, strict=True):
            q.grad = torch.randn(q.shape, dtype=torch.float64)
            p.grad = torch.empty_like(p).copy_(q.grad)
        if step:
            monkeypatch.setattr(adam, "_launch", lambda *a, at=adam._launch: launched.append(at(*a)) or launched[-1])
            adam.spread_step(mine)
            monkeypatch.undo()
            monkeypatch.setattr(adam, "LARGE", 50)
        else:
            mine.step()  # makes the state
        other.step()
        for p, q in zip(ours, theirs, strict=True):
            torch.testing.assert_close(p.double(), q, rtol=1e-5, atol=1e-6)
    assert launched == [True, True, False, False] * 3


def test_only_plain_adam_is_taken() -> None:
    weights = [nn.Parameter(torch.zeros(3))]
    assert adam.fits(torch.optim.Adam(weights, weight_decay=1e-5))
    assert not adam.fits(torch.optim.Adam(weights, amsgrad=True))
    assert not adam.fits(torch.optim.AdamW(weights))
