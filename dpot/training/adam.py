"""Adam on a GPU, spread over all of it: torch's fused step gives 65,536 weights to a block.

For a generator of a million weights that keeps 15 of an H200's 132 multiprocessors busy for 37 µs, a twelfth of a step
of DP-Sinkhorn's.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam

from dpot.precision import has_triton

LARGE = 32_768  # weights of a tensor that gets a launch of its own
BLOCK = 1024


def fits(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is plain Adam."""
    unusual = ("amsgrad", "maximize", "differentiable", "decoupled_weight_decay")
    groups = optimizer.param_groups
    return type(optimizer) is Adam and all(min(g["betas"]) > 0 and not any(map(g.get, unusual)) for g in groups)


def spread(optimizer: torch.optim.Optimizer) -> None:
    """Let this optimizer, made capturable on a GPU, step by our kernel where its tensors are large."""
    if not (fits(optimizer) and has_triton()) or "step" in vars(optimizer):
        return
    plainly = optimizer.step

    def step(closure: None = None) -> None:
        if all(p in optimizer.state for p in _moved(optimizer)):
            spread_step(optimizer)
        else:
            plainly()  # the first makes the state

    optimizer.step = step  # type: ignore[method-assign, assignment]


@torch.no_grad()
def spread_step(optimizer: torch.optim.Optimizer) -> None:
    """A step of Adam whose state is there; the rate of each group is a tensor."""
    for group in optimizer.param_groups:
        moved = [(p, p.grad, optimizer.state[p]) for p in group["params"] if p.grad is not None]
        if not moved:
            continue
        torch._foreach_add_([state["step"] for _, _, state in moved], 1)
        small = [one for one in moved if not _launch(*one, group)]
        if small:
            weights, slopes, states = zip(*small, strict=True)
            torch._fused_adam_(
                weights, slopes, [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states], [],
                [s["step"] for s in states], lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1],
                weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False, maximize=False,
            )  # fmt: skip


def _launch(weight: Tensor, slope: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> bool:
    """Step by the kernel, if the tensor is large and all that belongs to it lies in memory as it does."""
    from dpot.training.triton_adam import adam_kernel

    of_it = (weight, slope, state["exp_avg"], state["exp_avg_sq"])
    alike = all(one.stride() == weight.stride() and one.dtype == torch.float32 for one in of_it)
    if weight.numel() < LARGE or not alike or not torch.ops.aten.is_non_overlapping_and_dense(weight):
        return False
    adam_kernel[-(-weight.numel() // BLOCK),](
        *of_it, state["step"], group["lr"], weight.numel(), *group["betas"],
        *map(math.log, group["betas"]), group["eps"], group["weight_decay"], BLOCK=BLOCK,
    )  # fmt: skip
    return True


def _moved(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
