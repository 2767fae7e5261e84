"""What a conditional generator is: codes and labels in, images out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import torch
from torch import Tensor, nn

STATISTICS_BATCHES, STATISTICS_BATCH = 30, 320  # the latter at least


class Generator(nn.Module, ABC):
    """Maps a random code and a label to an image.

    pixel_range is where the images live: [0, 1] behind a sigmoid, [-1, 1] behind a tanh.
    """

    pixel_range: tuple[float, float] = (0.0, 1.0)

    def __init__(self, code_size: int, classes: int, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.code_size, self.classes, self.shape = code_size, classes, shape

    def code(self, count: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
        """Draw `count` codes; standard normal unless a generator says otherwise."""
        return torch.randn(count, self.code_size, generator=generator, device=device)

    @abstractmethod
    def forward(self, code: Tensor, labels: Tensor) -> Tensor:
        """(N, code_size), (N,) → (N, C, H, W) in pixel_range."""


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """One-hot rows, looked up: torch's own one_hot reads the labels back to the host."""
    return _identity(classes, labels.device).index_select(0, labels)


@lru_cache(maxsize=32)
def _identity(size: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # a cached inference tensor could not take part in a later backward pass
        return torch.eye(size, device=device)


@torch.no_grad()
def synthesize(
    model: Generator,
    count: int,
    generator: torch.Generator,
    device: torch.device | str,
    chunk: int = 5000,
    batch_statistics: bool = False,
    labels: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw `count` images with uniform labels, or with these, as pixels in [0, 1].

    The model is used in evaluation mode; labels go round the classes, so that each has its share. With
    `batch_statistics`, BatchNorm normalises by the chunk at hand (DP-Sinkhorn evaluates so), not by what it has
    averaged in training; its averages stay as they are.
    """
    modes = {module: (module.training, getattr(module, "track_running_stats", None)) for module in model.modules()}
    model.eval()
    if batch_statistics:
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.training, module.track_running_stats = True, False
        chunk = min(chunk, 500)  # as many as DP-Sinkhorn's code draws at once
    labels = torch.arange(count, device=device) % model.classes if labels is None else labels
    low, high = model.pixel_range
    try:
        images = [
            (model(model.code(len(part), generator, device), part) - low) / (high - low) for part in labels.split(chunk)
        ]
    finally:
        for module, (training, tracked) in modes.items():
            module.training = training
            if tracked is not None:
                module.track_running_stats = tracked
    return torch.cat(images), labels


@torch.no_grad()
def settle_statistics(model: Generator, per_class: int, random: torch.Generator, device: torch.device) -> None:
    """Give averaged weights their own batch statistics: those of the last raw weights do not fit them."""
    layers = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not layers:
        return
    kept = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a plain mean over the batches below
    was_training = model.training
    model.train()
    labels = torch.arange(model.classes, device=device).repeat_interleave(
        max(per_class, STATISTICS_BATCH // model.classes)
    )
    for _ in range(STATISTICS_BATCHES if device.type == "cuda" else STATISTICS_BATCHES // 3):
        model(model.code(len(labels), random, device), labels)
    for layer, momentum in zip(layers, kept, strict=True):
        layer.momentum = momentum
    model.train(was_training)
