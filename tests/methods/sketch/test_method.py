"""The sketch from end to end on small digits: it learns, keeps its budget, goes on after a kill, states what it did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dpot.data.base import unit_range
from dpot.data.digits import Digits
from dpot.errors import UsageError
from dpot.evaluation.classifiers import logistic_regression
from dpot.evaluation.stepping import side_by_side
from dpot.methods.generate.base import Problem
from dpot.methods.kept import Kept
from dpot.methods.sketch import fit as sketch_fit
from dpot.methods.sketch import method as sketch
from dpot.methods.sketch.features import Layout, LinearMap
from dpot.methods.sketch.fit import Target, class_weights, expectations
from dpot.methods.sketch.method import Sketch
from dpot.models.generator import synthesize
from dpot.models.sketch_dcgan import SketchDCGAN, grid_of
from dpot.privacy.budget import Budget
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.statement import Statement
from dpot.training.engine import Engine


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second round's networks learn for a moment only."""
    monkeypatch.setattr(sketch_fit, "NETWORK_STEPS_ON_CPU", 20)
    monkeypatch.setattr(sketch, "SYNTHETIC_ON_CPU", 300)


def digits(classes: int = 10) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = Digits(size=8).load()
    assert data.train.y is not None
    assert data.test.y is not None
    train, test = data.train.y < classes, data.test.y < classes
    return (
        unit_range(data.train.x)[train],
        data.train.y[train],
        unit_range(data.test.x)[test],
        data.test.y[test],
    )


def problem(x: Tensor, y: Tensor, steps: int, epsilon: float = 10.0, folder: Path | None = None) -> Problem:
    budget = Budget(epsilon, 1e-5, conversion="tight")
    torch.manual_seed(0)
    classes = int(y.max()) + 1
    return Problem(
        images=x,
        labels=y,
        classes=classes,
        generator=SketchDCGAN(classes, tuple(x.shape[1:]), code_size=8, width=8),  # type: ignore[arg-type]
        budget=budget,
        ledger=Ledger.of(budget),
        noise=NoiseSource(),
        random=torch.Generator().manual_seed(0),
        max_steps=steps,
        checkpoints=folder,
        kept=Kept(folder, "a test") if folder else None,
        fingerprint="a test",
    )


def accuracy_of(task: Problem, test_x: Tensor, test_y: Tensor) -> float:
    fake, labels = synthesize(task.generator, 400, task.random, "cpu")
    (predict,) = side_by_side([logistic_regression(fake.flatten(1), labels, task.classes)], fake.device)
    return float((predict(test_x.flatten(1)) == test_y).float().mean())


def test_it_learns_digits_within_its_budget() -> None:
    x, y, test_x, test_y = digits(classes=4)
    task = problem(x, y, steps=200)
    method = Sketch()
    outcome = method.fit(task)
    assert accuracy_of(task, test_x, test_y) > 0.7  # chance is 0.25; 0.85 to 0.94 in twelve runs
    assert outcome.steps == 200

    statement = Statement.of(task.ledger, task.noise.record(), ["analytic_gaussian", "dp_accounting_pld"])
    assert statement.epsilon is not None
    assert 9.99 < statement.epsilon <= 10
    assert statement.rigorous
    told = {name: account["epsilon"] for name, account in statement.accountants.items()}
    assert told["dp_accounting_pld"] == pytest.approx(told["analytic_gaussian"], rel=2e-3)  # two agree
    assert statement.releases == 5
    text = statement.to_markdown()
    assert "whole numbers with discrete Gaussian noise" in text
    assert "the operating system's random numbers" in text
    assert "found on MNIST" in text
    assert "floating-point" not in text  # there is none in the noise

    release = method.release
    assert release is not None
    sizes = torch.bincount(y).double()
    assert (release.counts - sizes).abs().max() < 6 * release.deviation
    again = problem(torch.empty(0, 1, 8, 8), torch.tensor([3]), steps=200)  # no records, only the release
    Sketch().refit(again, release)
    assert again.ledger.releases == 0
    assert accuracy_of(again, test_x, test_y) > 0.7


def test_a_killed_run_goes_on_with_the_release_it_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run draws no noise: a second release of the same records would cost a second time."""
    x, y, _, _ = digits(classes=2)
    folder = tmp_path / "checkpoints"
    whole_run = Engine.run

    def killed_in_the_second_round(self: Engine) -> Any:
        if "round-2" in self.name:
            raise KeyboardInterrupt
        return whole_run(self)

    monkeypatch.setattr(Engine, "run", killed_in_the_second_round)
    first = problem(x, y, steps=6, folder=folder)
    with pytest.raises(KeyboardInterrupt):
        Sketch().fit(first)
    assert first.ledger.releases == 5  # charged before it was made

    monkeypatch.setattr(Engine, "run", whole_run)
    monkeypatch.setattr(NoiseSource, "discrete_gaussian", lambda *_: pytest.fail("noise was drawn again"))
    second = problem(x, y, steps=6, folder=folder)
    method = Sketch()
    outcome = method.fit(second)
    assert outcome.steps == 6
    assert second.ledger.state_dict()["entries"] == first.ledger.state_dict()["entries"]
    assert second.ledger.epsilon() <= 10
    assert method.release is not None
    assert len(method.release.rounds) == 2


def test_too_few_records_are_refused_before_anything_is_spent() -> None:
    x, _, _, _ = digits()
    task = problem(x[:50], torch.arange(50) % 10, steps=2, epsilon=1.0)
    with pytest.raises(UsageError, match="50 records in 10 classes"):
        Sketch().fit(task)
    assert task.ledger.releases == 0


@pytest.mark.parametrize("kind", ["public", "own.npy"])
def test_directions_from_a_file_are_disclosed(tmp_path: Path, kind: str) -> None:
    """Nobody here knows what they were made from."""
    x, y, _, _ = digits(2)
    np.save(tmp_path / "own.npy", np.random.default_rng(0).standard_normal((48, 64)))
    task = problem(x, y, steps=2)
    Sketch(rounds=1, lines=48, directions=kind if kind == "public" else str(tmp_path / kind)).fit(task)
    noted = [note for note in task.ledger.uncovered if "own.npy" in note]
    assert len(noted) == (kind == "own.npy")
    assert not any(str(tmp_path) in note for note in noted)


def test_shares_that_leave_nothing_for_the_first_round_are_refused() -> None:
    x, y, _, _ = digits(classes=4)
    task = problem(x, y, steps=4)
    with pytest.raises(UsageError, match="second_share"):
        Sketch(second_share=0.95).fit(task)
    assert task.ledger.releases == 0


def test_the_loss_is_unbiased_in_the_noise_and_in_the_sample() -> None:
    """E⟨target + noise - a, target + noise - b⟩ over the batches a, b is ‖target + noise - E a‖²."""
    torch.manual_seed(0)
    layout = Layout(3, 4)
    record_map = LinearMap.of(torch.eye(3), torch.full((3,), 0.5), torch.full((3,), 0.2), layout, 255)
    expected = torch.rand(1, layout.bins)
    target = Target(record_map, layout, expected, cumulated=0.0)
    pool = torch.rand(40_000, 3)
    mean = layout.means(record_map(pool)[None])[0]
    wanted = float((mean - expected[0]).square().sum()) / layout.lines
    random = torch.Generator().manual_seed(0)
    losses = [float(target.loss(part.view(1, 2, 5, 3), torch.ones(1), random)) for part in pool.split(10)]
    spread = torch.tensor(losses).std() / len(losses) ** 0.5
    assert sum(losses) / len(losses) == pytest.approx(wanted, abs=5 * float(spread))


def test_the_loss_of_some_lines_and_planes_is_the_whole_one_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layout = Layout(lines=9, knots=5, planes=6, plane_knots=4)
    directions = F.normalize(torch.randn(layout.positions, 7), dim=1)
    places = torch.zeros(layout.positions), torch.ones(layout.positions)
    target = Target(LinearMap.of(directions, *places, layout, 255), layout, torch.rand(2, layout.bins))
    records, weights = torch.rand(2, 2, 30, 7), torch.tensor([1.0, 0.5])
    random = torch.Generator().manual_seed(0)
    whole = float(target.loss(records, weights, random))
    monkeypatch.setattr(sketch_fit, "PIECES_PER_STEP_ON_CPU", 5)  # every third
    parts = {float(target.loss(records, weights, random)) for _ in range(60)}
    assert len(parts) == 3
    assert sum(parts) / 3 == pytest.approx(whole, rel=1e-5)


def test_lines_kept_back_and_the_others_are_the_whole_round(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layout = Layout(lines=12, knots=5, planes=4, plane_knots=4)
    directions = F.normalize(torch.randn(layout.positions, 7), dim=1)
    places = torch.zeros(layout.positions), torch.ones(layout.positions)
    target = Target(LinearMap.of(directions, *places, layout, 255), layout, torch.rand(2, layout.bins))
    records, weights = torch.rand(2, 2, 30, 7), torch.tensor([1.0, 0.5])
    monkeypatch.setattr(sketch_fit, "KEEP_BACK", 3)
    seen, watched = target.split()
    assert (seen.layout.lines, seen.layout.planes, watched.layout.lines, watched.layout.planes) == (8, 4, 4, 0)
    random = torch.Generator()
    only_lines = replace(seen, layout=replace(seen.layout, planes=0), expected=seen.expected[:, : 8 * 5])
    only_lines = replace(only_lines, positions=seen.positions[:8])
    on_planes = seen.loss(records, weights, random) - only_lines.loss(records, weights, random)
    lines = (2 * only_lines.loss(records, weights, random) + watched.loss(records, weights, random)) / 3
    torch.testing.assert_close(lines + on_planes, target.loss(records, weights, random))


def test_expectations_and_weights_of_classes() -> None:
    counts = torch.tensor([100.0, 100.0, 10.0, -3.0], dtype=torch.float64)
    noisy = torch.full((4, 6), 2560)
    torch.testing.assert_close(expectations(noisy, counts, Layout(1, 6))[0], torch.full((6,), 0.1))
    weights = class_weights(counts)
    assert weights[0] == weights[1] == 1
    assert 0 < weights[2] < 1
    assert weights[3] == 0  # nothing is known of it


@pytest.mark.parametrize("size", [4, 7, 8, 27, 28, 31, 32, 64, 100])
def test_the_generators_grid_holds_the_image(size: int) -> None:
    doublings, start = grid_of(size)
    assert start * 2**doublings >= size
    assert (start - 1) * 2**doublings < size
    assert start <= 7


@pytest.mark.parametrize("shape", [(1, 27, 31), (3, 32, 32), (3, 8, 12), (1, 5, 5)])
@pytest.mark.parametrize(
    "style",
    [{}, {"blocks": 0}, {"smooth": False}, {"subpixel": True, "blocks": 2}, {"subpixel": True, "smooth": True}],
)
def test_the_generator_makes_images_of_any_size(shape: tuple[int, int, int], style: dict[str, Any]) -> None:
    model = SketchDCGAN(2, shape, code_size=4, width=2, **style)
    made = model(torch.randn(3, 4), torch.tensor([0, 1, 1]))
    assert made.shape == (3, *shape)
    assert made.min() >= 0
    assert made.max() <= 1
