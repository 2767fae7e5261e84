"""The released sketch as a file: public numbers, noisy counts and the privacy statement, to be fitted anywhere.

One digest covers release, generator and statement (dpot/methods/sealed.py). On reading, every field is held to its
type, every tensor to the shape that the layout gives it, and the statement to its entries (dpot/methods/verify.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from dpot.disk import write_atomically
from dpot.errors import DataError, DpotError
from dpot.methods.sealed import read_sealed, seal
from dpot.methods.sketch.features import Layout, LearnedMap, LinearMap, RecordMap, freeze
from dpot.methods.sketch.rules import Plan
from dpot.methods.sketch.textures import Look, Pooled, TextureMap
from dpot.methods.verify import SAME, conform, verified
from dpot.models.feature_network import FeatureNetwork
from dpot.privacy.events import CountGaussian, Event
from dpot.privacy.statement import Statement
from dpot.ranges import Count, Positive

VERSION = 3  # 2 had no digest
CERTAIN = 3  # deviations


@dataclass(frozen=True)
class Round:
    """One release of bins: which map, which layout, the noisy counts."""

    kind: str  # linear, textures or learned
    record_map: RecordMap
    layout: Layout
    noisy: Tensor  # (classes, bins), in units of 1/256 record
    facts: dict[str, Any] = field(default_factory=dict)  # what load_map needs beside the tensors


@dataclass(frozen=True)
class Release:
    """Everything that was released of a data set, and nothing else of it."""

    shape: tuple[int, int, int]
    classes: int
    records: int  # public under replacement; as released, where neighbours differ in the number
    counts: Tensor  # (classes,) as the noisy bins say
    rounds: list[Round]
    plan: Plan
    deviation: float  # of the noise in each of `counts`, in records
    generator: dict[str, Tensor] = field(default_factory=dict)  # one fitted to it, where it is kept along
    statement: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)  # names of classes and columns, and the like
    digest: str = field(default="", compare=False)  # of the file that it was read from

    @property
    def uncertain(self) -> list[int]:
        """Classes whose count does not stand out of the noise: below 3 of its deviations."""
        return torch.nonzero(self.counts < CERTAIN * self.deviation).flatten().tolist()

    @property
    def shares(self) -> Tensor:
        """What part of the records each class has; uncertain classes have none, unless all are."""
        counts = self.counts.double().clamp(min=0)
        certain = torch.where(self.counts < CERTAIN * self.deviation, 0, counts)
        chosen = certain if certain.any() else counts
        return chosen / chosen.sum()

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        tensors = {"counts": self.counts} | {f"generator.{name}": value for name, value in self.generator.items()}
        described = []
        for index, one in enumerate(self.rounds):
            own = one.record_map.tensors() | {"noisy": one.noisy}
            tensors |= {f"{index}.{name}": value for name, value in own.items()}
            described.append({"kind": one.kind, "layout": one.layout.to_dict(), "facts": one.facts})
        facts = {
            "version": VERSION,
            "shape": list(self.shape),
            "classes": self.classes,
            "records": self.records,
            "deviation": self.deviation,
            "plan": self.plan.to_dict(),
            "rounds": described,
            "statement": self.statement,
            "extra": self.extra,
        }
        write_atomically(path, seal(tensors, facts))

    @classmethod
    def load(cls, path: Path, device: torch.device | str = "cpu") -> Release:
        """Read it back; a file that is no sketch, or not as it was written, or at odds with itself, is refused."""
        tensors, facts, digest = read_sealed(path, device)
        try:
            return cls._of(tensors, facts, digest)
        except Exception as error:  # whatever is wrong with it, it is one line
            kind = "" if isinstance(error, DpotError) else f"{type(error).__name__}: "
            line = (str(error).splitlines() or [""])[0][:300]
            raise DataError(f"{path}: not a released sketch ({kind}{line})") from None

    @classmethod
    def _of(cls, tensors: dict[str, Tensor], facts: Mapping[str, Any], digest: str) -> Release:
        if facts.get("version") != VERSION:
            raise DataError(f"version {str(facts.get('version'))[:20]}, this is for {VERSION}")
        told = conform(_Facts, facts, "release")
        channels, height, width = told.shape
        if not told.rounds or told.rounds[0].get("kind") != "linear":  # the one whose tensors show the shape
            raise DataError("its first round is not one of lines")
        left = dict(tensors)
        counts = _shaped(left.pop("counts"), "counts", (told.classes,), torch.float64)
        rounds = []
        for index, one in enumerate(told.rounds):
            described = conform(_Round, one, f"release.rounds[{index}]")
            prefix = f"{index}."
            own = {name.removeprefix(prefix): left.pop(name) for name in tensors if name.startswith(prefix)}
            rounds.append(_round(described, own, told))
        generator = {n.removeprefix("generator."): left.pop(n) for n in tensors if n.startswith("generator.")}
        for name, tensor in (*left.items(), *generator.items()):
            if name in left or not tensor.isfinite().all():
                raise DataError(f"the tensor {name[:100]} is {'not known' if name in left else 'not finite'}")
        statement = verified(told.statement) if told.statement else None
        if statement:
            _agree(statement, told)
        return cls(
            shape=(channels, height, width),
            classes=told.classes,
            records=told.records,
            counts=counts,
            rounds=rounds,
            plan=told.plan,
            deviation=told.deviation,
            generator=generator,
            statement=statement.to_dict() if statement else {},
            extra=told.extra,
            digest=digest,
        )


@dataclass(frozen=True)
class _Facts:
    """What a file says beside its tensors, and in which form."""

    version: int
    shape: list[Count]
    classes: Count
    records: Count
    deviation: Positive
    plan: Plan
    rounds: list[dict[str, Any]]
    statement: dict[str, Any]
    extra: dict[str, Any]


@dataclass(frozen=True)
class _Round:
    """The same of one round."""

    kind: Literal["linear", "textures", "learned"]
    layout: dict[str, int | bool]
    facts: dict[str, Any]


def _round(told: _Round, own: dict[str, Tensor], release: _Facts) -> Round:
    """A round whose tensors have the shapes that its layout gives them."""
    layout = conform(Pooled if told.kind == "textures" else Layout, told.layout, "layout")
    if min(layout.lines, layout.planes, layout.knots - 2, layout.plane_knots - 2) < 0 or not layout.pieces:
        raise DataError("layout: a negative number, or nothing at all")
    noisy = _shaped(own.pop("noisy"), "noisy", (release.classes, layout.bins), torch.int64)
    if told.kind == "linear":
        _shaped(own["weights"], "weights", (layout.positions, math.prod(release.shape)), torch.int16)
        _shaped(own["stretch"], "stretch", (layout.positions,), torch.float64)
        _shaped(own["shift"], "shift", (layout.positions,), torch.float64)
    elif told.kind == "learned":
        _shaped(own["weights"], "weights", (len(own["weights"]), layout.positions), torch.float32)
        _shaped(own["shift"], "shift", (layout.positions,), torch.float32)
    elif len(own["filters"]) * int(told.facts.get("look", {}).get("cells", 1)) ** 2 != layout.lines + 2 * layout.planes:
        raise DataError(f"filters: {len(own['filters'])}, the layout has {layout.lines}")
    if told.kind != "linear" and told.facts.get("shape") != release.shape:
        raise DataError("a round's shape is another than the release's")
    record_map = load_map(told.kind, own, told.facts)
    expected = set(record_map.tensors())
    if set(own) != expected:
        raise DataError(f"the tensors of a {told.kind} round are {', '.join(sorted(expected))[:200]}")
    return Round(told.kind, record_map, layout, noisy, told.facts)


def _shaped(tensor: Tensor, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise DataError(f"{name}: {tensor.dtype} {tuple(tensor.shape)}, not {dtype} {shape}")
    if not tensor.isfinite().all():
        raise DataError(f"{name}: not a finite number")
    return tensor


def _agree(statement: Statement, told: _Facts) -> None:
    """The noise that the statement accounts for is the noise that the release says it has."""
    squares = 0.0
    for entry in statement.entries:
        event = Event.from_dict(entry["event"])
        if not isinstance(event, CountGaussian):
            raise DataError(f"the statement has a {type(event).__name__}, a sketch releases counts")
        squares += entry["count"] / event.noise_multiplier**2
    if len(statement.entries) < len(told.rounds):
        raise DataError(f"{len(told.rounds)} rounds, and {len(statement.entries)} entries in the statement")
    accounted = told.plan.count_deviation(math.sqrt(squares))
    if not math.isclose(accounted, told.deviation, rel_tol=SAME):
        raise DataError(f"noise of {told.deviation:.6g} records, the statement accounts for {accounted:.6g}")


def load_map(kind: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> RecordMap:
    """A map from its tensors (its `tensors`) and the facts kept beside them."""
    if kind == "linear":
        return LinearMap(tensors["weights"], tensors["stretch"], tensors["shift"], int(facts["grid"]))
    channels, height, width = facts["shape"]
    if kind == "textures":
        look = conform(Look, facts.get("look", {}), "look")
        return TextureMap(tensors["filters"], (channels, height, width), int(facts["knots"]), int(facts["grid"]), look)
    networks = []
    for index, style in enumerate(facts["networks"]):
        network = FeatureNetwork(style, (channels, height, width), int(facts["classes"]))
        prefix = f"network.{index}."
        network.load_state_dict({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
        networks.append(freeze(network).to(tensors["weights"].device))
    return LearnedMap(networks, tensors["weights"], tensors["shift"])
