"""Which records are held out, by rules anybody can repeat: no seed, no library's random generator.

The rule looks at a record's position and never at its content: replacing one record then moves no other
record between the splits, which is what replace-one adjacency needs.
"""

from __future__ import annotations

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


def hold_out_fraction(count: int, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """hold_out of round(fraction·count) records; neither side is left empty when there are two records."""
    held = round(count * fraction)
    return hold_out(count, min(max(held, 1), count - 1) if count > 1 else 0)


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
