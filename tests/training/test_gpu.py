"""The engine on a CUDA device. Needs torch, numpy, scipy, safetensors and pytest, nothing else.

pytest -m gpu tests/training/test_gpu.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from toy import Toy, differing, noising

from dpot.errors import TrainingError
from dpot.training import (
    CheckpointPolicy,
    Cosine,
    Engine,
    FixedSize,
    FullBatch,
    Poisson,
    Sampler,
    ShuffledEpochs,
    Stratified,
    capture,
    sanitise_images,
    train_together,
)
from dpot.training.capture import choose

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

toy = partial(Toy, device="cuda")


def momentum_sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


@pytest.fixture(params=["one step a graph", "eight steps a graph"])
def graphs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of several steps, which otherwise only long trainings get, or of one."""
    monkeypatch.setattr(capture, "MANY_STEPS", 8 if request.param.startswith("eight") else 10**9)


def measuring(step: Callable[[], dict[str, Tensor]], generators: dict[str, torch.Generator], **options: Any) -> Engine:
    """An engine that only measures: its one parameter never moves."""
    weight = nn.Linear(1, 1, device="cuda")
    idle = torch.optim.SGD(weight.parameters(), lr=0.0)
    settings: dict[str, Any] = {"steps": 50, "log_every": 1} | options
    return Engine(step, modules={"m": weight}, optimizer=idle, generators=generators, **settings)


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize(
    "optimizer",
    [
        torch.optim.Adam,
        partial(torch.optim.AdamW, fused=True),
        torch.optim.RMSprop,
        torch.optim.SGD,
        momentum_sgd,
    ],
)
def test_captured_steps_are_the_eager_steps(optimizer: Callable[..., torch.optim.Optimizer]) -> None:
    captured, eager = toy(optimizer=optimizer, mode="graph"), toy(optimizer=optimizer, mode="eager")
    one, two = captured.engine.run(), eager.engine.run()
    assert (one.mode, two.mode) == ("graph", "eager")
    assert differing(captured.state(), eager.state()) == []
    assert one.history == two.history
    assert captured.ledger.charged == eager.calls == 60
    assert captured.calls < 60  # replayed, not called


def test_auto_captures_and_says_so() -> None:
    outcome = toy().engine.run()
    assert (outcome.mode, outcome.reason) == ("graph", "captured on CUDA")


def test_noise_differs_at_every_replay_and_is_the_generators_own() -> None:
    def draws(mode: str) -> list[list[float]]:
        torch.manual_seed(0)
        noise = torch.Generator("cuda").manual_seed(7)

        def step() -> dict[str, Tensor]:
            return {
                "given": torch.randn(1000, generator=noise, device="cuda").mean(),
                "global": torch.randn(1000, device="cuda").mean(),
            }

        outcome = measuring(step, {"noise": noise}, mode=mode).run()
        assert outcome.mode == mode
        return [[row["given"], row["global"]] for row in outcome.history]

    captured = draws("graph")
    assert len({value for row in captured for value in row}) == 100
    assert captured == draws("eager")


def test_sanitised_image_gradients_get_fresh_noise_in_a_capture() -> None:
    noise = torch.Generator("cuda").manual_seed(1)
    images = torch.ones(8, 16, device="cuda", requires_grad=True)

    def step() -> dict[str, Tensor]:
        images.grad = None
        (sanitise_images(images, 1.0, noising(0.5, noise), "block") * 3).sum().backward()
        assert images.grad is not None
        return {"first": images.grad[0, 0].clone()}

    outcome = measuring(step, {"noise": noise}, mode="graph").run()
    assert len({row["first"] for row in outcome.history}) == 50


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_the_rate_of_every_step_is_the_schedules(mode: str) -> None:
    weight = nn.Linear(1, 1, device="cuda")
    adam = torch.optim.Adam(weight.parameters(), lr=0.3)

    def step() -> dict[str, Tensor]:
        weight.weight.sum().backward()
        adam.step()
        return {"rate": adam.param_groups[0]["lr"].clone()}

    engine = Engine(
        step,
        modules={"m": weight},
        optimizer=adam,
        generators={},
        steps=40,
        log_every=1,
        schedule=Cosine(40, 0.1),
        mode=mode,  # type: ignore[arg-type]
    )
    rates = [row["rate"] for row in engine.run().history]
    expected = 0.3 * Cosine(40, 0.1)(torch.arange(40, dtype=torch.float64))
    assert rates == pytest.approx(expected.tolist(), rel=1e-6)


@pytest.mark.parametrize("at", [1, 19, 37])
def test_a_resumed_capture_ends_where_an_uninterrupted_one_does(tmp_path: Path, at: int) -> None:
    whole = toy(mode="graph")
    history = whole.engine.run().history
    stopped = toy(mode="graph", checkpoint=CheckpointPolicy(tmp_path, every_seconds=0))
    stopped.ledger.limit = at
    with pytest.raises(PermissionError):
        stopped.engine.run()
    again = toy(mode="graph", checkpoint=CheckpointPolicy(tmp_path))
    outcome = again.engine.run()
    assert outcome.resumed_at == stopped.engine.step > 0
    assert differing(again.state(), whole.state()) == []
    assert outcome.history == history


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_seeds_side_by_side_learn_what_they_learn_alone(mode: str) -> None:
    lengths = [45, 60, 60]
    alone = [toy(seed, steps=n, mode=mode) for seed, n in enumerate(lengths)]
    for one in alone:
        one.engine.run()
    together = [toy(seed, steps=n, mode=mode) for seed, n in enumerate(lengths)]
    outcomes = train_together([one.engine for one in together])
    for one, other, outcome in zip(alone, together, outcomes, strict=True):
        assert outcome.mode == mode
        assert differing(one.state(), other.state()) == []
        assert outcome.history == one.engine.outcome.history


LABELS = torch.arange(1000) % 10
SAMPLERS: dict[str, Callable[[torch.Generator], Sampler]] = {
    "fixed-size": lambda g: FixedSize(1000, 50, g),
    "sorted": lambda g: FixedSize(1000, 900, g),
    "poisson": lambda g: Poisson(1000, 0.05, g),
    "stratified": lambda g: Stratified(LABELS, 5, g),
    "shuffled": lambda g: ShuffledEpochs(1000, 50, g, steps_ahead=40),
    "full": lambda g: FullBatch(1000, "cuda"),
}


@pytest.mark.parametrize("kind", SAMPLERS)
def test_samplers_draw_on_the_device_inside_a_capture(kind: str) -> None:
    def counts(mode: str) -> tuple[Tensor, list[dict[str, float]]]:
        generator = torch.Generator("cuda").manual_seed(3)
        sampler = SAMPLERS[kind](generator)
        taken = torch.zeros(1000, device="cuda")

        def step() -> dict[str, Tensor]:
            draw = sampler.draw()
            ones = torch.ones_like(draw.index, dtype=torch.float32)
            if draw.mask is not None:
                ones = ones * draw.mask
            once = torch.zeros_like(taken).index_add_(0, draw.index, ones)
            taken.add_(once)
            return {"most": once.max(), "rows": once.sum()}

        tensors = {"taken": taken} | getattr(sampler, "tensors", {})
        epochs = {sampler.period: sampler.reshuffle} if isinstance(sampler, ShuffledEpochs) else {}
        engine = measuring(step, {"sampling": generator}, tensors=tensors, every=epochs, steps=200, mode=mode)
        outcome = engine.run()
        assert outcome.mode == mode
        assert all(row["most"] <= 1 for row in outcome.history)  # no record twice
        if kind != "poisson":
            assert all(row["rows"] == sampler.batch for row in outcome.history)
        return taken.cpu(), outcome.history

    captured, history = counts("graph")
    eager, _ = counts("eager")
    assert torch.equal(captured, eager)
    if kind == "poisson":
        rows = torch.tensor([row["rows"] for row in history])
        assert abs(rows.mean().item() - 50) < 5 * (50 * 0.95 / 200) ** 0.5
    if kind in ("fixed-size", "poisson", "stratified"):
        assert 10 - 6 * 9.5**0.5 < captured.min() <= captured.max() < 10 + 6 * 9.5**0.5


def test_nothing_synchronises_inside_the_loop() -> None:
    one = toy()
    one.engine.prepare()
    one.engine.open(8)  # an epoch
    runner = choose("graph", [one.engine])
    runner.run(1)
    torch.cuda.set_sync_debug_mode("error")
    try:
        runner.run(7)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    one.engine.close(8)
    assert one.engine.finish().steps == 8


def failing_toys(fault: Callable[[Tensor], Any], mode: str) -> Toy:
    """A toy whose step does something a capture does not allow."""
    one = toy(mode=mode)
    inner = one.engine._step_function

    def step() -> dict[str, Tensor]:
        metrics = dict(inner())
        fault(metrics["loss"])
        return metrics

    one.engine._step_function = step
    return one


@pytest.mark.parametrize("fault", [lambda loss: loss.item(), lambda loss: torch.cuda.synchronize()])
def test_a_step_that_waits_for_the_device_runs_eagerly_with_the_reason(fault: Callable[[Tensor], Any]) -> None:
    fallen = failing_toys(fault, "auto")
    outcome = fallen.engine.run()
    assert outcome.mode == "eager"
    assert outcome.reason.startswith("not captured: ")
    plain = toy(mode="eager")
    plain.engine.run()
    assert differing(fallen.state(), plain.state()) == []


def test_a_graph_that_cannot_be_had_is_an_error() -> None:
    with pytest.raises(TrainingError, match="cannot be captured"):
        failing_toys(lambda loss: loss.item(), "graph").engine.run()


def test_a_step_that_replaces_its_state_is_not_captured() -> None:
    holder = nn.Module()
    holder.register_buffer("seen", torch.zeros((), device="cuda"))
    holder.weight = nn.Parameter(torch.zeros((), device="cuda"))

    def step() -> dict[str, Tensor]:
        holder.seen = holder.seen + 1  # a new tensor at every step
        return {"seen": holder.seen.clone()}

    idle = torch.optim.SGD(holder.parameters(), lr=0.0)
    engine = Engine(step, modules={"m": holder}, optimizer=idle, generators={}, steps=5, log_every=1)
    outcome = engine.run()
    assert outcome.mode == "eager"
    assert "replaces m.seen" in outcome.reason
    assert [row["seen"] for row in outcome.history] == [1, 2, 3, 4, 5]


def test_a_loss_that_is_no_number_is_found_in_a_capture() -> None:
    count = torch.zeros((), device="cuda")

    def step() -> dict[str, Tensor]:
        count.add_(1)
        return {"loss": 1 / (count < 18)}

    engine = measuring(step, {}, tensors={"count": count}, log_every=10, mode="graph")
    with pytest.raises(TrainingError, match="loss is no longer finite at step 17"):
        engine.run()
