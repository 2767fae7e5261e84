"""Small classifiers whose hidden units serve as features."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

Style = Literal["conv", "dense"]
HIDDEN = {"conv": 128, "dense": 100}


class FeatureNetwork(nn.Module):
    """A convolutional or a one-hidden-layer classifier of flat records, with its hidden layer before the ReLU.

    conv: two 4×4 convolutions (32, 64) with stride 2, 128 hidden units; dense: 100 hidden units.
    """

    def __init__(self, style: Style, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.style: Style = style
        channels, height, width = shape
        if style == "dense":
            self.trunk: nn.Module = nn.Linear(channels * height * width, HIDDEN[style])
        else:
            self.trunk = nn.Sequential(
                nn.Unflatten(1, shape),
                nn.Conv2d(channels, 32, 4, 2, 1),
                nn.ReLU(),
                nn.Conv2d(32, 64, 4, 2, 1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Dropout(0.5),
                nn.Linear(64 * (height // 4) * (width // 4), HIDDEN[style]),
            )
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(HIDDEN[style], classes))

    def features(self, records: Tensor) -> Tensor:
        """(n, d) → (n, hidden units)."""
        found: Tensor = self.trunk(records)
        return found

    def forward(self, records: Tensor) -> Tensor:
        """(n, d) → (n, classes)."""
        logits: Tensor = self.head(self.features(records))
        return logits
