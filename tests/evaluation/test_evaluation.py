"""Evaluation against closed forms, scipy and scikit-learn."""

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import nn

from dpot.errors import UsageError
from dpot.evaluation import classifiers
from dpot.evaluation.downstream import Downstream, dp_sinkhorn_network
from dpot.evaluation.fid import FrechetInception, RunningStatistics, frechet_distance
from dpot.evaluation.stepping import side_by_side
from dpot.models.pooling import ChannelDropout, ConvPoolFirst, PooledConv2d


def random_gaussian(seed, size=6):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    return torch.tensor(rng.normal(size=size)), torch.tensor(root @ root.T)


def test_frechet_distance_equals_the_matrix_square_root():
    a, b = random_gaussian(0), random_gaussian(1)
    cross = np.real(sqrtm(a[1].numpy() @ b[1].numpy()))
    expected = float((a[0] - b[0]).square().sum()) + float(a[1].trace() + b[1].trace()) - 2 * np.trace(cross)
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-8)
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b, a), rel=1e-9)


def test_frechet_distance_of_a_shift_is_its_square():
    mean, covariance = random_gaussian(2)
    assert frechet_distance((mean, covariance), (mean + 2, covariance)) == pytest.approx(4 * len(mean), rel=1e-9)


def test_running_statistics_equal_numpy_whatever_the_pieces():
    rows = torch.randn(101, 5) * 3 + 1000
    running = RunningStatistics()
    for piece in rows.split(17):
        running.add(piece)
    mean, covariance = running.finish()
    np.testing.assert_allclose(mean, rows.double().mean(0), rtol=1e-12)
    np.testing.assert_allclose(covariance, np.cov(rows.double().numpy().T), rtol=1e-6, atol=1e-8)


def test_pixel_distance_separates_noise_from_itself():
    protocol = FrechetInception(samples=200)
    noise = torch.rand(400, 1, 28, 28)
    first, second = protocol.statistics(noise[:200], None), protocol.statistics(noise[200:], None)
    dark = protocol.statistics(noise[:200] * 0.1, None)
    assert frechet_distance(first, second) < 0.1 * frechet_distance(first, dark)


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    return torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)


def test_logistic_regression_is_scikit_learns(digits):
    x, y = digits
    (predict,) = side_by_side([classifiers.logistic_regression(x[:1200], y[:1200], 10)], x.device)
    ours = predict(x[1200:])
    theirs = LogisticRegression(max_iter=5000).fit(x[:1200].numpy(), y[:1200].numpy()).predict(x[1200:].numpy())
    assert (ours.numpy() == theirs).mean() > 0.99


def test_perceptron_is_as_good_as_scikit_learns(digits):
    x, y = digits
    generator = torch.Generator().manual_seed(0)
    (predict,) = side_by_side([classifiers.multilayer_perceptron(x[:1200], y[:1200], 10, generator)], x.device)
    ours = predict(x[1200:])
    reference = MLPClassifier(random_state=0).fit(x[:1200].numpy(), y[:1200].numpy())
    ours_score = float((ours == y[1200:]).float().mean())
    assert ours_score == pytest.approx(reference.score(x[1200:].numpy(), y[1200:].numpy()), abs=0.02)


@pytest.mark.parametrize("protocol", ["merf", "sinkhorn", "dp_sinkhorn"])
def test_real_data_are_learned_and_shuffled_labels_are_not(digits, protocol):
    x, y = digits
    images = x.view(-1, 1, 8, 8)
    rows = torch.arange(4_000) % 1000  # many steps per epoch, as with the protocols' 60,000 samples
    downstream = Downstream(
        protocol=protocol, kinds=["logreg"], samples=len(rows), passes=2 if protocol == "merf" else 1
    )
    shuffled = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))]
    learned = downstream.evaluate(lambda n: (images[rows], y[rows]), images[1000:], y[1000:], 10, seed=0)
    guessed = downstream.evaluate(lambda n: (images[rows], shuffled[rows]), images[1000:], y[1000:], 10, seed=0)
    assert len(learned["logreg"]) == downstream.passes
    assert min(learned["logreg"]) > 80
    assert max(guessed["logreg"]) < 40


def test_cnn_learns(digits):
    x, y = digits
    images = x.view(-1, 1, 8, 8)
    downstream = Downstream(protocol="gs_wgan", kinds=["cnn"], samples=400, passes=1)
    assert downstream.evaluate(lambda n: (images[:n], y[:n]), images[1200:], y[1200:], 10, seed=0)["cnn"][0] > 60


def test_the_cnn_of_dp_sinkhorns_code_has_its_number_of_weights():
    assert sum(p.numel() for p in classifiers.ThreeConvolutions((1, 28, 28), 10).parameters()) == 241_546
    assert classifiers.ThreeConvolutions((3, 32, 32), 2)[1][8].in_features == 2048


def test_dp_sinkhorns_cnn_is_trained_by_either_of_its_optimisers():
    """Batches of 512 and patience of 60 epochs with both; 500 epochs of plain SGD, 300 of Adam (its public code)."""
    published = {"cnn": (torch.optim.SGD, 1e-3, 0, 500), "cnn_adam": (torch.optim.Adam, 1e-4, 1e-6, 300)}
    for kind, (optimiser, rate, decay, epochs) in published.items():
        network, chosen, plan = dp_sinkhorn_network(kind, 784, (1, 28, 28), 10, torch.device("cpu"))
        (group,) = chosen.param_groups
        assert isinstance(network, classifiers.ThreeConvolutions)
        assert (type(chosen), group["lr"], group["weight_decay"]) == (optimiser, rate, decay)
        assert group.get("momentum", 0) == 0
        assert plan == {"batch": 512, "max_epochs": epochs, "patience": 60}
    with pytest.raises(UsageError, match="cnn_adam is DP-Sinkhorn's"):
        Downstream(protocol="merf", kinds=["cnn_adam"])


def test_dp_sinkhorns_classifiers_see_black_as_minus_one():
    seen = []
    downstream = Downstream(protocol="dp_sinkhorn", kinds=["mlp"], samples=40, passes=1)
    downstream._fit = lambda kind, x, *_: seen.append(x)
    images = torch.rand(40, 1, 2, 2).round()
    list(downstream.exams(lambda n: (images, torch.zeros(n)), images, torch.zeros(40), 2, 0))
    assert set(seen[0].unique().tolist()) == {-1.0, 1.0}


def test_sklearn_backend_refuses_what_it_cannot_do():
    with pytest.raises(UsageError, match="backend=sklearn"):
        Downstream(kinds=["cnn"], backend="sklearn")


def test_dropped_channels_are_whole_and_the_others_keep_the_mean():
    torch.manual_seed(0)
    layer, x = ChannelDropout(0.25), torch.rand(400, 50, 2, 3) + 0.5
    ratio = layer(x) / x
    torch.testing.assert_close(ratio, ratio[:, :, :1, :1].expand_as(ratio))
    assert set(ratio.mul(3).round().unique().tolist()) == {0.0, 4.0}  # zero or 1/(1 - p)
    assert float(ratio.mean()) == pytest.approx(1, abs=5 * (1 / 3 / 20_000) ** 0.5)
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.parametrize(
    ("shape", "expected"), [((1, 28, 28), True), ((1, 27, 28), False), ((1, 32, 6), True), ((3, 32, 32), False)]
)
def test_the_cnn_takes_the_fused_kernel_where_its_result_is_the_layers(shape, expected):
    inner = classifiers.SmallCNN(shape, 10)[1]
    assert inner._is_simple(torch.Size((5, *shape)), inner[0]) is expected


@pytest.mark.parametrize("border", [True, False])
@pytest.mark.parametrize("side", [7, 14])
def test_a_pooled_convolution_is_the_layers_it_stands_for(side, border):
    torch.manual_seed(0)
    layer = PooledConv2d(5, 8, 0.25, border)
    plain = nn.Sequential(nn.Conv2d(5, 8, 3, padding=int(border)), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=border))
    plain[0].load_state_dict(layer.state_dict())
    x = torch.randn(3, 5, side, side)
    torch.testing.assert_close(layer.eval()(x), plain(x))
    ratio = (layer.train()(x) / plain(x)).nan_to_num(nan=0.0)  # nothing is left of a channel, or 4/3 of it
    assert set(ratio.mul(3).round().unique().tolist()) == {0.0, 4.0}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("network", [classifiers.SmallCNN, classifiers.ThreeConvolutions])
def test_the_cnn_on_a_gpu_is_the_one_in_double_precision(network, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    there, here = network((1, 28, 28), 10).cuda().eval(), network((1, 28, 28), 10).eval()
    here.load_state_dict(there.state_dict())
    here.double()
    x, y = torch.rand(128, 784), torch.arange(128) % 10
    there_loss = torch.nn.functional.cross_entropy(there(x.cuda()), y.cuda())
    here_loss = torch.nn.functional.cross_entropy(here(x.double()), y)
    assert there_loss.item() == pytest.approx(here_loss.item(), rel=1e-5)
    there_loss.backward()
    here_loss.backward()
    for (name, mine), other in zip(there.named_parameters(), here.parameters(), strict=True):
        assert float((mine.grad.cpu().double() - other.grad).norm() / other.grad.norm()) < 1e-3, name


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("network", [classifiers.SmallCNN, classifiers.ThreeConvolutions])
def test_the_cnn_drops_the_same_channels_with_and_without_our_kernels(network, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model = network((1, 28, 28), 10).cuda().train()
    x, y = torch.rand(128, 784, device="cuda"), torch.arange(128, device="cuda") % 10

    def gradients():
        torch.manual_seed(0)
        return torch.autograd.grad(torch.nn.functional.cross_entropy(model(x), y), model.parameters())

    ours = gradients()
    for layer in (ConvPoolFirst, PooledConv2d):
        monkeypatch.setattr(layer, "_takes", lambda *_: False)
    for mine, other in zip(ours, gradients(), strict=True):
        assert float((mine - other).norm() / other.norm()) < 1e-3


def test_a_regression_whose_gradient_stays_above_the_tolerance_ends_where_steps_are_rounding_errors():
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 10
    images = (
        0.5 + 0.05 * torch.randn(300, 784, generator=random) + 0.02 * torch.randn(10, 784, generator=random)[labels]
    )
    turns = sum(1 for _ in classifiers.logistic_regression(images, labels, 10, tolerance=0.0))
    assert turns < 10  # of 50 iterations; 5,000 are allowed
