"""A saved synthesizer for scripts/fuzz.py: small and valid, and changed on purpose with its digest made anew."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from dpot import Synthesizer
from dpot.methods.sealed import read_sealed, seal
from dpot.privacy.accountants import own_epsilon
from dpot.privacy.events import Event

JUNK: tuple[Any, ...] = (None, True, -1, 0, 0.1, 1e308, 10**400, "", "x", "exact", "a\nb", [], {}, [[1]], {"a": 1})


def write_marginals(root: Path) -> None:
    """A table of two columns in two classes: its marginals."""
    _write(root, np.random.default_rng(0).random((150, 2)), ranges=(0, 1))


def write_lines(root: Path) -> None:
    """Images of two classes: the lines of the sliced sketch."""
    _write(root, np.random.default_rng(0).integers(0, 256, (150, 4, 4), dtype=np.uint8))


def _write(root: Path, records: Any, **settings: Any) -> None:
    quick = Synthesizer(10, 1e-5, rounds=1, steps=1, device="cpu", **settings)
    quick.fit(records, np.array(["yes", "no"])[np.arange(len(records)) % 2])
    quick.save(root / "r.safetensors")


def load_release(root: Path) -> Mapping[str, Any]:
    """As a user does: load, look at the statement, draw."""
    logging.disable(logging.WARNING)
    loaded = Synthesizer.load(root / "r.safetensors", device="cpu")
    told = loaded.statement_
    assert told.to_markdown()
    assert told.to_html()
    spending = {Event.from_dict(entry["event"]): entry["count"] for entry in told.entries}
    least = own_epsilon(spending, told.delta, "exact", "tight")
    assert (told.epsilon or 0) >= least * (1 - 1e-6), "a lowered ε was believed"
    made, labels = loaded.sample(5, seed=0)
    return {"made": made, "labels": labels, "epsilon": told.epsilon, "entries": json.dumps(told.entries)}


def in_release(rng: Random, data: bytes) -> bytes:
    """Some fact or tensor is another one, is gone, or is one too many."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "r")
        path.write_bytes(data)
        tensors, facts, _ = read_sealed(path)
    if rng.random() < 0.75:
        holder, key = rng.choice(_places(facts))
        if rng.random() < 0.25:
            del holder[key]
        else:
            holder[key] = rng.choice(JUNK)
    else:
        name = rng.choice(sorted(tensors))
        tensor = tensors[name]
        match rng.randrange(6):
            case 0:
                del tensors[name]
            case 1:
                tensors[name] = tensor.flatten()[:-1]
            case 2:
                tensors[name] = tensor.to(rng.choice((torch.float16, torch.int32, torch.bool, torch.float64)))
            case 3:
                tensors[name] = torch.full_like(tensor, float("nan")) if tensor.is_floating_point() else -tensor
            case 4:
                tensors["generator.more"] = tensor.clone()
            case 5:
                tensors[name] = torch.zeros(0, *tensor.shape[1:], dtype=tensor.dtype)
    return seal(tensors, facts)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(holder, key) of everything inside."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [pair for key in keys for pair in ((value, key), *_places(value[key]))]
