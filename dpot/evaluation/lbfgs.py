"""Limited-memory BFGS in few launches: what an iteration needs of its history is one product of matrices.

With the last m steps and gradient changes as rows of a matrix B, and the gradient below them, every inner product of
the two-loop recursion (Nocedal & Wright, Algorithm 7.4) is an entry of B·Bᵀ. The recursion then runs on the host over
coefficients, and the direction is one more product. The step satisfies the weak Wolfe conditions, found by bisection
(Lewis & Overton 2013); it is 1 nearly always.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dpot.evaluation.stepping import Fit, Replayed, settled

MEMORY = 10
DECREASE, CURVATURE = 1e-4, 0.9
MOST_TRIALS = 25


def minimise(
    loss: Callable[[Tensor], Tensor], start: Tensor, *, max_iter: int, tolerance: float, memory: int = MEMORY
) -> Fit[Tensor]:
    """Where a smooth loss of a vector has no gradient entry above `tolerance`, or after `max_iter` iterations.

    Ends earlier where rounding hides every decrease.
    """
    device, size = start.device, len(start)
    point, gradient = start.clone().requires_grad_(), torch.zeros_like(start)
    value = torch.zeros((), dtype=start.dtype, device=device)

    def evaluate() -> None:
        with torch.enable_grad():
            now = loss(point)
            (slope,) = torch.autograd.grad(now, point)
        value.copy_(now.detach())
        gradient.copy_(slope)

    look = Replayed(evaluate, device)
    rounding = 8 * torch.finfo(start.dtype).eps
    rows = torch.zeros(2 * memory + 1, size, dtype=start.dtype, device=device)  # steps, gradient changes, gradient
    slots: list[int] = []  # of the history, oldest first

    look()
    here, last = start.clone(), gradient.clone()
    for iteration in range(max_iter):
        rows[-1] = last
        facts = torch.cat([(rows.double() @ rows.double().T).flatten(), last.abs().max()[None], value[None]])
        yield from settled(device)
        *products, largest, at_start = facts.tolist()
        gram = np.array(products).reshape(len(rows), len(rows))
        if largest <= tolerance:
            break
        mix = direction(gram, slots, memory)
        fall = float(mix @ gram[:, -1])  # the derivative along the direction
        if not fall < 0:
            break
        towards = torch.as_tensor(mix, dtype=start.dtype, device=device) @ rows
        length = 1.0 if iteration else min(1.0, 1 / float(np.sqrt(gram[-1, -1])))
        low, high = 0.0, np.inf
        for _ in range(MOST_TRIALS):
            with torch.no_grad():
                point.copy_(here + length * towards)
            look()
            facts = torch.stack([value.double(), gradient.double() @ towards.double()])
            yield from settled(device)
            now, slope = facts.tolist()
            if not now <= at_start + DECREASE * length * fall + rounding * abs(at_start):  # NaN: too far
                high = length
            elif slope < CURVATURE * fall:
                low = length
            else:
                break
            length = (low + high) / 2 if np.isfinite(high) else 2 * length
        else:
            break
        slot = len(slots) if len(slots) < memory else slots.pop(0)
        rows[slot], rows[memory + slot] = point.detach() - here, gradient - last
        slots.append(slot)
        here, last = point.detach().clone(), gradient.clone()
    return here


def direction(gram: np.ndarray, slots: list[int], memory: int) -> np.ndarray:
    """Coefficients, on the rows the Gram matrix belongs to, of minus the inverse Hessian's estimate times the gradient.

    Rows: `memory` steps s, as many gradient changes y, the gradient. slots: which of them count, oldest first.
    """
    mix = np.zeros(len(gram))
    mix[-1] = 1.0
    weights = {}
    for slot in reversed(slots):
        curvature = gram[slot, memory + slot]  # s·y, positive by the curvature condition
        weights[slot] = (mix @ gram[:, slot]) / curvature
        mix[memory + slot] -= weights[slot]
    if slots:
        newest = slots[-1]
        mix *= gram[newest, memory + newest] / gram[memory + newest, memory + newest]
    for slot in slots:
        again = (mix @ gram[:, memory + slot]) / gram[slot, memory + slot]
        mix[slot] += weights[slot] - again
    return -mix
