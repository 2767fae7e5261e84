"""Which records are held out, by rules anybody can repeat: no seed, no library's random generator.

Neighbouring data sets must have neighbouring training records, or an ε for the training says nothing about the data.
By position: a record that is replaced where it stands moves no other; one that is put in or taken out moves all behind
it. By name: each record has its place from its own name alone. The first k of that order then differ by one record
when one record is replaced, whatever its new name, and so do the rest. When one is taken out they differ by that one,
but where k is rounded to another number: there one more changes sides.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

import numpy as np


def position_hash(count: int) -> np.ndarray:
    """A 64-bit hash of every position 0..count-1: the finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    z = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hold_out(count: int, held: int) -> tuple[np.ndarray, np.ndarray]:
    """(train, test) positions in ascending order: the `held` positions of smallest hash are the test ones."""
    by_hash = np.argsort(position_hash(count), kind="stable")
    return np.sort(by_hash[held:]), np.sort(by_hash[:held])


def share(count: int, fraction: float) -> int:
    """round(fraction·count); neither side is left empty when there are two records."""
    return min(max(round(count * fraction), 1), count - 1) if count > 1 else 0


def hold_out_fraction(count: int, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """hold_out of a share of the records."""
    return hold_out(count, share(count, fraction))


def in_hash_order(names: Iterable[str]) -> list[str]:
    """The names in the order of their BLAKE2b hashes."""
    return sorted(names, key=lambda name: hashlib.blake2b(os.fsencode(name), digest_size=16).digest())


def hold_out_per_class(labels: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """hold_out_fraction within each class, so that every class is on both sides."""
    train, test = [], []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        kept, held = hold_out_fraction(len(rows), fraction)
        train.append(rows[kept])
        test.append(rows[held])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def evenly_spaced(count: int, wanted: int) -> np.ndarray:
    """`wanted` of `count` positions at equal distances: ⌊i·count/wanted⌋."""
    return np.arange(wanted, dtype=np.int64) * count // wanted
