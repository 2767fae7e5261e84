"""Fast arithmetic where nobody needs the last digits: synthetic records, and classifiers that judge them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def fast_products() -> Iterator[None]:
    """On a GPU: products of matrices in TF32, convolutions by the fastest of their algorithms; on a CPU nothing."""
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.benchmark
    matmul.allow_tf32 = convolution.benchmark = True
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.benchmark = before
