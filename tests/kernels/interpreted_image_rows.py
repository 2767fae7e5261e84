"""The kernel of one weight gradient per image beside autograd, on the CPU by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dpot.kernels import image_rows

LAST = torch.channels_last


@pytest.mark.parametrize(
    ("images", "copies", "inputs", "outputs", "side", "height", "width"),
    [(2, 4, 5, 3, 3, 4, 6), (1, 1, 70, 17, 3, 3, 3), (3, 2, 1, 80, 1, 2, 5), (2, 3, 16, 16, 3, 7, 7)],
)
@pytest.mark.parametrize("programs", [1, 1024])  # one program for all copies of an image, or one for each
def test_rows_are_the_gradients_of_the_images(
    images: int,
    copies: int,
    inputs: int,
    outputs: int,
    side: int,
    height: int,
    width: int,
    programs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(image_rows, "PROGRAMS", programs)
    torch.manual_seed(inputs)
    x = torch.randn(images * copies, inputs, height, width).to(memory_format=LAST)
    slope = torch.randn(images * copies, outputs, height, width).to(memory_format=LAST)
    buffer = torch.full((images, outputs * inputs * side * side + 7), 9.0)
    rows = buffer[:, 3:-4].view(images, outputs, inputs, side, side)
    image_rows.conv_rows(x, slope, rows)
    for i in range(images):
        weight = torch.zeros(outputs, inputs, side, side, dtype=torch.float64, requires_grad=True)
        mine = slice(i * copies, (i + 1) * copies)
        made = F.conv2d(x[mine].double(), weight, padding=side // 2)
        (expected,) = torch.autograd.grad((made * slope[mine]).sum(), weight)
        torch.testing.assert_close(rows[i].double(), expected, rtol=1e-4, atol=1e-4)
    assert (buffer[:, :3] == 9).all()
    assert (buffer[:, -4:] == 9).all()
