"""Exact discrete Gaussian noise, many draws at a time: P(x) ∝ exp(-x²/2S) on the integers, S rational.

The rejection sampler of Canonne, Kamath & Steinke (2020, Algorithms 1-3), carried out on arrays. Every coin with
probability exp(-γ), γ rational, is tossed by comparing uniform bits with a fraction: in double precision where the
outcome is beyond its rounding error, by whole numbers of any size where it is not (about once in 10¹¹ tosses). So
no rounding error reaches the law of the noise. The bits come from the operating system.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Words = Callable[[int], NDArray[np.uint64]]  # n independent words of 64 uniform bits
Integers = NDArray[np.int64]
_MARGIN = 2.0**-36  # beyond the rounding error of every fraction compared below (their values are at most 2^12)
_BLOCK = 1 << 18
LARGEST_VARIANCE = 1 << 56  # |y|·t - S must fit a word of 64 bits, |y| being some dozens of t at most
LARGEST_DEVIATION = 2.0**28 * (1 - 1e-9)  # its square, rounded up, is still below


def system_words(count: int) -> NDArray[np.uint64]:
    """Random words from the operating system."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def discrete_gaussian(count: int, variance: int | Fraction, words: Words = system_words) -> Integers:
    """`count` independent draws of P(x) ∝ exp(-x²/(2·variance)).

    With t = ⌊√S⌋ + 1: draw y from the discrete Laplace law of scale t and keep it with probability
    exp(-(|y|·t - S)²/(2·S·t²)).
    """
    wanted = Fraction(variance)
    if not (wanted > 0 and wanted.numerator < LARGEST_VARIANCE and wanted.denominator < LARGEST_VARIANCE):
        raise ValueError(f"the variance must be a fraction of numbers from 1 to {LARGEST_VARIANCE}, got {variance}")
    kept: list[Integers] = []
    scale, missing = math.isqrt(math.floor(wanted)) + 1, count
    while missing > 0:
        drawn = _discrete_laplace(min(_BLOCK, missing + missing // 2 + 64), scale, words)
        drawn = drawn[_accepted(drawn, wanted, scale, words)][:missing]
        kept.append(drawn)
        missing -= len(drawn)
    return np.concatenate(kept) if kept else np.zeros(0, np.int64)


def _accepted(drawn: Integers, variance: Fraction, scale: int, words: Words) -> NDArray[np.bool_]:
    """A coin of probability exp(-γ) for each y, γ = (|y|·t - S)²/(2·S·t²)."""
    over, under = variance.numerator, variance.denominator
    gap = np.abs(drawn) * (scale * under) - over
    divisor = 2 * over * under * scale * scale
    gamma = np.square(gap.astype(np.float64)) / float(divisor)

    def exactly(i: int) -> Fraction:
        return Fraction(int(gap[i]) ** 2, divisor)

    whole = np.floor(gamma)
    for i in np.flatnonzero(np.abs(gamma - np.rint(gamma)) < _MARGIN):
        whole[i] = math.floor(exactly(int(i)))  # rounding could have moved γ over a whole number
    heads = np.ones(len(drawn), bool)
    open_ = np.flatnonzero(whole > 0)
    for toss in range(1, 1 << 20):  # exp(-γ) = exp(-1)^⌊γ⌋ · exp(-(γ - ⌊γ⌋))
        if not len(open_):
            break
        heads[open_] = _exponential_coins(np.ones(len(open_)), lambda _: Fraction(1), words)
        open_ = open_[heads[open_] & (whole[open_] > toss)]
    left = np.flatnonzero(heads)
    rest = np.clip(gamma[left] - whole[left], 0, 1)
    heads[left] = _exponential_coins(rest, lambda j: exactly(int(left[j])) - int(whole[left[j]]), words)
    return heads


def _discrete_laplace(count: int, scale: int, words: Words) -> Integers:
    """About `count` draws of P(y) ∝ exp(-|y|/t): what the rejections leave of it."""
    low = _uniform_below(count, scale, words)
    low = low[_exponential_coins(low / scale, lambda i: Fraction(int(low[i]), scale), words)]
    high = np.zeros(len(low), np.int64)
    running = np.arange(len(low))
    while len(running):
        running = running[_exponential_coins(np.ones(len(running)), lambda _: Fraction(1), words)]
        high[running] += 1
    size = low + scale * high
    negative = (words(len(size)) >> np.uint64(63)).astype(bool)
    return np.where(negative, -size, size)[~(negative & (size == 0))]


def _exponential_coins(
    gamma: NDArray[np.float64], exactly: Callable[[int], Fraction], words: Words
) -> NDArray[np.bool_]:
    """Coins of probability exp(-γ), γ ∈ [0, 1]: toss γ/1, γ/2, … until one fails; heads if the failing one is odd."""
    heads = np.zeros(len(gamma), bool)
    running, k = np.arange(len(gamma)), 1
    while len(running):
        won = _coins(gamma[running] / k, lambda j, k=k, at=running: exactly(int(at[j])) / k, words)  # type: ignore[misc]
        heads[running[~won]] = k % 2 == 1
        running, k = running[won], k + 1
    return heads


def _coins(p: NDArray[np.float64], exactly: Callable[[int], Fraction], words: Words) -> NDArray[np.bool_]:
    """Coins of probability p: a uniform number below p, looked at as closely as needed."""
    bits = words(len(p))
    uniform = bits * 2.0**-64
    won = uniform < p
    for i in np.flatnonzero(np.abs(uniform - p) < _MARGIN):
        won[i] = _below(int(bits[i]), exactly(int(i)), words)
    return won


def _below(number: int, p: Fraction, words: Words) -> bool:
    """Whether the uniform number that begins with these 64 bits is below p; more bits are drawn while it is open."""
    bits = 64
    while True:
        if Fraction(number + 1, 1 << bits) <= p:
            return True
        if Fraction(number, 1 << bits) >= p:
            return False
        number, bits = (number << 64) | int(words(1)[0]), bits + 64


def _uniform_below(count: int, bound: int, words: Words) -> Integers:
    """Uniform on 0 … bound - 1, without the bias of a remainder."""
    limit = (1 << 63) // bound * bound
    drawn = words(count) >> np.uint64(1)
    while True:
        again = np.flatnonzero(drawn >= np.uint64(limit))
        if not len(again):
            return (drawn % np.uint64(bound)).astype(np.int64)
        drawn = drawn.copy()
        drawn[again] = words(len(again)) >> np.uint64(1)
