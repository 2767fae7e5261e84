"""DP-CGAN: what a step does against loops over records, what the authors' accountant would say, and that it learns."""

import math

import pytest
import torch
import torch.nn.functional as F

from dpot.errors import PrivacyError, UsageError
from dpot.methods.generate import dp_cgan
from dpot.methods.generate.base import Problem
from dpot.methods.generate.dp_cgan import DPCGAN
from dpot.methods.tape import Tape
from dpot.models.cgan_mlp import CGANMLP, layers
from dpot.models.linear import Linear
from dpot.privacy.accountants import own_epsilon
from dpot.privacy.budget import Budget
from dpot.privacy.events import Adjacency, Gaussian, PoissonSampled
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.training.samplers import Draw

RECORDS, CLASSES, SHAPE = 7, 3, (1, 4, 4)


def problem(images, labels, generator, *, epsilon=10.0, mode="sound", steps=1, tape=None):
    budget = Budget(epsilon, 1e-5, mode=mode)
    return Problem(
        images=images,
        labels=labels,
        classes=CLASSES,
        generator=generator,
        budget=budget,
        ledger=Ledger.of(budget),
        noise=NoiseSource(1),
        tape=tape,
        random=torch.Generator().manual_seed(5),
        max_steps=steps,
    )


def some_records(count=RECORDS):
    random = torch.Generator().manual_seed(3)
    return torch.rand(count, *SHAPE, generator=random), torch.arange(count) % CLASSES


class Four:
    """The first four of the records, of which one does not count."""

    name, batch, tensors, period = "poisson", 4, {}, 10**6

    def __init__(self, *_):
        pass

    def reshuffle(self, step=0):
        pass

    def facts(self):
        return {"rate": 4 / RECORDS}

    def draw(self):
        return Draw(torch.arange(4), torch.tensor([True, True, True, False]))


def test_the_networks_are_of_the_published_size():
    def parameters(network):
        return sum(weight.numel() for weight in network.parameters())

    assert parameters(CGANMLP(10, (1, 28, 28))) == 110 * 128 + 128 + 128 * 784 + 784 == 115_344
    assert parameters(layers(794, 128, 1)) == 794 * 128 + 128 + 128 + 1 == 101_889


def test_images_are_pixels_that_depend_on_code_and_label():
    model, random = CGANMLP(CLASSES, SHAPE), torch.Generator().manual_seed(0)
    code = model.code(2000, random, "cpu")
    assert -1 <= float(code.min()) < -0.99 < 0.99 < float(code.max()) <= 1
    images = model(code[:3].repeat_interleave(2, 0), torch.tensor([0, 1] * 3))
    assert images.shape == (6, *SHAPE)
    assert ((images > 0) & (images < 1)).all()
    assert len({tuple(row.flatten().tolist()) for row in images}) == 6


@pytest.mark.parametrize("clipping", ["global", "coded"])
def test_the_discriminator_takes_the_clipped_gradients_of_all_that_it_sees(monkeypatch, clipping):
    """Real records that count, with the label of what is real, and generated ones; the noise left out."""
    for name in ("Poisson", "ShuffledEpochs"):
        monkeypatch.setattr(dp_cgan, name, Four)
    images, labels = some_records()
    torch.manual_seed(0)
    model = CGANMLP(CLASSES, SHAPE, code_size=2, hidden=5)
    own = problem(images, labels, model, mode="paper" if clipping == "coded" else "sound", tape=Tape(strength=0))
    method = DPCGAN(batch=4, steps=1, clip=0.3, noise_multiplier=20.0, rate=0.7, hidden=6, clipping=clipping)
    state = torch.get_rng_state()
    engine = method.prepare(own)
    torch.set_rng_state(state)
    judge = layers(16 + CLASSES, 6, 1)  # as the method's begins

    random = torch.Generator().manual_seed(5)
    wanted = torch.randint(CLASSES, (4,), generator=random)
    wanted = labels[:4] if clipping == "coded" else wanted
    fake = model(model.code(4, random, "cpu"), wanted).detach()
    seen = [(images[i], labels[i], 1.0) for i in range(3)] + [(fake[i], wanted[i], 0.0) for i in range(4)]
    total = [torch.zeros_like(weight) for weight in judge.parameters()]
    for image, label, truth in seen:
        row = torch.cat([image.flatten(), F.one_hot(label, CLASSES).float()])
        doubt = F.binary_cross_entropy_with_logits(judge(row), torch.tensor([truth]))
        slopes = torch.autograd.grad(doubt, list(judge.parameters()))
        whole = math.sqrt(sum(float(slope.square().sum()) for slope in slopes))
        for sum_, slope in zip(total, slopes, strict=True):
            norm = float(slope.norm()) if clipping == "coded" else whole
            sum_.add_(slope * min(1.0, 0.3 / norm))

    engine.open(1)
    engine.one_step()
    after = engine._modules["discriminator"]
    for weight, before, slope in zip(after.parameters(), judge.parameters(), total, strict=True):
        torch.testing.assert_close(weight.detach(), before.detach() - 0.7 * slope / 4)


def test_the_rate_falls_in_a_line_and_stays():
    weights = sum(weight.numel() for weight in layers(16 + CLASSES, 2, 1).parameters())
    tape = Tape(answers=[torch.ones(weights)] * 5)
    own = problem(*some_records(), CGANMLP(CLASSES, SHAPE, hidden=4), steps=5, tape=tape)
    engine = DPCGAN(batch=4, steps=5, rate=1.0, last_rate=0.4, falling=3, hidden=2).prepare(own)
    judge, seen = engine._modules["discriminator"], []
    engine.open(5)
    for _ in range(5):
        before = float(judge[2].bias.detach())
        engine.one_step()
        seen.append(4 * (before - float(judge[2].bias.detach())))
    assert seen == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.4], abs=1e-5)


def test_every_step_is_charged_as_it_was_drawn():
    own = problem(*some_records(200), CGANMLP(CLASSES, SHAPE, hidden=4), epsilon=2.0, steps=6)
    outcome = DPCGAN(batch=20, steps=6).fit(own)
    (entry,) = own.ledger.entries
    assert outcome.steps == own.ledger.releases == entry.count == 6
    assert entry.sampler == "poisson"
    assert 1.5 < own.ledger.epsilon() <= 2.0


def test_the_authors_code_is_run_in_paper_mode_alone_and_its_true_epsilon_is_said():
    method = DPCGAN(batch=20, steps=6, noise_multiplier=1.12, clipping="coded")
    with pytest.raises(UsageError, match=r"privacy\.mode=paper"):
        method.prepare(problem(*some_records(200), CGANMLP(CLASSES, SHAPE, hidden=4), steps=6))
    own = problem(*some_records(200), CGANMLP(CLASSES, SHAPE, hidden=4), mode="paper", steps=6)
    method.fit(own)
    event = PoissonSampled(Gaussian(0.56, Adjacency.ADD_REMOVE), 0.1)
    true = own_epsilon({event: 6}, 1e-5, "exact", "tight")
    assert true > 2 * own.ledger.epsilon()
    reasons = " ".join(own.ledger.unsound)
    assert f"ε = {true:.4g}" in reasons
    assert "labels" in reasons


def test_after_so_many_steps_the_authors_accountant_stops():
    """It asks for ε of noise × clip = 1.12·1.1 at q = 600/60,000, and ends beyond 9.6."""
    event = PoissonSampled(Gaussian(1.12 * 1.1, Adjacency.ADD_REMOVE), 0.01)
    assert own_epsilon({event: 30_300}, 1e-5, "exact", "mironov") == pytest.approx(9.6, abs=0.01)


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(UsageError, match=r"loss\.batch=7: there are 7 records"):
        DPCGAN(batch=7, steps=1).prepare(problem(*some_records(), CGANMLP(CLASSES, SHAPE)))
    with pytest.raises(PrivacyError, match="exceed the budget"):
        DPCGAN(batch=4, steps=50, noise_multiplier=0.3).prepare(
            problem(*some_records(), CGANMLP(CLASSES, SHAPE), epsilon=1.0, steps=50)
        )


@pytest.mark.parametrize(("tanh", "rate"), [(False, 3e-3), (True, 2e-2)])
def test_it_learns_the_classes_under_noise(tanh, rate):
    """Black, grey and white images; a generator that ends in a tanh is compared in the same pixels."""
    shades = torch.tensor([0.05, 0.5, 0.95])
    labels = torch.arange(3000) % CLASSES
    images = shades[labels].view(-1, 1, 1, 1).expand(-1, 1, 8, 8)
    torch.manual_seed(0)
    shape = (1, 8, 8)
    model = Linear(CLASSES, shape) if tanh else CGANMLP(CLASSES, shape)
    own = problem(images, labels, model, steps=800)
    method = DPCGAN(batch=60, steps=800, falling=800, rate=1.0, last_rate=0.5, generator_rate=rate)
    method.fit(own)
    made, wanted = method.draw(own, 300)
    means = [float(made[wanted == label].mean()) for label in range(CLASSES)]
    assert means[0] + 0.15 < means[1] < means[2] - 0.15
    assert own.ledger.epsilon() <= 10


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("clipping", ["global", "coded"])
def test_on_a_gpu_its_steps_are_captured(clipping):
    device, (images, labels) = torch.device("cuda:0"), some_records(200)
    budget = Budget(10.0, 1e-5, mode="paper" if clipping == "coded" else "sound")
    own = Problem(
        images=images.to(device),
        labels=labels.to(device),
        classes=CLASSES,
        generator=CGANMLP(CLASSES, SHAPE).to(device),
        budget=budget,
        ledger=Ledger.of(budget),
        noise=NoiseSource(1, device=device),
        random=torch.Generator(device).manual_seed(2),
        max_steps=20,
    )
    outcome = DPCGAN(batch=20, noise_multiplier=2.0, steps=20, clipping=clipping).prepare(own).run()
    assert (outcome.mode, outcome.reason) == ("graph", "captured on CUDA")
