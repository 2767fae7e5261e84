"""Profiles: how large a run is. `paper` is what was published, the others scale the same code path down.

A number made under anything but `paper`, or on other data than the paper's, is never called comparable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from dpot.config import CONF_DIR, check
from dpot.errors import UsageError
from dpot.ranges import Count


@dataclass(frozen=True)
class Profile:
    """The sizes of a run; None leaves a size to the method and the evaluation protocol."""

    name: str
    steps: Count | None = None  # at most this many training steps; σ is calibrated to the steps really made
    records: Count | None = None  # at most this many training records
    samples: Count | None = None  # synthetic samples drawn for the evaluation
    passes: Count | None = None  # synthesis + training passes of the downstream classifiers
    seeds: Count | None = None  # seeds per cell of a table
    fid: bool = True


def settle(cfg: DictConfig) -> None:
    """Settle what is left to the machine: `device=auto`, and `profile=auto` (paper with CUDA, else quick)."""
    if cfg.device == "auto" or cfg.profile.name == "auto":
        import torch

        has_cuda = torch.cuda.is_available()
        if cfg.device == "auto":
            cfg.device = "cuda" if has_cuda else "cpu"
        if cfg.profile.name == "auto":
            name = "paper" if cfg.device != "cpu" else "quick"
            chosen = OmegaConf.load(CONF_DIR / "profile" / f"{name}.yaml")
            given = {key: value for key, value in cfg.profile.items() if key != "name" and value is not None}
            given = {key: value for key, value in given.items() if not (key == "fid" and value)}  # true says nothing
            cfg.profile = OmegaConf.merge(chosen, given)
            check(cfg)
    if cfg.device != "cpu":
        import torch

        if not re.fullmatch(r"cuda(:\d+)?", str(cfg.device)):
            raise UsageError(f"device={cfg.device}: choose auto, cpu, cuda or cuda:N")
        if not torch.cuda.is_available():
            raise UsageError(f"device={cfg.device}: this machine has no CUDA device; use device=cpu or auto")
