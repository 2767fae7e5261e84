"""Gradients made private: clipped to a norm C, then noised, in the three places methods do it.

- `sanitise_images`: the gradient of the loss at the generator's output (DP-Sinkhorn, Section 4.3). The
  generator behind it is post-processing.
- `sanitise_parameters`: the whole parameter-gradient vector (one norm over all parameters).
- `per_sample_gradients` and `sum_of_clipped`: one gradient per record, each clipped (DP-SGD).

Clipping is a bound for *every* input, or it is no bound. Two cases are easily forgotten. A record that makes
its gradient NaN or infinite would turn the released sum into NaN whatever the noise: the output would
reveal that record with certainty, and the sensitivity would be infinite. Such a row (or block) is replaced
by zero, which has norm 0 ≤ C, so the stated sensitivity holds for it too. And rounding may push a scaled
row above C: norms are taken in float64 and scaled rows end at C·(1 - 2^-20), so that after rounding to
float32 the norm is at most C; rows with norm ≤ C pass unchanged, bit for bit.

No noise is drawn here. A `Noising`, which is a release of dpot/methods/gate.py with its sensitivity stated, is handed
the gradient and a function that clips it and adds noise in one go, and calls that with the noise it draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from dpot import kernels
from dpot.errors import UsageError
from dpot.ranges import Positive

_INSIDE = 1 - 2.0**-20


def _half(norm: Tensor, clip: float) -> Tensor:
    """√min(1, C/norm), a hair less when it is not 1; 0 or NaN where the norm is not finite. In float64, as the norm.

    The root, because factors are applied in two halves: for a row of norm 1e38 the factor itself lies below float32's
    normal range, where it would be rounded by far more than the room that _INSIDE leaves.
    """
    return (norm.rsqrt() * math.sqrt(clip * _INSIDE)).masked_fill_(norm <= clip, 1.0)


def _scale(rows: Tensor, half: Tensor) -> Tensor:
    """Each row times half²; a row that is not finite has a half of 0 or NaN, and every entry becomes 0.

    The product is 0 or NaN where half is, and finite elsewhere: replacing NaN touches no other row.
    """
    half = half.to(rows.dtype).reshape(-1, *[1] * (rows.dim() - 1))
    return torch.nan_to_num(rows * half * half, nan=0.0)


def clip_rows(rows: Tensor, clip: Positive) -> Tensor:
    """x_i ← x_i·min(1, C/‖x_i‖₂) for each row; a row that is not finite becomes 0."""
    norm = torch.linalg.vector_norm(rows.flatten(1), dim=1, dtype=torch.float64)
    return _scale(rows, _half(norm, clip))


def clip_block(block: Tensor, clip: Positive) -> Tensor:
    """x ← x·min(1, C/‖x‖₂) with one norm over all entries; a block that is not finite becomes 0."""
    return clip_rows(block.unsqueeze(0), clip).squeeze(0)


class Noising(Protocol):
    """Gives back by(value, noise), the noise being that of the first `rows` rows of the value (None: of all)."""

    def __call__(self, value: Tensor, *, by: Callable[[Tensor, Tensor], Tensor], rows: int | None = None) -> Tensor: ...


class _Sanitise(torch.autograd.Function):
    """The identity forwards; backwards, the gradient clipped and noised."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, clip: float, noising: Noising, per: str, noised: int | None) -> Tensor:
        ctx.by, ctx.noising, ctx.noised = partial(clip_and_noise, clip=clip, per=per), noising, noised
        return images.view_as(images)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        return ctx.noising(gradient, by=ctx.by, rows=ctx.noised), *(None,) * 4


def _fits(gradient: Tensor) -> bool:
    """Whether the kernel takes it."""
    return kernels.run_on(gradient) and gradient.dtype == torch.float32


def clip_and_noise(gradient: Tensor, noise: Tensor, clip: float, per: str) -> Tensor:
    """Each row of a gradient clipped (per="row") or all as one block, plus noise.

    Rows beyond those of the noise get none; as a block they are one by themselves.
    """
    if _fits(gradient):
        return kernels.sanitise.clip_and_noise(gradient, noise, clip, per)
    # At least float32: half precision would round a clipped row back above the bound.
    work = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
    parts = work.split([len(noise), len(work) - len(noise)])
    clipped = torch.cat([clip_rows(part, clip) if per == "row" else clip_block(part, clip) for part in parts])
    clipped[: len(noise)].add_(noise)
    return clipped.to(gradient.dtype)


def sanitise_images(
    images: Tensor,
    clip: Positive,
    noising: Noising,
    per: Literal["row", "block"] = "row",
    noised: int | None = None,
) -> Tensor:
    """The same images, whose gradient G (n×d) arrives behind them as clip(G) + noise.

    per="row": each row clipped to C, so ‖clip(G)‖₂ ≤ C·√n and the replace-one sensitivity is 2C√n (the
    paper's text); per="block": one norm over the block, sensitivity 2C (the authors' code). Each backward pass is
    one release. noised: only so many rows get noise; the gradient of the others must not depend on a private record,
    and is clipped alike, as a block of its own, so that the two keep their balance.
    """
    if per not in ("row", "block"):
        raise UsageError(f"per must be 'row' or 'block', not {per!r}")
    sanitised: Tensor = _Sanitise.apply(images, clip, noising, per, noised)
    return sanitised


@torch.no_grad()
def sanitise_parameters(parameters: Iterable[nn.Parameter], clip: Positive, noising: Noising) -> None:
    """g ← g·min(1, C/‖g‖₂) + noise in place, g being the gradient of all parameters as one vector.

    Replace-one sensitivity 2C, whatever the loss. A parameter without a gradient gets noise all the same:
    whether a gradient exists must not depend on the data.
    """
    holders = list(parameters)
    # each as its weights lie in memory: neither here nor where Adam reads them is anything moved about
    gradients = [_laid_out_as(p, torch.zeros_like(p) if p.grad is None else p.grad) for p in holders]
    whole = torch.cat([_flat(g) for g in gradients]).unsqueeze(0)
    (made,) = noising(whole, by=partial(clip_and_noise, clip=clip, per="row"))
    for parameter, piece in zip(holders, made.split([g.numel() for g in gradients]), strict=True):
        parameter.grad = piece.as_strided(parameter.shape, torch.empty_like(parameter).stride()).to(parameter.dtype)


def _laid_out_as(like: Tensor, values: Tensor) -> Tensor:
    """The values in memory as `like` is, without gaps; themselves if they are."""
    target = torch.empty_like(like)
    return values if values.stride() == target.stride() else target.copy_(values)


def _flat(dense: Tensor) -> Tensor:
    """The numbers of a tensor without gaps, as they follow each other in memory."""
    return dense.as_strided((dense.numel(),), (1,))


def per_sample_gradients(module: nn.Module, loss: Callable[..., Tensor], *batch: Tensor) -> dict[str, Tensor]:
    """∇_θ loss(module(x_i), …) for each row i: tensors of shape (rows, *parameter shape), by name.

    loss takes the module's output for a batch of one and the other columns of that row. A module whose rows
    depend on each other (BatchNorm in training) has no per-sample gradient and is refused.
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.training:
            raise UsageError(f"{name} is a BatchNorm in training: its rows depend on each other; use GroupNorm")
    parameters = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    fixed = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    fixed |= dict(module.named_buffers())

    def loss_of_one(weights: dict[str, Tensor], first: Tensor, *rest: Tensor) -> Tensor:
        output = functional_call(module, weights | fixed, (first.unsqueeze(0),))
        return loss(output, *(column.unsqueeze(0) for column in rest))

    columns = (None, *[0] * len(batch))
    found: dict[str, Tensor] = vmap(grad(loss_of_one), in_dims=columns, randomness="different")(parameters, *batch)
    return found


def sum_of_clipped(gradients: Mapping[str, Tensor], clip: Positive, mask: Tensor | None = None) -> dict[str, Tensor]:
    """Σ_i clip(g_i), each g_i being one record's gradient over all parameters (DP-SGD).

    Add/remove sensitivity C, replace-one 2C. mask leaves out the padding of a Poisson batch. Dividing by
    the *expected* batch size is left to the caller: the actual size is private under Poisson sampling.
    """
    flat = torch.cat([g.flatten(1) for g in gradients.values()], 1)
    norm = torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64)
    half = _half(norm, clip)
    if mask is not None:
        half = half * mask
    pieces = _scale(flat, half).sum(0).split([g[0].numel() for g in gradients.values()])
    return {name: piece.view(g.shape[1:]) for (name, g), piece in zip(gradients.items(), pieces, strict=True)}
