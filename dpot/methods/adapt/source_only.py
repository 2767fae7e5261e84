"""The floor and the ceiling of domain adaptation: trained on the source alone, or on the labelled target."""

from __future__ import annotations

from dpot.errors import UsageError
from dpot.methods.adapt.base import AdaptationMethod, AdaptationProblem, Stage, adam, public_batches, supervised
from dpot.privacy.events import NonPrivate
from dpot.ranges import Count, Positive
from dpot.training.samplers import ShuffledEpochs


class SourceOnly(AdaptationMethod):
    """No adaptation: the target is not looked at."""

    private = False

    def __init__(self, batch: Count = 128, epochs: Count = 100, learning_rate: Positive = 5e-4) -> None:
        self.batch, self.epochs, self.learning_rate = batch, epochs, learning_rate

    def stages(self, problem: AdaptationProblem) -> list[tuple[str, Stage]]:
        """One stage."""
        sampler = public_batches(problem, self.batch)
        steps = problem.steps(self.epochs * sampler.steps_per_epoch)
        optimizer = adam([problem.network], self.learning_rate)
        source, labels = problem.source, problem.labels
        return [("source", lambda: supervised(problem, source, labels, {}, optimizer, sampler, steps))]


class TargetTrained(AdaptationMethod):
    """What the network could reach with the target's labels; measured on records it has seen where those are all."""

    private = False
    reads_target_labels = True

    def __init__(self, batch: Count = 128, epochs: Count = 100, learning_rate: Positive = 5e-4) -> None:
        self.batch, self.epochs, self.learning_rate = batch, epochs, learning_rate

    def stages(self, problem: AdaptationProblem) -> list[tuple[str, Stage]]:
        """One stage, on the target, without any privacy."""
        if problem.target_labels is None:
            raise UsageError("loss=target_trained: the target has no labels")
        target, labels = problem.target, problem.target_labels
        sampler = ShuffledEpochs(len(target), min(self.batch, len(target)), problem.random)
        # as many steps as the others, which count epochs of the source
        steps = problem.steps(self.epochs * max(1, len(problem.source) // self.batch))
        optimizer = adam([problem.network], self.learning_rate)
        event = NonPrivate("trained on the target's records and labels")
        release = problem.release(event, sampler=sampler, steps=steps)
        return [("source", lambda: supervised(problem, target, labels, {}, optimizer, sampler, steps, release))]
