"""Fréchet distances between sets of images: FID by the 2015 Inception network, and a stand-in without it.

FID = ‖μ₁ − μ₂‖² + tr Σ₁ + tr Σ₂ − 2 tr (Σ₁^½ Σ₂ Σ₁^½)^½   (Heusel et al. 2017)

The network is pytorch-fid's, with the weights of 2015-12-05. Without those weights there is no FID: the Fréchet
distance of down-sampled pixels is reported under its own name, `pixel_frechet`, and is comparable with nothing
published.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dpot.disk import write_atomically
from dpot.errors import DataError
from dpot.ranges import Count

Statistics = tuple[Tensor, Tensor]


def frechet_distance(a: Statistics, b: Statistics) -> float:
    """The Fréchet distance of two Gaussians (μ, Σ), by symmetric eigen-decompositions.

    tr (Σ₁ Σ₂)^½ is the sum of the square roots of the eigenvalues of the symmetric Σ₁^½ Σ₂ Σ₁^½, so that no matrix
    square root of a non-symmetric product is needed (faster, and never complex).
    """
    (mean_a, cov_a), (mean_b, cov_b) = a, b
    values, vectors = torch.linalg.eigh(cov_a.double())
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    inner = torch.linalg.eigvalsh(root @ cov_b.double() @ root).clamp(min=0).sqrt().sum()
    shift = (mean_a.double() - mean_b.double()).square().sum()
    return float(shift + cov_a.double().trace() + cov_b.double().trace() - 2 * inner)


class RunningStatistics:
    """Mean and covariance of rows that come in pieces (in float64)."""

    def __init__(self) -> None:
        self.count = 0
        self.total: Tensor | None = None
        self.second: Tensor | None = None

    def add(self, rows: Tensor) -> None:
        """Count these rows in."""
        rows = rows.double()
        if self.total is None or self.second is None:
            self.shift = rows.mean(0)  # sums around a first guess lose no digits
            self.total = torch.zeros_like(self.shift)
            self.second = torch.zeros(len(self.shift), len(self.shift), dtype=rows.dtype, device=rows.device)
        centred = rows - self.shift
        self.count += len(rows)
        self.total += centred.sum(0)
        self.second += centred.T @ centred

    def finish(self) -> Statistics:
        """(mean, covariance with n − 1)."""
        if self.count < 2 or self.total is None or self.second is None:
            raise DataError("a Fréchet distance needs at least two images")
        mean = self.total / self.count
        covariance = (self.second - self.count * torch.outer(mean, mean)) / (self.count - 1)
        return mean + self.shift, covariance


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights in a .safetensors or .pth file; no pickle is ever run."""
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return weights


def inception(weights: Mapping[str, Tensor], device: torch.device | str) -> torch.nn.Module:
    """pytorch-fid's network with these weights (its classifier, which FID never uses, may be missing)."""
    from pytorch_fid import inception as source

    complete = {name: value.float() if value.is_floating_point() else value for name, value in weights.items()}
    complete.setdefault("fc.weight", torch.zeros(1008, 2048))
    complete.setdefault("fc.bias", torch.zeros(1008))
    download = source.load_state_dict_from_url
    source.load_state_dict_from_url = lambda *_, **__: complete  # it would fetch them; we have them
    try:
        network = source.InceptionV3([3], resize_input=True, normalize_input=True).eval().to(device)
    except RuntimeError as error:
        raise DataError(f"these are not the FID Inception weights: {str(error).splitlines()[-1].strip()}") from None
    finally:
        source.load_state_dict_from_url = download
    # the layout in which a GPU convolves without rearranging
    return network.to(memory_format=torch.channels_last) if torch.device(device).type == "cuda" else network


class FrechetInception:
    """The protocol of an FID: how many samples, against which reference, rounded how."""

    def __init__(
        self,
        samples: Count = 60_000,
        reference: Literal["test", "train"] = "test",
        round_to_bytes: bool = True,
        batch: Count = 500,
    ) -> None:
        self.samples, self.reference, self.round_to_bytes, self.batch = (
            samples,
            reference,
            round_to_bytes,
            batch,
        )

    @torch.no_grad()
    def statistics(self, images: Tensor, network: torch.nn.Module | None) -> Statistics:
        """Feature statistics of images in [0, 1]; of down-sampled pixels without a network."""
        running = RunningStatistics()
        for part in images.split(self.batch):
            part = part.clamp(0, 1)
            if self.round_to_bytes:
                part = (part * 255).round() / 255
            if network is None:
                side = min(8, part.shape[-1])
                running.add(F.adaptive_avg_pool2d(part, side).flatten(1))
            else:
                colour = part if part.shape[1] == 3 else part[:, :1].expand(-1, 3, -1, -1)
                layout = torch.channels_last if colour.is_cuda else torch.contiguous_format
                running.add(network(colour.contiguous(memory_format=layout))[0].flatten(1))
        return running.finish()

    def reference_statistics(
        self, images: Tensor, network: torch.nn.Module | None, cache: Path | None, weights: str
    ) -> Statistics:
        """The statistics of the real images, kept by their checksum and that of the network's weights."""
        if cache is None or network is None:
            return self.statistics(images, network)
        from safetensors.torch import load_file, save

        key = hashlib.sha256(f"{weights}|{self.round_to_bytes}|{tuple(images.shape)}|{images.dtype}".encode())
        key.update(images.cpu().contiguous().numpy().data)
        path = cache / f"fid-{key.hexdigest()[:16]}.safetensors"
        if path.exists():
            try:
                kept = load_file(path)
                return kept["mean"].to(images.device), kept["covariance"].to(images.device)
            except Exception:  # a damaged cache is made again, whatever is wrong with it
                path.unlink(missing_ok=True)
        mean, covariance = self.statistics(images, network)
        write_atomically(path, save({"mean": mean.cpu(), "covariance": covariance.cpu().contiguous()}))
        return mean, covariance
