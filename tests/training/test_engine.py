"""The engine on a CPU: the loop against a hand-written one, charging, divergence, compile, side by side."""

from __future__ import annotations

import copy
import math
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from toy import Toy, differing

from dpot.errors import TrainingError, UsageError
from dpot.training import EMA, CheckpointPolicy, Constant, Engine, Progress, StepDecay, train_together
from dpot.training import engine as engine_module
from dpot.training.capture import Snapshot
from dpot.training.rates import capture_obstacle


def least_squares(steps: int, **options: object) -> tuple[nn.Linear, Engine]:
    """Full-batch descent on a fixed least-squares problem."""
    torch.manual_seed(0)
    model, x = nn.Linear(3, 1).double(), torch.randn(30, 3, dtype=torch.float64)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64) + 3
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

    def step() -> dict[str, torch.Tensor]:
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    engine = Engine(step, modules={"model": model}, optimizer=optimizer, generators={}, steps=steps, **options)
    engine.problem = (x, y)  # type: ignore[attr-defined]
    return model, engine


def test_the_loop_is_the_loop_one_would_write() -> None:
    model, engine = least_squares(57, schedule=StepDecay(10, 0.7), log_every=13)
    mine = copy.deepcopy(model)
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.1, momentum=0.5)
    rates = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.7)
    average, losses = copy.deepcopy(mine), []
    x, y = engine.problem  # type: ignore[attr-defined]
    ema = EMA(model, 0.8)
    engine._ema = ema
    for t in range(1, 58):
        decay = min(0.8, t / (t + 9))
        optimizer.zero_grad()
        loss = (mine(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        rates.step()
        losses.append(loss.item())
        with torch.no_grad():
            for a, p in zip(average.parameters(), mine.parameters(), strict=True):
                a.mul_(decay).add_(p, alpha=1 - decay)
    outcome = engine.run()
    torch.testing.assert_close(dict(model.state_dict()), dict(mine.state_dict()), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(dict(ema.module.state_dict()), dict(average.state_dict()), rtol=1e-12, atol=1e-12)
    assert [row["step"] for row in outcome.history] == [13, 26, 39, 52, 57]
    means = [sum(losses[a:b]) / (b - a) for a, b in [(0, 13), (13, 26), (26, 39), (39, 52), (52, 57)]]
    assert [row["loss"] for row in outcome.history] == pytest.approx(means, rel=1e-6)
    assert (outcome.steps, outcome.mode) == (57, "eager")
    assert "CUDA graphs do not exist on cpu" in outcome.reason


def test_weights_may_be_averaged_every_few_steps_alone() -> None:
    toy = Toy(averaged=7)
    average, seen = copy.deepcopy(toy.model), 0

    @torch.no_grad()
    def before_the_step(step: int) -> None:
        nonlocal seen
        seen += 1
        decay = min(0.9, seen / (seen + 9))
        for a, p in zip(average.parameters(), toy.model.parameters(), strict=True):
            a.mul_(decay).add_(p, alpha=1 - decay)

    toy.engine._every[7] = before_the_step
    toy.engine.run()
    assert seen == 9  # 0, 7, ... 56
    made = dict(toy.ema.module.named_parameters())
    torch.testing.assert_close(made, dict(average.named_parameters()), rtol=1e-5, atol=1e-6)
    assert not torch.equal(made["0.weight"], toy.model[0].weight)


def test_results_do_not_depend_on_where_chunks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Toy()
    one = first.engine.run()
    monkeypatch.setattr(engine_module, "CHUNK_SECONDS", 0.0)  # one step at a time
    second = Toy()
    two = second.engine.run()
    assert differing(first.state(), second.state()) == []
    assert one.history == two.history


def test_every_step_is_charged_before_it_runs() -> None:
    toy = Toy()
    seen: list[tuple[int, int]] = []
    charge = toy.ledger

    def before(n: int) -> None:
        seen.append((toy.calls, n))
        charge(n)

    toy.engine._before = before
    toy.engine.run()
    assert sum(n for _, n in seen) == 60 == toy.ledger.charged == toy.calls
    done = 0
    for calls, n in seen:
        assert calls == done  # nothing of the chunk had run when it was charged
        done += n


def test_a_refused_chunk_does_not_run_and_what_was_done_is_kept(tmp_path: Path) -> None:
    toy = Toy(checkpoint=CheckpointPolicy(tmp_path / "c", every_seconds=1e9))
    toy.ledger.limit = 30
    with pytest.raises(PermissionError, match="budget"):
        toy.engine.run()
    assert toy.calls == toy.ledger.charged == toy.engine.step <= 30
    again = Toy(checkpoint=CheckpointPolicy(tmp_path / "c"))
    outcome = again.engine.run()
    assert outcome.resumed_at == toy.engine.step
    uninterrupted = Toy()
    uninterrupted.engine.run()
    assert differing(again.state(), uninterrupted.state()) == []


def test_a_training_told_to_stop_keeps_what_it_has_done(tmp_path: Path) -> None:
    both = [Toy(seed, checkpoint=CheckpointPolicy(tmp_path / str(seed), every_seconds=1e9)) for seed in (0, 1)]
    both[0].engine._every[20] = lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == 20 else None
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped:
        train_together([toy.engine for toy in both])
    assert stopped.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before
    assert 20 < both[0].engine.step == both[1].engine.step < 60
    for seed, toy in enumerate(both):
        again, uninterrupted = Toy(seed, checkpoint=CheckpointPolicy(tmp_path / str(seed))), Toy(seed)
        assert again.engine.run().resumed_at == toy.engine.step
        uninterrupted.engine.run()
        assert differing(again.state(), uninterrupted.state()) == []


def test_a_loss_that_is_no_number_names_its_step_and_the_way_out(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.25)
    count = torch.zeros(())

    def step() -> dict[str, torch.Tensor]:
        count.add_(1)
        loss = (weight / (count < 18)).sum()
        loss.backward()
        optimizer.step()
        return {"fine": count.clone(), "loss": loss}

    model = nn.Module()
    model.weight = weight
    engine = Engine(
        step,
        modules={"model": model},
        optimizer=optimizer,
        generators={},
        tensors={"count": count},
        steps=100,
        log_every=5,
        checkpoint=CheckpointPolicy(tmp_path, every_seconds=0),
    )
    with pytest.raises(TrainingError, match=r"loss is no longer finite at step 17: lower .*0\.25") as caught:
        engine.run()
    kept = max(tmp_path.glob("step-*.dpot"))
    assert str(kept) in str(caught.value)
    assert int(kept.stem.removeprefix("step-")) <= 17


def test_dropout_follows_the_engine_not_the_caller() -> None:
    first, second = Toy(), Toy()
    torch.manual_seed(123)
    before = torch.get_rng_state()
    first.engine.run()
    assert torch.equal(torch.get_rng_state(), before)  # the caller's numbers are untouched
    torch.manual_seed(456)
    second.engine.run()
    assert differing(first.state(), second.state()) == []
    other = Toy(seed=1)
    other.engine.run()
    assert "model.0.weight" in differing(first.state(), other.state())


def test_seeds_side_by_side_learn_what_they_learn_alone() -> None:
    alone = []
    for seed in range(3):
        toy = Toy(seed, steps=45 + 5 * seed)
        toy.engine.run()
        alone.append(toy)
    together = [Toy(seed, steps=45 + 5 * seed) for seed in range(3)]
    outcomes = train_together([toy.engine for toy in together])
    for one, other, outcome in zip(alone, together, outcomes, strict=True):
        assert differing(one.state(), other.state()) == []
        assert outcome.history == one.engine.outcome.history
        assert other.ledger.charged == other.engine.steps == outcome.steps


def test_side_by_side_refuses_shared_randomness() -> None:
    first, second = Toy(0), Toy(1)
    second.engine._generators["noise"] = first.generators["noise"]
    with pytest.raises(UsageError, match="generators of their own"):
        train_together([first.engine, second.engine])
    with pytest.raises(UsageError, match="nothing to train"):
        train_together([])


def test_a_graph_without_cuda_is_a_usage_error() -> None:
    _, engine = least_squares(3, mode="graph")
    with pytest.raises(UsageError, match="needs a CUDA device"):
        engine.run()


def test_a_generator_of_another_device_is_refused() -> None:
    model = nn.Linear(1, 1, device="meta")
    with pytest.raises(UsageError, match="generator 'noise' lives on cpu"):
        Engine(
            dict,
            modules={"m": model},
            optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
            generators={"noise": torch.Generator()},
            steps=1,
        )


def test_a_step_without_metrics_is_refused() -> None:
    _, engine = least_squares(3)
    engine._step_function = dict
    with pytest.raises(UsageError, match="at least one metric"):
        engine.run()


def test_compiled_steps_agree_with_eager_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.compile
    # Tracing and re-assembling without code generation: what the engine relies on, in seconds.
    monkeypatch.setattr(torch, "compile", lambda function: real(function, backend="aot_eager"))
    plain_model, plain = least_squares(12, schedule=Constant())
    compiled_model, compiled = least_squares(12, schedule=Constant(), mode="compile")
    plain.run()
    outcome = compiled.run()
    assert (outcome.mode, outcome.reason) == ("compile", "asked for")
    torch.testing.assert_close(dict(plain_model.state_dict()), dict(compiled_model.state_dict()))


def test_plain_progress_says_how_far_and_how_fast(capsys: pytest.CaptureFixture[str]) -> None:
    _, engine = least_squares(30, report=Progress("lines"), name="descent")
    engine.run()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("descent: step 30 of 30, ")
    assert "steps/s" in captured.err
    assert "loss=" in captured.err
    _, silent = least_squares(30, report=Progress("silent"))
    silent.run()
    assert capsys.readouterr().err == ""


def test_a_bar_is_drawn_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    report = Progress("bar")
    pair = [least_squares(10, report=report, name=f"seed {i}")[1] for i in range(2)]
    outcomes = train_together(pair)
    assert [math.isfinite(o.steps_per_second) and o.steps for o in outcomes] == [10, 10]
    drawn = capsys.readouterr().err
    assert "seed 0" in drawn
    assert "10/10" in drawn


def momentum_sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, nesterov=True)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.RMSprop, momentum_sgd])
def test_undone_steps_leave_no_trace(optimizer: Callable[..., torch.optim.Optimizer]) -> None:
    """What warm-up relies on: undone steps change neither the state nor the numbers drawn afterwards."""
    toy, untouched = Toy(optimizer=optimizer), Toy(optimizer=optimizer)
    toy.engine._rates.begin_chunk(0, 1)
    snapshot = Snapshot(toy.engine)
    for _ in range(3):
        with toy.engine.ambient():
            toy.engine.one_step()
        assert len(snapshot.drawn()) == 3  # sampling, noise, and dropout's
        snapshot.restore()
    assert snapshot.drawn() == []
    toy.engine.run()
    untouched.engine.run()
    assert differing(toy.state(), untouched.state()) == []


def test_optimizers_that_do_not_begin_at_zero_are_not_captured() -> None:
    weight = [nn.Parameter(torch.zeros(1))]
    assert capture_obstacle(torch.optim.Adam(weight)) is None
    assert "NAdam" in str(capture_obstacle(torch.optim.NAdam(weight)))
    damped = torch.optim.SGD(weight, lr=0.1, momentum=0.9, dampening=0.5)
    assert "dampening" in str(capture_obstacle(damped))
