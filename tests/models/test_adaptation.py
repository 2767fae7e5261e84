"""The networks of domain adaptation: their shapes, and their gradients record by record."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from dpot.errors import UsageError
from dpot.models.adaptation import Reversal, digit_network, discriminator, network_for
from dpot.models.image_transport import ImageTransport
from dpot.training.clipped_sum import clipped_sum
from dpot.training.sanitise import clip_rows, per_sample_gradients, sum_of_clipped


def test_digits_have_320_features_between_0_and_1():
    network = network_for((1, 28, 28), 10)
    features = network.features(torch.randn(5, 1, 28, 28))
    assert features.shape == (5, 320)
    assert network.width == 320
    assert features.min() >= 0
    assert features.max() <= 1
    assert network(torch.randn(2, 1, 28, 28)).shape == (2, 10)
    sizes = [sum(p.numel() for p in part.parameters()) for part in (network.features, network.head)]
    assert sizes == [25 * 32 + 32 + 25 * 32 * 20 + 20, 320 * 100 + 100 + 100 * 10 + 10]


def test_ready_made_features_go_through_100_and_50():
    network = network_for((2048,), 31)
    assert [layer.out_features for layer in network.modules() if isinstance(layer, nn.Linear)] == [100, 50, 50, 31]
    assert network_for((2048,), 12, width=100).width == 100
    assert discriminator(50)(torch.randn(3, 50)).shape == (3, 2)
    with pytest.raises(UsageError, match="3, 32, 32"):
        network_for((3, 32, 32), 10)


def test_dropout_on_ready_made_features_is_off_by_default_and_while_measuring():
    def layers(network: nn.Module) -> list[float]:
        return [layer.p for layer in network.modules() if isinstance(layer, nn.Dropout)]

    assert layers(network_for((2048,), 31)) == []
    network = network_for((2048,), 31, dropout=0.5)
    assert layers(network) == [0.5, 0.5]  # one in g, one in the head
    plain = network_for((2048,), 31)
    plain.load_state_dict(dict(zip(plain.state_dict(), network.state_dict().values(), strict=True)))
    x = torch.randn(3, 2048)
    assert torch.equal(network.eval()(x), plain(x))
    assert not torch.equal(network.train()(x), plain(x))


@pytest.mark.parametrize("each_tensor", [False, True])
def test_clipped_sums_of_dann_are_those_of_the_per_record_gradients(each_tensor):
    torch.manual_seed(0)
    network = digit_network().double().eval()
    both = nn.Sequential(network.features, Reversal(), discriminator(320).double())
    x, y = torch.randn(6, 1, 28, 28, dtype=torch.float64), torch.ones(6, dtype=torch.int64)
    mask = torch.tensor([True, True, False, True, True, True])
    each = per_sample_gradients(both, functional.cross_entropy, x, y)
    flat = torch.cat([g.flatten(1) for g in each.values()], 1)
    clip = float(flat.norm(dim=1).median()) / (3 if each_tensor else 1)  # some rows are clipped, some are not
    loss = partial(functional.cross_entropy, reduction="sum")
    ours = clipped_sum(both, loss, clip, x, y, mask, each_tensor)
    for name, gradients in each.items():
        if each_tensor:
            expected = clip_rows(gradients, clip)[mask].sum(0)
        else:
            expected = sum_of_clipped(each, clip, mask)[name]
        torch.testing.assert_close(ours[name], expected, rtol=1e-6, atol=1e-9)


def test_reversal_turns_the_gradient_around():
    x = torch.randn(3, requires_grad=True)
    Reversal()(x).pow(2).sum().backward()
    torch.testing.assert_close(x.grad, -2 * x.detach())


def test_image_transport_begins_near_the_identity_and_shifts_as_told():
    move = ImageTransport()
    image = torch.full((1, 1, 28, 28), -1.0)
    image[0, 0, 10:18, 10:18] = 1.0
    assert (move(image) - image).abs().mean() < 0.02
    with torch.no_grad():
        move.theta[0, 2] = 2 * 3 / 28  # three pixels: the grid spans [-1, 1]
        moved = move(image)
    columns = torch.arange(28.0)
    ink = (moved[0, 0] + 1).sum(0)
    before = (image[0, 0] + 1).sum(0)
    centre = float((columns * ink).sum() / ink.sum())
    assert centre == pytest.approx(float((columns * before).sum() / before.sum()) - 3, abs=0.05)


def test_the_contrast_curve_is_a_power_times_a_gain_with_its_derivatives():
    move, images = ImageTransport().double(), torch.rand(3, 1, 8, 8, dtype=torch.float64) * 2 - 1
    with torch.no_grad():
        for parameter, value in ((move.log_blur, -3.0), (move.log_gamma, 0.4), (move.log_gain, -0.3)):
            parameter.fill_(value)
    parameters = [move.log_gamma, move.log_gain]
    plain = ((images + 1) / 2).clamp(min=1e-3) ** move.log_gamma.exp() * move.log_gain.exp()
    expected = plain.clamp(0, 1) * 2 - 1
    torch.testing.assert_close(move(images), expected)
    slope = torch.rand_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(move(images), parameters, slope), torch.autograd.grad(expected, parameters, slope)
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("count", [1, 128, 5000])
def test_features_of_digits_on_a_gpu_are_those_in_double_precision(count, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # the second convolution is the library's
    torch.manual_seed(0)
    there, here = digit_network().eval().cuda(), digit_network().eval().double()
    here.load_state_dict(there.state_dict())
    x, slope = torch.rand(count, 1, 28, 28) * 2 - 1, torch.randn(count, 320)
    x[: count // 4] = -1  # empty images: every value of a cell is the same
    ours, expected = there.features(x.cuda()), here.features(x.double())
    torch.testing.assert_close(ours.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    ours.backward(slope.cuda())
    expected.backward(slope.double())
    for (name, mine), other in zip(there.features.named_parameters(), here.features.parameters(), strict=True):
        apart = (mine.grad.cpu().double() - other.grad).norm() / other.grad.norm()
        assert apart < 5e-3, name  # of millions of cells a few have two values so close that rounding chooses


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_hook_on_the_first_convolution_sees_its_output_on_a_gpu():
    network = digit_network().cuda()
    seen = []
    hook = network.features[0].register_forward_hook(lambda layer, given, output: seen.append(output.shape))
    network.features(torch.rand(3, 1, 28, 28, device="cuda"))
    hook.remove()
    network.features(torch.rand(3, 1, 28, 28, device="cuda"))
    assert seen == [(3, 32, 24, 24)]
