"""Networks of domain adaptation: features g, a head h that names the class, and a discriminator of domains.

The shapes are those of DP-SWD's experiments: a small convolutional g for 28×28 digits with 320 features in [0, 1],
and two fully connected layers on ready-made features (Office-31: 100 and 50 wide, VisDA: 100 and 100).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dpot.errors import UsageError
from dpot.models.pooling import ConvPoolFirst


class Network(nn.Module):
    """h∘g: `features` is g, `head` is h, `width` the dimension of g's output."""

    def __init__(self, features: nn.Module, head: nn.Module, width: int) -> None:
        super().__init__()
        self.features, self.head, self.width = features, head, width

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the classes."""
        logits: Tensor = self.head(self.features(x))
        return logits


def digit_network(classes: int = 10) -> Network:
    """DP-SWD's network for 28×28 digits: 320 features behind a sigmoid, head 320-100-10."""
    features = ConvPoolFirst(
        nn.Conv2d(1, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 20, 5),
        nn.Dropout2d(),
        nn.MaxPool2d(2),
        nn.Sigmoid(),
        nn.Flatten(),
    )
    for layer in features:
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, 0.0, 0.02)
    head = nn.Sequential(nn.Linear(320, 100), nn.ReLU(), nn.Dropout(), nn.Linear(100, classes))
    return Network(features, head, 320)


def feature_network(inputs: int, classes: int, hidden: int = 100, width: int = 50, dropout: float = 0.0) -> Network:
    """Two fully connected layers on ready-made features, and a head with one hidden layer as wide as g's output.

    dropout: in the hidden layers of g and of the head, where the network for digits has it. Not published for these.
    """

    def relu() -> list[nn.Module]:
        return [nn.ReLU(), nn.Dropout(dropout)] if dropout else [nn.ReLU()]

    features = nn.Sequential(nn.Linear(inputs, hidden), *relu(), nn.Linear(hidden, width), nn.ReLU())
    head = nn.Sequential(nn.Linear(width, width), *relu(), nn.Linear(width, classes))
    return Network(features, head, width)


def network_for(shape: tuple[int, ...], classes: int, width: int = 50, dropout: float = 0.0) -> Network:
    """The network of a data set: by the shape of its records. Width and dropout are those of feature networks."""
    if shape == (1, 28, 28):
        return digit_network(classes)
    if len(shape) == 1:
        return feature_network(shape[0], classes, width=width, dropout=dropout)
    raise UsageError(f"no network for records of shape {shape}: task=adapt takes 1×28×28 images or feature vectors")


def discriminator(width: int) -> nn.Module:
    """width-100-2: which domain a feature vector comes from (DANN)."""
    return nn.Sequential(nn.Linear(width, 100), nn.ReLU(), nn.Linear(100, 2))


class _Reversal(torch.autograd.Function):
    """The identity forwards, minus the gradient backwards (Ganin et al. 2016)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return -gradients[0]


class Reversal(nn.Module):
    """Gradient reversal as a layer: what follows learns to tell domains apart, what precedes to confuse it."""

    def forward(self, x: Tensor) -> Tensor:
        """x itself."""
        reversed_: Tensor = _Reversal.apply(x)
        return reversed_
