"""The training engine, its samplers, and the sanitising of gradients (docs/training.md)."""

from dpot.training.capture import train_together
from dpot.training.checkpoint import CheckpointPolicy
from dpot.training.ema import EMA
from dpot.training.engine import Engine, Outcome
from dpot.training.progress import Progress
from dpot.training.samplers import Draw, FixedSize, FullBatch, Poisson, Sampler, ShuffledEpochs, Stratified
from dpot.training.sanitise import (
    clip_block,
    clip_rows,
    per_sample_gradients,
    sanitise_images,
    sanitise_parameters,
    sum_of_clipped,
)
from dpot.training.schedules import Constant, Cosine, Schedule, StepDecay, Warmup

__all__ = [
    "EMA",
    "CheckpointPolicy",
    "Constant",
    "Cosine",
    "Draw",
    "Engine",
    "FixedSize",
    "FullBatch",
    "Outcome",
    "Poisson",
    "Progress",
    "Sampler",
    "Schedule",
    "ShuffledEpochs",
    "StepDecay",
    "Stratified",
    "Warmup",
    "clip_block",
    "clip_rows",
    "per_sample_gradients",
    "sanitise_images",
    "sanitise_parameters",
    "sum_of_clipped",
    "train_together",
]
