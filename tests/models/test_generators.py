"""Generators against the parameter counts of the papers' own networks and torch's reference layers."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dpot.models.generator import one_hot, synthesize
from dpot.models.layers import NarrowConv2d, Normed, SmoothDoubling, UpsampledConv2d, _learns, norm_relu
from dpot.models.linear import Linear
from dpot.models.merf_conv import MerfConv
from dpot.models.sinkhorn_biggan import SinkhornBigGAN, doubled, doubled_and_convolved
from dpot.models.sinkhorn_dcgan import SinkhornDCGAN
from dpot.models.sketch_dcgan import SketchDCGAN

MODELS = [
    (MerfConv, 10, (1, 28, 28), 167_161),
    (SinkhornDCGAN, 10, (1, 28, 28), 957_969),
    (SinkhornBigGAN, 2, (3, 32, 32), 3_886_595),
]


@pytest.mark.parametrize(("model", "classes", "shape", "parameters"), MODELS)
def test_parameter_count_is_the_papers(model, classes, shape, parameters):
    assert sum(p.numel() for p in model(classes=classes, shape=shape).parameters()) == parameters


@pytest.mark.parametrize(("model", "classes", "shape", "parameters"), MODELS)
def test_synthesize_gives_unit_pixels_and_balanced_labels(model, classes, shape, parameters):
    network = model(classes=classes, shape=shape)
    images, labels = synthesize(network, 3 * classes, torch.Generator().manual_seed(0), "cpu")
    assert images.shape == (3 * classes, *shape)
    assert images.min() >= 0
    assert images.max() <= 1
    assert torch.bincount(labels).tolist() == [3] * classes
    assert network.training


@pytest.mark.parametrize(
    ("size", "inputs", "outputs", "kernel"), [(1, 2, 3, 3), (2, 1, 1, 5), (7, 4, 3, 5), (14, 2, 1, 1)]
)
def test_upsampled_convolution_equals_torchs_two_layers(size, inputs, outputs, kernel):
    layer = UpsampledConv2d(inputs, outputs, kernel, size)
    x = torch.randn(3, inputs, size, size, requires_grad=True)
    up = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
    theirs = F.conv2d(up, layer.weight, layer.bias, padding=kernel // 2)
    ours = layer(x.permute(2, 0, 1, 3)).permute(1, 2, 0, 3)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    slope = torch.randn_like(ours)
    wanted = (x, layer.weight, layer.bias)
    a = torch.autograd.grad((ours * slope).sum(), wanted, retain_graph=True)
    b = torch.autograd.grad((theirs * slope).sum(), wanted)
    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("inputs", "outputs", "kernel"), [(6, 1, 3), (4, 3, 5), (3, 2, 1)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_narrow_convolution_equals_torchs(inputs, outputs, kernel, layout):
    layer = NarrowConv2d(inputs, outputs, kernel)
    x = torch.randn(2, inputs, 8, 6).contiguous(memory_format=layout).requires_grad_()
    theirs = F.conv2d(x, layer.weight, layer.bias, padding=kernel // 2)
    ours = layer(x)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    slope = torch.randn_like(ours)
    wanted = (x, layer.weight, layer.bias)
    a = torch.autograd.grad((ours * slope).sum(), wanted, retain_graph=True)
    b = torch.autograd.grad((theirs * slope).sum(), wanted)
    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_narrow_convolution_in_bfloat16_is_the_one_in_single_precision():
    torch.manual_seed(0)
    layer, x = NarrowConv2d(64, 1, 3), torch.randn(3, 64, 8, 8).contiguous(memory_format=torch.channels_last)
    expected = layer(x)
    (wanted,) = torch.autograd.grad(expected.square().sum(), layer.weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = layer(x.to(torch.bfloat16))
    (found,) = torch.autograd.grad(ours.float().square().sum(), layer.weight)
    assert ours.shape == expected.shape
    assert ((ours.float() - expected).norm() / expected.norm()).item() < 0.01
    assert float((found - wanted).norm() / wanted.norm()) < 0.02


def test_dcgan_equals_its_description_in_torchs_layers():
    model = SinkhornDCGAN(classes=10, shape=(1, 28, 28))
    code, labels = torch.rand(5, 16), torch.arange(5)
    x = torch.cat([code, model.embedding(labels)], 1)[:, :, None, None]
    x = F.conv_transpose2d(x, model.first.weight)
    for layer in model.layers:
        x = F.conv2d(x, layer.weight, layer.bias, padding=1) if isinstance(layer, NarrowConv2d) else layer(x)
    torch.testing.assert_close(model(code, labels), torch.tanh(x), atol=1e-5, rtol=1e-4)


def test_behind_the_tanh_linear_images_are_normal_with_the_mean_of_their_class_and_the_factors_covariance():
    torch.manual_seed(0)
    model = Linear(classes=2, shape=(1, 2, 3), code_size=2)
    with torch.no_grad():
        model.means.copy_(torch.randn(2, 1, 2, 3) / 4)
        model.factors.copy_(torch.randn(2, 1, 2, 3) / 4)
    images, labels = synthesize(model, 200_000, torch.Generator().manual_seed(1), "cpu")
    factors = model.factors.detach().flatten(1)
    for label in range(2):
        rows = torch.atanh(images[labels == label].double() * 2 - 1).flatten(1)
        torch.testing.assert_close(rows.mean(0).float(), model.means[label].detach().flatten(), atol=0.01, rtol=0)
        torch.testing.assert_close(rows.T.cov().float(), factors.T @ factors, atol=0.01, rtol=0.02)


def test_one_hot_equals_torch():
    labels = torch.tensor([3, 0, 9, 3])
    torch.testing.assert_close(one_hot(labels, 10), F.one_hot(labels, 10).float())


def test_batch_statistics_normalise_by_the_batch_and_leave_the_averages_alone():
    model = SinkhornDCGAN(classes=10, shape=(1, 28, 28))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    drawn, labels = synthesize(model, 20, torch.Generator().manual_seed(0), "cpu", batch_statistics=True)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(m.training and m.track_running_stats for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d))
    with torch.no_grad():
        code = model.code(20, torch.Generator().manual_seed(0), "cpu")
        expected = (model(code, labels) + 1) / 2  # in training mode: by the batch
    torch.testing.assert_close(drawn, expected)
    running, _ = synthesize(model, 20, torch.Generator().manual_seed(0), "cpu")
    assert not torch.allclose(running, drawn)


def test_in_bfloat16_biggan_makes_the_same_images_and_finds_its_norms_in_single_precision() -> None:
    torch.manual_seed(0)
    model = SinkhornBigGAN(2, (3, 16, 16), code_size=4, channels=16)
    other = SinkhornBigGAN(2, (3, 16, 16), code_size=4, channels=16)
    other.load_state_dict(model.state_dict())
    code, labels = torch.rand(40, 4), torch.arange(40) % 2
    images = model(code, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = other(code, labels)
    assert lowered.dtype == torch.float32
    assert not torch.equal(lowered, images)
    assert float((lowered - images).detach().norm() / images.detach().norm()) < 0.03
    for name, value in model.state_dict().items():
        if "parametrizations" in name:
            assert torch.equal(value, other.state_dict()[name]), name
    for made, one in ((images, model), (lowered, other)):
        made.square().sum().backward()
        assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in one.parameters())


def test_smooth_doublings_have_no_pattern_of_every_second_pixel() -> None:
    torch.manual_seed(0)
    doubling, plain = SmoothDoubling(3, 5), nn.ConvTranspose2d(3, 5, 4, 2, 1, bias=False)
    flat = torch.randn(2, 3, 1, 1).expand(-1, -1, 8, 8)
    inside = doubling(flat)[:, :, 4:-4, 4:-4]
    assert doubling(flat).shape == (2, 5, 16, 16)
    torch.testing.assert_close(inside, inside[:, :, :1, :1].expand_as(inside))
    assert plain(flat)[:, :, 4:-4, 4:-4].std((2, 3)).min() > 1e-3
    zeros_between = torch.zeros(2, 3, 16, 16)
    x = torch.randn(2, 3, 8, 8)
    zeros_between[:, :, ::2, ::2] = x
    blur = torch.outer(*[torch.tensor([1.0, 3.0, 3.0, 1.0]) / 4] * 2)
    turned = doubling.weight.transpose(0, 1).flip(
        2, 3
    )  # a transposed convolution is a convolution with the kernel turned
    sharp = F.conv2d(F.pad(zeros_between, (3, 3, 3, 3)), turned)
    blurred = F.conv2d(sharp.flatten(0, 1)[:, None], blur[None, None]).view(2, 5, 17, 17)
    torch.testing.assert_close(doubling(x), blurred[:, :, :16, :16])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("inputs", "outputs", "kernel"), [(64, 1, 3), (33, 3, 3), (16, 2, 5)])
def test_narrow_convolutions_on_a_gpu_are_those_in_double_precision(inputs, outputs, kernel):
    assert not torch.backends.cuda.matmul.allow_tf32  # torch's default; dpot's tasks turn it on
    torch.manual_seed(0)
    there, here = NarrowConv2d(inputs, outputs, kernel), NarrowConv2d(inputs, outputs, kernel)
    here.load_state_dict(there.state_dict())
    there.cuda().to(memory_format=torch.channels_last), here.double()
    x = torch.randn(70, inputs, 28, 28)
    near, far = x.double().requires_grad_(), x.cuda().to(memory_format=torch.channels_last).requires_grad_()
    ours, expected = there(far), here(near)
    assert ours.grad_fn.name().startswith("_NarrowConv")
    torch.testing.assert_close(ours.cpu().double(), expected, rtol=1e-4, atol=1e-5)
    slope = torch.randn_like(expected)
    ours.backward(slope.float().cuda())
    expected.backward(slope)
    pairs = (far, near), (there.weight, here.weight), (there.bias, here.bias)
    for found, wanted in pairs:
        torch.testing.assert_close(found.grad.cpu().double(), wanted.grad, rtol=1e-3, atol=1e-3)
    assert there.weight.grad.stride() == there.weight.stride()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_smooth_doublings_on_a_gpu_are_those_in_double_precision(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    there, here = SmoothDoubling(32, 70, bias=True).cuda(), SmoothDoubling(32, 70, bias=True)
    here.load_state_dict(there.state_dict())
    here.double()
    x = torch.randn(9, 32, 7, 7)
    near, far = x.double().requires_grad_(), x.cuda().to(memory_format=torch.channels_last).requires_grad_()
    ours, expected = there(far), here(near)
    torch.testing.assert_close(ours.cpu().double(), expected, rtol=1e-4, atol=1e-5)
    slope = torch.randn_like(expected)
    ours.backward(slope.float().cuda())
    expected.backward(slope)
    torch.testing.assert_close(far.grad.cpu().double(), near.grad, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(there.weight.grad.cpu().double(), here.weight.grad, rtol=1e-3, atol=1e-3)


def test_a_normed_sequential_is_a_sequential():
    torch.manual_seed(0)
    layers = [nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.LeakyReLU(0.2)]
    x = torch.randn(3, 4, 5, 5)
    for mode in (True, False):
        normed, plain = Normed(*copy.deepcopy(layers)).train(mode), nn.Sequential(*copy.deepcopy(layers)).train(mode)
        torch.testing.assert_close(normed(x), plain(x))
        assert normed.state_dict().keys() == plain.state_dict().keys()


def test_the_fused_norm_is_for_training_alone(monkeypatch):
    model = SketchDCGAN(classes=10, shape=(1, 28, 28))
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert all(map(_learns, norms))
    seen, forward = [], SketchDCGAN.forward

    def watched(self, code, labels):
        seen.extend(map(_learns, norms))
        return forward(self, code, labels)

    monkeypatch.setattr(SketchDCGAN, "forward", watched)
    for by_batch in (False, True):  # both leave the running averages alone
        synthesize(model, 20, torch.Generator().manual_seed(0), "cpu", batch_statistics=by_batch)
    assert len(seen) == 2 * len(norms)
    assert not any(seen)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shape", [(9, 70, 7, 7), (1280, 64, 28, 28)])
def test_norms_and_their_relus_on_a_gpu_are_those_in_double_precision(shape):
    torch.manual_seed(0)
    there, here = nn.BatchNorm2d(shape[1]).cuda(), nn.BatchNorm2d(shape[1]).double().cuda()
    x = torch.randn(shape, device="cuda").to(torch.bfloat16, memory_format=torch.channels_last) + 1
    near, far = x.double().requires_grad_(), x.clone(memory_format=torch.channels_last).requires_grad_()
    ours, same = norm_relu(far, there)
    assert ours.grad_fn.name().startswith("_NormReLU")
    expected = torch.relu(here(near))
    torch.testing.assert_close(ours.double(), expected, rtol=1e-2, atol=1e-2)
    slope = torch.randn_like(ours)
    torch.autograd.backward([ours, same], [slope, slope])
    torch.autograd.backward([expected, near], [slope.double(), slope.double()])
    torch.testing.assert_close(far.grad.double(), near.grad, rtol=2e-2, atol=2e-2)
    for name, (found, wanted) in {
        "weight": (there.weight.grad, here.weight.grad),
        "bias": (there.bias.grad, here.bias.grad),
        "mean": (there.running_mean, here.running_mean),
        "variance": (there.running_var, here.running_var),
    }.items():
        error = float((found.double() - wanted).norm() / wanted.norm())
        assert error < 1e-3, name
    assert there.num_batches_tracked == here.num_batches_tracked == 1


@pytest.mark.parametrize("size", [(1, 1), (4, 4), (3, 5)])
def test_a_doubled_image_is_convolved_as_if_it_were_there(size):
    x = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True)
    layer = torch.nn.Conv2d(3, 5, 3, padding=1).double()
    pixels = [torch.stack([x[..., i // 2, j // 2] for j in range(2 * size[1])], -1) for i in range(2 * size[0])]
    plain = layer(torch.stack(pixels, -2))
    assert torch.allclose(doubled_and_convolved(x, layer), plain)
    assert torch.equal(doubled(x), torch.stack(pixels, -2))
    slope = torch.randn_like(plain)
    sources = [x, *layer.parameters()]
    expected = torch.autograd.grad(plain, sources, slope)
    for one, other in zip(torch.autograd.grad(doubled_and_convolved(x, layer), sources, slope), expected, strict=True):
        assert torch.allclose(one, other)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_in_bfloat16_the_dcgan_makes_nearly_the_same_images_and_gradients():
    plain, rounded = (SinkhornDCGAN(10, (1, 28, 28), bfloat16=flag).cuda() for flag in (False, True))
    rounded.load_state_dict(plain.state_dict())
    code, labels = torch.rand(70, 16, device="cuda"), torch.arange(70, device="cuda") % 10
    images = [model(code, labels) for model in (plain, rounded)]
    assert all(x.dtype == torch.float32 and x.is_contiguous() for x in images)
    assert float(((images[0] - images[1]).norm() / images[0].norm()).detach()) < 0.02
    slope = torch.randn_like(images[0])
    found = [torch.autograd.grad(x, list(m.parameters()), slope) for x, m in zip(images, (plain, rounded), strict=True)]
    for one, other in zip(*found, strict=True):
        assert float((one - other).norm() / one.norm()) < 0.15


@pytest.mark.parametrize("subpixel", [False, True])
def test_grain_belongs_to_the_code(subpixel):
    """The same codes give the same images, and the noise behind the code changes them without changing the rest."""
    torch.manual_seed(0)
    model = SketchDCGAN(2, (3, 13, 11), width=4, blocks=1, subpixel=subpixel, smooth=False, resized=True, grain=True)
    assert model.size["resized"]
    model.eval()
    random, labels = torch.Generator().manual_seed(0), torch.tensor([0, 1])
    code = model.code(2, random, "cpu")
    assert code.shape[1] == 32 + (0 if subpixel else 14 * 14)
    with torch.no_grad():
        for grain in model.grains:
            grain.strength.fill_(0.5)
        assert torch.equal(model(code, labels), model(code, labels))
        changed = code.clone()
        changed[1, 32:] += 1
        assert model(code, labels).shape == (2, 3, 13, 11)
        assert torch.equal(model(code, labels)[0], model(changed, labels)[0])
        assert torch.equal(model(code, labels)[1], model(changed, labels)[1]) == subpixel
