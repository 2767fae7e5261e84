"""Steps of DP-Sinkhorn by our kernels beside the same steps without them, on the CPU by Triton's interpreter.

Run with TRITON_INTERPRET=1 in a process of its own (test_kernels.py does): the switch must be set before Triton
loads.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dpot.methods.generate.base import Problem
from dpot.methods.generate.dp_sinkhorn import DPSinkhorn
from dpot.models import layers
from dpot.models.layers import NarrowConv2d
from dpot.models.sinkhorn_dcgan import SinkhornDCGAN
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.training import sanitise
from dpot.transport import sinkhorn

STEPS = 3


def trained() -> dict[str, Tensor]:
    """The generator's state after a few steps."""
    torch.manual_seed(0)
    images, labels = torch.rand(300, 1, 8, 8), torch.arange(300) % 3
    model = SinkhornDCGAN(3, (1, 8, 8), code_size=3, embedding=2, width=4)
    method = DPSinkhorn(batch=7, steps=STEPS, learning_rate=1e-3, noise_multiplier=0.01, clip=0.1)
    problem = Problem(
        images=images,
        labels=labels,
        classes=3,
        generator=model,
        budget=Budget(1e6, 1e-5),
        ledger=Ledger(1e-5, None),
        noise=NoiseSource(5),
        random=torch.Generator().manual_seed(1),
    )
    engine = method.prepare(problem)
    engine.open(STEPS)
    for _ in range(STEPS):
        engine.one_step()
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_steps_by_kernels_are_the_steps_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = trained()
    launched: list[str] = []

    def always(name: str) -> object:
        return lambda *_: launched.append(name) or True

    monkeypatch.setattr(sinkhorn, "fits_kernel", always("sinkhorn"))
    monkeypatch.setattr(NarrowConv2d, "_takes", always("convolution"))
    monkeypatch.setattr(layers, "_fits", always("norms"))
    monkeypatch.setattr(sanitise, "_fits", always("sanitiser"))
    ours = trained()
    assert set(launched) == {"sinkhorn", "convolution", "norms", "sanitiser"}
    for name, value in plain.items():
        torch.testing.assert_close(ours[name], value, rtol=2e-3, atol=2e-4, msg=lambda text, n=name: f"{n}: {text}")
