"""DP-SGD and the paper's training on tiny networks: gradients against Opacus, sensitivity, statements."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dpot.errors import PrivacyError, UsageError
from dpot.methods.classify.base import Classification
from dpot.methods.classify.dp_sgd import DPSGD, SGD, summed_loss
from dpot.methods.classify.wdp_sgd import WDPSGD
from dpot.models.wdp_cnn import FirstConv2d, WdpCNN
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.statement import Statement
from dpot.privacy.wdp.accountants import WassersteinAccountant
from dpot.training.clipped_sum import clipped_sum
from dpot.training.sanitise import per_sample_gradients, sum_of_clipped


def tiny(norm, filters=4, shape=(1, 16, 16), classes=3):
    torch.manual_seed(0)
    return WdpCNN(shape, classes, norm, filters=filters)


def problem(norm, budget, records=96, batch=12, epochs=2, **changes):
    random = torch.Generator().manual_seed(1)
    images = torch.rand(records, 1, 16, 16, generator=random)
    labels = torch.randint(3, (records,), generator=random)
    settings = {
        "images": images,
        "labels": labels,
        "network": tiny(norm),
        "accuracy": lambda: 50.0,
        "batch": batch,
        "epochs": epochs,
        "learning_rate": 0.1,
        "noise_multiplier": 0.01,
        "budget": budget,
        "ledger": Ledger.of(budget),
        "noise": NoiseSource(seed=3),
        "random": random,
    }
    return Classification(**(settings | changes))


PAPER = Budget(epsilon=None, mode="paper")


@pytest.mark.parametrize(("shape", "head", "count"), [((1, 28, 28), "selu", 573_834), ((3, 32, 32), "relu", None)])
def test_the_networks_have_the_papers_layers(shape, head, count):
    network = WdpCNN(shape, 10, "batch")
    sizes = [(m.in_features, m.out_features) for m in network.modules() if isinstance(m, nn.Linear)]
    assert sizes == ([(1024, 384), (384, 192), (192, 10)] if head == "selu" else [(1600, 384), (384, 384), (384, 10)])
    if count:
        assert sum(p.numel() for p in network.parameters()) == count
    assert network(torch.rand(2, *shape)).shape == (2, 10)


@pytest.mark.parametrize("colours", [1, 3])
def test_the_first_convolution_is_a_convolution(colours):
    layer = FirstConv2d(colours, 6, 5).double()
    images = torch.rand(3, colours, 12, 10, dtype=torch.float64)
    plain = F.conv2d(images, layer.weight, layer.bias)
    torch.testing.assert_close(layer(images), plain)
    ours = torch.autograd.grad(layer(images).square().sum(), layer.weight)
    torch.testing.assert_close(ours, torch.autograd.grad(plain.square().sum(), layer.weight))


def test_images_too_small_are_refused():
    with pytest.raises(UsageError, match="too small"):
        WdpCNN((1, 8, 8), 10, "group")


def test_per_record_gradients_are_opacus_own():
    from opacus import GradSampleModule

    network = tiny("group")
    images, labels = torch.rand(5, 1, 16, 16), torch.tensor([0, 1, 2, 0, 1])
    ours = per_sample_gradients(network, F.cross_entropy, images, labels)
    theirs = GradSampleModule(tiny("group"), loss_reduction="sum")
    F.cross_entropy(theirs(images), labels, reduction="sum").backward()
    for name, parameter in theirs._module.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad_sample, rtol=1e-4, atol=1e-6)


def test_a_batchnorm_network_is_refused_by_dp_sgd():
    budget = Budget(epsilon=5.0)
    with pytest.raises(UsageError, match="GroupNorm"):
        DPSGD().prepare(problem("batch", budget)).run()


def by_vmap(network, images, labels, clip, mask):
    gradients = per_sample_gradients(network, F.cross_entropy, images, labels)
    return sum_of_clipped(gradients, clip, mask)


@pytest.mark.parametrize("clip", [1e-3, 0.5, 1e6])
@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 19, 16)])
def test_the_sum_by_layers_is_the_sum_of_clipped_gradients(shape, clip):
    network = tiny("group", shape=shape).double()
    images, labels = torch.rand(7, *shape, dtype=torch.float64), torch.arange(7) % 3
    mask = torch.tensor([True, False, True, True, True, False, True])
    images[1] = math.nan  # padding may hold anything
    ours = clipped_sum(network, summed_loss, clip, images, labels, mask)
    direct = by_vmap(network, images, labels, clip, mask)
    assert list(ours) == [name for name, _ in network.named_parameters()]
    for name, total in direct.items():
        torch.testing.assert_close(ours[name], total, rtol=1e-9, atol=1e-12)


def test_strides_and_padding_are_seen():
    network = nn.Sequential(
        nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), nn.Flatten(), nn.Linear(60, 3)
    ).double()
    images, labels = torch.rand(5, 2, 9, 5, dtype=torch.float64), torch.arange(5) % 3
    direct = by_vmap(network, images, labels, 0.1, None)
    for name, total in clipped_sum(network, summed_loss, 0.1, images, labels).items():
        torch.testing.assert_close(total, direct[name], rtol=1e-9, atol=1e-12)


def test_a_record_without_a_finite_gradient_counts_as_zero():
    network = tiny("group")
    images, labels = torch.rand(4, 1, 16, 16), torch.arange(4) % 3
    images[2] = math.inf
    without = clipped_sum(network, summed_loss, 1.0, images[[0, 1, 3]], labels[[0, 1, 3]])
    for name, total in clipped_sum(network, summed_loss, 1.0, images, labels).items():
        torch.testing.assert_close(total, without[name], rtol=1e-4, atol=1e-6)


def test_layers_that_mix_records_are_refused():
    images, labels = torch.rand(4, 1, 16, 16), torch.arange(4) % 3
    with pytest.raises(UsageError, match="GroupNorm"):
        clipped_sum(tiny("batch"), summed_loss, 1.0, images, labels)


def test_one_record_moves_the_sum_by_at_most_the_clip():
    network = tiny("group").double()
    images, labels = torch.rand(6, 1, 16, 16, dtype=torch.float64), torch.arange(6) % 3
    images[0] *= 1e4  # an outlier
    for clip in (0.01, 1.0):
        sums = []
        for mask in (torch.ones(6, dtype=torch.bool), torch.tensor([False, *[True] * 5])):
            total = clipped_sum(network, summed_loss, clip, images, labels, mask)
            sums.append(torch.cat([t.flatten() for t in total.values()]))
        assert float((sums[0] - sums[1]).norm()) <= clip


def test_dp_sgd_charges_what_it_runs_and_keeps_the_budget():
    budget = Budget(epsilon=2.0, delta=1e-5)
    own = problem("group", budget)
    method = DPSGD(learning_rate=0.05)
    outcome = method.prepare(own).run()
    assert outcome.steps == own.steps == 16
    entry = own.ledger.entries[0]
    assert (entry.count, str(entry.sampler)) == (16, "poisson")
    assert entry.event.rate == pytest.approx(12 / 96)
    assert entry.event.event.noise_multiplier == pytest.approx(method.multiplier)
    assert own.ledger.epsilon() <= 2.0
    statement = Statement.of(own.ledger, NoiseSource().record(), accountants=["dpot_rdp_tight"])
    assert statement.rigorous
    assert list(own.log.accuracies) == [8]  # after the first epoch; the last is the task's to measure
    budgets = method.budgets(own, [8, 16])
    assert budgets.running["epsilon"][0] < budgets.running["epsilon"][1] <= 2.0
    assert budgets.running["epsilon"][1] == pytest.approx(own.ledger.epsilon())
    assert "PLD ε" in str(budgets.final[0])


def test_the_noise_of_dp_sgd_has_the_calibrated_size():
    """All images alike and gradients known: what is left over in the weights after one step is the noise."""
    own = problem("group", Budget(epsilon=1.0), epochs=1, max_steps=1)
    method = DPSGD(learning_rate=1.0, momentum=0.0, clip=1e-6)  # the signal is below C·batch/B = 1e-6
    before = torch.cat([p.detach().flatten().clone() for p in own.network.parameters()])
    method.prepare(own).run()
    after = torch.cat([p.detach().flatten() for p in own.network.parameters()])
    moved = (after - before).double() * own.batch / (method.multiplier * 1e-6)
    # many thousand coordinates of unit noise; float32 weights round the tiny step, so compare loosely
    assert float(moved.std()) == pytest.approx(1.0, rel=0.05)


def test_plain_sgd_is_not_private():
    own = problem("batch", Budget(epsilon=None))
    SGD().prepare(own).run()
    assert math.isinf(own.ledger.epsilon())
    assert not SGD().budgets(own, [1]).final


def test_the_papers_training_is_refused_in_sound_mode():
    with pytest.raises(PrivacyError, match="no \\(ε, δ\\) guarantee"):
        WDPSGD().prepare(problem("batch", Budget(epsilon=None)))


def test_the_papers_distances_are_those_of_leave_one_out_gradients():
    """Against autograd on the mean over the other records, without a mask and without noise."""
    own = problem("batch", PAPER, records=12, batch=12, epochs=1, noise_multiplier=0.0, learning_rate=1e-3)
    method = WDPSGD(zeroed=0.0, left_out=4, clip=0.5)
    twin = tiny("batch").train()
    engine = method.prepare(own)
    state = own.random.get_state()
    engine.run()
    # the engine's own order of the records: the only epoch's permutation holds all of them
    own.random.set_state(state)
    from dpot.training.samplers import ShuffledEpochs

    sampler = ShuffledEpochs(12, 12, own.random)
    own.random.set_state(state)
    sampler.reshuffle()
    index = sampler.draw().index
    losses = F.cross_entropy(twin(own.images[index]), own.labels[index], reduction="none")
    rows = []
    for j in range(4):
        others = losses[[i for i in range(12) if i != j]].mean()
        flat = torch.cat([g.flatten() for g in torch.autograd.grad(others, list(twin.parameters()), retain_graph=True)])
        rows.append(flat / max(1.0, float(flat.norm()) / 0.5))
    direct = [float((a - b).norm()) for a, b in itertools.combinations(rows, 2)]
    np.testing.assert_allclose(method.distances[0].numpy(), direct, rtol=2e-3, atol=1e-6)


def test_the_papers_update_masks_and_its_statement_says_no_guarantee():
    own = problem("batch", PAPER, epochs=1, max_steps=1)
    method = WDPSGD(zeroed=0.9)
    before = torch.cat([p.detach().flatten().clone() for p in own.network.parameters()])
    method.prepare(own).run()
    after = torch.cat([p.detach().flatten() for p in own.network.parameters()])
    assert float((after != before).double().mean()) == pytest.approx(0.1, abs=0.01)
    statement = Statement.of(own.ledger, NoiseSource().record())
    assert statement.epsilon is None
    assert not statement.rigorous
    assert any("BatchNorm" in reason for reason in statement.reasons)
    assert statement.entries[0]["sampler"] == "shuffled"
    budgets = method.budgets(own, [1])
    assert all("no (ε, δ) guarantee exists" in str(budget) for budget in budgets.final)
    accountant = WassersteinAccountant(16, 32.0)
    accountant.accumulate(method.distances.double().numpy(), np.array([0.01]), 12 / 96)
    assert budgets.running["wasserstein"] == pytest.approx(accountant.history(1e-10).tolist())


def test_a_killed_training_goes_on_with_its_accuracies_and_distances(tmp_path):
    """Interrupted after the first epoch and resumed: as many accuracies and rows of distances as without."""

    class Stop(Exception):
        pass

    calls = []

    def accuracy():
        calls.append(1)
        if len(calls) == 2:
            raise Stop
        return 10.0 * len(calls)

    settings = {"checkpoints": tmp_path, "epochs": 3, "fingerprint": "x"}
    first = problem("batch", PAPER, accuracy=accuracy, **settings)
    engine = WDPSGD().prepare(first)
    engine._checkpoints.policy.__dict__["every_seconds"] = 0.0
    with pytest.raises(Stop):
        engine.run()
    again = problem("batch", PAPER, **settings)
    method = WDPSGD()
    outcome = method.prepare(again).run()
    assert outcome.resumed_at
    assert list(again.log.accuracies) == [8, 16]
    assert again.log.accuracies[8] == 10.0
    assert bool((method.distances > 0).all())
    assert again.ledger.releases == 24


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_steps_are_captured_on_a_gpu(norm):
    budget = PAPER if norm == "batch" else Budget(epsilon=2.0)
    own = problem(norm, budget)
    device = torch.device("cuda:0")
    own.images, own.labels, own.network = own.images.to(device), own.labels.to(device), own.network.to(device)
    own.noise, own.random = NoiseSource(device=device), torch.Generator(device).manual_seed(1)
    method = WDPSGD() if norm == "batch" else DPSGD()
    outcome = method.prepare(own).run()
    assert outcome.mode == "graph", outcome.reason
    assert all(bool(torch.isfinite(p).all()) for p in own.network.parameters())
