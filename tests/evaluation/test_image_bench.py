"""DPImageBench's protocol: its networks against published sizes, its splits against torch's, its training on a toy."""

from __future__ import annotations

import math
import os

import pytest
import torch
from torch.utils.data import random_split as reference_split

from dpot.data.base import Split
from dpot.data.image_bench import BenchSplit, random_split
from dpot.errors import UsageError
from dpot.evaluation.bench_networks import network_of
from dpot.evaluation.fid import FrechetInception
from dpot.evaluation.image_bench import CIFAR, ImageBench


def resnet_weights(blocks: int, channels: int) -> int:
    """16, 32, 64 channels of 3×3 convolutions with two numbers of a norm for each output, by hand."""
    stages = sum((2 * blocks - 1) * (9 * c * c + 2 * c) for c in (32, 64)) + 2 * blocks * (9 * 256 + 32)
    entries = sum(9 * c * 2 * c + 2 * 2 * c + c * 2 * c + 2 * 2 * c for c in (16, 32))
    return channels * 9 * 16 + 32 + stages + entries + 65 * 10


@pytest.mark.parametrize(
    ("name", "cifar", "weights"),
    [
        ("wrn", True, 36_479_194),  # WRN-28-10, as printed for the authors' network
        ("wrn", False, 8_949_210),  # WRN-40-4, 8.9 million
        ("resnext", False, 34_426_698),  # ResNeXt-29, 8×64d
        ("resnet", False, resnet_weights(18, 3)),
        ("resnet", True, resnet_weights(27, 3)),
    ],
)
def test_networks_have_the_published_size(name, cifar, weights):
    with torch.device("meta"):
        network = network_of(name, 3, 10, cifar)
    assert sum(p.numel() for p in network.parameters()) == weights


def test_resnext_for_cifar_has_two_blocks_a_stage_and_2560_outputs():
    with torch.device("meta"):
        network = network_of("resnext", 3, 10, True)
    assert network[-1].in_features == 2560
    grouped = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d) and m.groups > 1]
    assert [(m.in_channels, m.groups) for m in grouped] == [(c, 8) for c in (512, 512, 1024, 1024, 2048, 2048)]


def test_convolutions_begin_with_he_weights_by_their_outputs():
    torch.manual_seed(0)
    wide = [m for m in network_of("wrn", 1, 10, False).modules() if isinstance(m, torch.nn.Conv2d)][-1]
    expected = math.sqrt(2 / (wide.out_channels * 9))
    assert float(wide.weight.detach().std()) == pytest.approx(expected, rel=0.01)


def test_the_split_is_torchs_own_with_seed_0():
    split = Split(torch.arange(60).float().view(60, 1, 1, 1), torch.arange(60))
    one, other = random_split(split, 5)
    first, second = reference_split(range(60), [55, 5], generator=torch.Generator().manual_seed(0))
    assert one.y.tolist() == list(first)
    assert other.y.tolist() == list(second)


@pytest.mark.parametrize(("of", "records"), [("mnist", 55_000), ("fashion_mnist", 55_000)])
def test_real_splits(of, records):
    if not os.environ.get("DPOT_DATA"):
        pytest.skip("no data")
    data = BenchSplit(of).load(None)
    assert (len(data.train), len(data.validation), len(data.test)) == (records, 5_000, 10_000)
    assert data.comparable


def toy(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bright above or bright below."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    images = 0.3 * torch.rand(count, 1, 8, 8, generator=random)
    images[labels == 0, :, :4] += 0.6
    images[labels == 1, :, 4:] += 0.6
    return images, labels


def judge(validation_flipped: bool) -> tuple[ImageBench, dict[str, list[float]]]:
    judged = ImageBench(networks=["resnet"], epochs=12, samples=240)
    images, labels = toy(40, 1)
    judged.meet("toy", (images, 1 - labels if validation_flipped else labels))
    return judged, judged.evaluate(lambda n: toy(n, 0), *toy(60, 2), 2, 0)


def test_an_easy_problem_is_learned_and_the_epoch_is_chosen_by_what_is_said(monkeypatch):
    def small(name, channels, classes, cifar):
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, classes))

    monkeypatch.setattr("dpot.evaluation.image_bench.network_of", small)
    judged, found = judge(validation_flipped=False)
    whole = ("resnet", "resnet_sound", "resnet_last", "mean", "best", "mean_sound", "best_sound")
    assert set(found) == set(whole)
    assert found["resnet_sound"][0] > 90
    assert found["mean"] == found["best"] == found["resnet"]
    _, misled = judge(validation_flipped=True)
    assert misled["resnet"][0] < found["resnet"][0]  # the epoch that is worst by the true labels
    assert misled["resnet_sound"] == found["resnet_sound"]
    assert "not DPImageBench's protocol: 12 of 50 epochs; 240 of 60,000 samples" in judged.remarks()["protocol"]
    assert any("40 private validation images" in line for line in judged.uncovered())


def test_the_whole_protocol_says_so():
    judged = ImageBench()
    judged.meet("bench_cifar10", toy(4, 0))
    assert judged.remarks() == {"protocol": "DPImageBench"}
    assert judged.recipe is CIFAR
    assert (judged.frechet.reference, judged.frechet.round_to_bytes, judged.frechet.samples) == ("train", False, 60_000)
    assert isinstance(judged.frechet, FrechetInception)


def test_an_unknown_network_is_refused():
    with pytest.raises(UsageError, match="vgg is none of resnet, wrn, resnext"):
        ImageBench(networks=["vgg"])
