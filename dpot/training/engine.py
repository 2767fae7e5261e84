"""The training engine: one loop for every method.

    engine = Engine(
        step=step,                                # forward, backward, optimizer.step(); returns metrics
        modules={"generator": generator},
        optimizer=adam,
        generators={"sampling": sampling, "noise": noise},
        steps=60_000,
        before=release.charge,                    # may refuse by raising, before the steps happen
        extra_state={"ledger": ledger},
        checkpoint=CheckpointPolicy(directory, every_seconds=300),
        fingerprint=config_hash,
    )
    outcome = engine.run()                        # … write the result …
    engine.discard()                              # then delete the checkpoints: they hold noise states

A step reads and writes tensors of one device, in place, with shapes that never change, and draws random
numbers only from the generators given here (or torch's global one, see dpot/graphs.py). Gradients are set
to None before each step by the engine.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from dpot.errors import TrainingError, UsageError
from dpot.graphs import Ambient
from dpot.training.capture import Mode, Outcome, train_together
from dpot.training.checkpoint import CheckpointPolicy, Checkpoints
from dpot.training.ema import EMA
from dpot.training.progress import Line, Progress
from dpot.training.rates import LearningRates, capture_obstacle
from dpot.training.schedules import Constant, Schedule

log = logging.getLogger(__name__)
CHUNK_SECONDS = 1.0  # how long the host leaves the device alone; only progress and checkpoints depend on it
CHUNK_GROWTH = 4


class HasState(Protocol):
    """Anything that can be put into a checkpoint and taken out again, such as a privacy ledger."""

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, state_dict: Any) -> Any: ...


class Engine:
    """One training. `run()` it, or hand several to `train_together`.

    before(n) is called before each chunk of n steps, on the host: charge the ledger there; raising stops the
    training with the steps so far done and checkpointed. every={k: action} calls action(step) before each
    step whose number is a multiple of k (a new shuffling, a preview). tensors are further tensors the step
    changes in place; they are snapshot and checkpointed like the modules.

    Steps after the last checkpoint of a killed training are run again with the same random numbers on the
    same device, so they are the same release, not a second one; the ledger goes back with them.
    """

    def __init__(
        self,
        step: Callable[[], Mapping[str, Tensor]],
        *,
        modules: Mapping[str, nn.Module],
        optimizer: Optimizer | Mapping[str, Optimizer],
        generators: Mapping[str, torch.Generator],
        steps: int,
        schedule: Schedule | None = None,
        ema: EMA | None = None,
        tensors: Mapping[str, Tensor] | None = None,
        before: Callable[[int], None] | None = None,
        every: Mapping[int, Callable[[int], None]] | None = None,
        extra_state: Mapping[str, HasState] | None = None,
        checkpoint: CheckpointPolicy | None = None,
        fingerprint: str = "",
        report: Progress | None = None,
        mode: Mode = "auto",
        log_every: int = 500,
        name: str = "training",
    ) -> None:
        if steps < 1 or log_every < 1:
            raise UsageError("steps and log_every must be at least 1")
        self.name, self.steps, self.mode, self.log_every = name, steps, mode, log_every
        self._modules = dict(modules) | ({"ema": ema.module} if ema else {})
        self._optimizers = {"optimizer": optimizer} if isinstance(optimizer, Optimizer) else dict(optimizer)
        self._generators = dict(generators)
        self._tensors = dict(tensors or {}) | ({"ema updates": ema.updates} if ema else {})
        self._extra = dict(extra_state or {})
        self._step_function, self._ema, self._compiled = step, ema, False
        self._before, self._every = before, dict(every or {})
        self._averaging = ema.every if ema else 1  # 1: within the step
        self._report = report or Progress("silent")

        self._parameters = [p for o in self._optimizers.values() for group in o.param_groups for p in group["params"]]
        everything = [*self._parameters, *(p for m in self._modules.values() for p in m.parameters())]
        self._with_gradient = list({id(p): p for p in everything}.values())
        if not everything:
            raise UsageError(f"{name}: there is no parameter to train")
        self.device = everything[0].device
        for key, generator in self._generators.items():
            if generator.device.type != self.device.type:
                raise UsageError(f"{name}: generator {key!r} lives on {generator.device}, the modules on {self.device}")
        self.ambient = Ambient(self.device)
        self._rates = LearningRates(self._optimizers, schedule or Constant(), self.device, log_every)
        self._position = torch.zeros(1, dtype=torch.int64, device=self.device)  # within the chunk
        self._rows = torch.zeros(0)  # one row of metrics per step of the chunk; made at the first step
        self._names: tuple[str, ...] = ()

        self.step = 0
        self._window: list[Tensor] = []  # rows of the unfinished stretch of log_every steps
        self._pace = 1
        self._line: Line | None = None
        self.outcome = Outcome(0, 0.0, "none", "nothing was left to do")
        self._began = self._chunk_began = self._saved_at = self._seconds_before = 0.0
        self._checkpoints = Checkpoints(checkpoint, fingerprint, self.device.type) if checkpoint is not None else None

    def run(self) -> Outcome:
        """Train to the end, from the last checkpoint if there is one."""
        return train_together([self])[0]

    def discard(self) -> None:
        """Delete the checkpoints, once the result is safe: they hold the states of the noise generators."""
        if self._checkpoints is not None:
            self._checkpoints.discard()

    # What one step is, and what it touches (see capture.Job)

    def one_step(self) -> None:
        """Rate, gradients to None, the method's step, moving average, metrics: device work only."""
        self._rates.apply(self._position)
        for parameter in self._with_gradient:
            parameter.grad = None
        metrics = self._step_function()
        if self._ema is not None and self._averaging == 1:
            self._ema.update()
        if not self._names:
            if not metrics:
                raise UsageError(f"{self.name}: the step must return at least one metric")
            self._names = tuple(metrics)
            self._rows = torch.zeros(self.log_every, len(metrics), device=self.device)
        row = [metrics[key].detach().to(torch.float32).reshape(1, 1) for key in self._names]
        self._rows.index_copy_(0, self._position, row[0] if len(row) == 1 else torch.cat(row, 1))
        self._position.add_(1)

    def live_tensors(self) -> dict[str, Tensor]:
        """Every tensor a step may change, by name."""
        live: dict[str, Tensor] = {"position": self._position}
        for name, module in self._modules.items():
            for key, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
                live[f"{name}.{key}"] = tensor
        for name, optimizer in self._optimizers.items():
            for i, parameter in enumerate(self._parameters):
                for key, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, Tensor):
                        live[f"{name} of parameter {i}: {key}"] = value
        return live | {f"tensor {name}": tensor for name, tensor in self._tensors.items()}

    def all_generators(self) -> dict[str, torch.Generator]:
        """Every generator a step may draw from, by name."""
        return self._generators | {"torch's global generator": self.ambient.generator}

    def capture_obstacle(self) -> str | None:
        """Why the step cannot be captured, as far as can be told without trying."""
        found = (capture_obstacle(optimizer) for optimizer in self._optimizers.values())
        return next((obstacle for obstacle in found if obstacle), None)

    def compile_step(self) -> None:
        """Put the method's step through torch.compile."""
        if not self._compiled:
            self._step_function, self._compiled = torch.compile(self._step_function), True

    # The life of a training: prepare, then chunks (room, open, close), then finish

    def prepare(self) -> None:
        """Go to the last checkpoint, or write the first, and open the progress line.

        The first is there before the first step, so that a training that is killed early draws the same noise again.
        """
        found = self._checkpoints.load() if self._checkpoints is not None else None
        if found is not None:
            path, state = found
            try:
                self._restore(state)
            except (KeyError, ValueError, RuntimeError) as error:
                raise TrainingError(
                    f"checkpoint {path} does not fit this training ({error}): delete it to begin anew"
                ) from error
            self.outcome.resumed_at = self.step
            log.info("%s: goes on from step %s", self.name, f"{self.step:,}")
        self._line = self._report.open(self.name, self.steps, self.step)
        self._began = self._chunk_began = self._saved_at = time.monotonic()
        if found is None:
            self.keep()

    def room(self) -> int:
        """How many steps the next chunk may have."""
        stops = [self.log_every, *self._every, *([self._averaging] if self._averaging > 1 else [])]
        return min(self._pace, self.steps - self.step, *(stop - self.step % stop for stop in stops))

    def open(self, n: int) -> None:
        """Before n steps: ask for leave, do what is due, set the counters."""
        self._chunk_began = time.monotonic()
        if self._before is not None:
            try:
                self._before(n)
            except Exception:
                self.keep()
                raise
        for period, action in self._every.items():
            if self.step % period == 0:
                action(self.step)
        if self._ema is not None and self._averaging > 1 and self.step % self._averaging == 0:
            self._ema.update()
        self._rates.begin_chunk(self.step, n)
        self._position.zero_()

    def close(self, n: int) -> None:
        """After n steps: read the metrics (the one synchronisation), check, checkpoint, report."""
        rows = self._rows[:n].to("cpu", torch.float64)
        finite = torch.isfinite(rows)
        if not bool(finite.all()):
            self._diverged(int((~finite).any(1).nonzero()[0, 0]), rows)
        self.step += n
        self._window.append(rows)
        if self.step % self.log_every == 0 or self.step == self.steps:
            means = torch.cat(self._window).mean(0).tolist()
            self.outcome.history.append({"step": self.step} | dict(zip(self._names, means, strict=True)))
            self._window = []
        now = time.monotonic()
        speed = n / max(now - self._chunk_began, 1e-9)
        self._pace = max(1, min(self._pace * CHUNK_GROWTH, int(speed * CHUNK_SECONDS)))
        policy = self._checkpoints.policy if self._checkpoints is not None else None
        if policy and (now - self._saved_at >= policy.every_seconds or self.step == self.steps):
            self.keep()
        if self._line is not None:
            latest = rows[-1].tolist()
            self._line.update(self.step, dict(zip(self._names, latest, strict=True)))

    def finish(self) -> Outcome:
        """Close the progress line and sum up."""
        if self._line is not None:
            self._line.close()
            self._line = None
        for parameter in self._with_gradient:
            parameter.grad = None
        self.outcome.steps = self.step
        self.outcome.seconds = self._seconds()
        return self.outcome

    def _seconds(self) -> float:
        """Of training, before and after a resume."""
        return self._seconds_before + time.monotonic() - self._began

    def _diverged(self, row: int, rows: Tensor) -> None:
        step = self.step + row
        bad = next(k for k, x in zip(self._names, rows[row].tolist(), strict=True) if not _is_finite(x))
        rates = ", ".join(f"{rate:g}" for rate in self._rates.current(step).values())
        last = self._checkpoints.last if self._checkpoints is not None else None
        kept = f"; the last good checkpoint is {last}" if last else ""
        raise TrainingError(
            f"{self.name}: {bad} is no longer finite at step {step}: lower the learning rate (now {rates})"
            f" or the noise{kept}"
        )

    def keep(self) -> None:
        """Write a checkpoint, if there is a place for it."""
        if self._checkpoints is None:
            return
        state = {
            "step": self.step,
            "seconds": self._seconds(),
            "modules": {
                name: dict(itertools.chain(module.named_parameters(), module.named_buffers()))
                for name, module in self._modules.items()
            },
            "optimizers": {name: o.state_dict() for name, o in self._optimizers.items()},
            "tensors": self._tensors,
            "generators": {name: g.get_state() for name, g in self.all_generators().items()},
            "names": self._names,
            "window": torch.cat(self._window) if self._window else None,
            "history": self.outcome.history,
            "code": self._checkpoints.policy.code,
            "earlier": self.outcome.earlier,
            "extra": {name: holder.state_dict() for name, holder in self._extra.items()},
        }
        self._checkpoints.save(self.step, state)
        self._saved_at = time.monotonic()

    @torch.no_grad()
    def _restore(self, state: Mapping[str, Any]) -> None:
        for name, module in self._modules.items():
            mine = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
            _copy_all(mine, state["modules"][name], name)
        _copy_all(self._tensors, state["tensors"], "tensors")
        for name, optimizer in self._optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
            for parameter, own in optimizer.state.items():
                for key, value in own.items():
                    if isinstance(value, Tensor) and value.shape == parameter.shape:
                        # as it lies in memory: a checkpoint holds numbers in order, a fused step reads addresses
                        own[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
        self._rates.adopt()
        for name, generator in self.all_generators().items():
            generator.set_state(state["generators"][name])
        for name, holder in self._extra.items():
            holder.load_state_dict(state["extra"][name])
        self.step, self._names = state["step"], state["names"]
        self._seconds_before = state.get("seconds", 0.0)  # older checkpoints have none
        self._rows = torch.zeros(self.log_every, len(self._names), device=self.device)
        self._window = [] if state["window"] is None else [state["window"]]
        self.outcome.history = list(state["history"])
        # older checkpoints do not say by what code they were made
        self.outcome.earlier = [*state.get("earlier", []), {"until": self.step, "code": state.get("code")}]


def _copy_all(mine: Mapping[str, Tensor], stored: Mapping[str, Tensor], where: str) -> None:
    if mine.keys() != stored.keys():
        raise KeyError(f"{where} has other tensors: {sorted(mine.keys() ^ stored.keys())[:3]}")
    for key, tensor in mine.items():
        if tensor.shape != stored[key].shape:
            raise ValueError(f"{where}.{key} has shape {tuple(stored[key].shape)}")
        tensor.copy_(stored[key])


def _is_finite(value: float) -> bool:
    return abs(value) < float("inf")
