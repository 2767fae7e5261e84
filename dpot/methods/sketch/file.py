"""The released sketch as a file: public numbers, noisy counts and the privacy statement, to be fitted anywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dpot.errors import DataError
from dpot.methods.sketch.features import Layout, LearnedMap, LinearMap, RecordMap, freeze
from dpot.methods.sketch.rules import Plan
from dpot.methods.sketch.textures import Pooled, TextureMap
from dpot.models.feature_network import FeatureNetwork
from dpot.record import write_atomically

VERSION = 2
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
    records: int  # public under replacement
    counts: Tensor  # (classes,) as the noisy bins say
    rounds: list[Round]
    plan: Plan
    deviation: float  # of the noise in each of `counts`, in records
    generator: dict[str, Tensor] = field(default_factory=dict)  # one fitted to it, where it is kept along
    statement: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)  # names of classes and columns, and the like

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
        tensors = {"counts": self.counts.cpu()}
        tensors |= {f"generator.{name}": value.cpu().contiguous() for name, value in self.generator.items()}
        described = []
        for index, one in enumerate(self.rounds):
            own = one.record_map.tensors() | {"noisy": one.noisy}
            tensors |= {f"{index}.{name}": value.cpu().contiguous() for name, value in own.items()}
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
        write_atomically(path, save(tensors, {"sketch": json.dumps(facts)}))

    @classmethod
    def load(cls, path: Path, device: torch.device | str = "cpu") -> Release:
        """Read it back; a file that is no sketch is refused by name."""
        try:
            with safe_open(path, framework="pt", device=str(device)) as file:
                facts = json.loads((file.metadata() or {})["sketch"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if facts["version"] != VERSION:
                raise ValueError(f"version {facts['version']}, this is for {VERSION}")
            rounds = []
            for index, one in enumerate(facts["rounds"]):
                prefix = f"{index}."
                own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
                noisy = own.pop("noisy")
                record_map = load_map(one["kind"], own, one["facts"])
                rounds.append(Round(one["kind"], record_map, _layout(one["kind"], one["layout"]), noisy, one["facts"]))
            shape = tuple(facts["shape"])
            return cls(
                shape=(shape[0], shape[1], shape[2]),
                classes=facts["classes"],
                records=facts["records"],
                counts=tensors["counts"],
                rounds=rounds,
                plan=Plan.from_dict(facts["plan"]),
                deviation=facts["deviation"],
                generator={n.removeprefix("generator."): t for n, t in tensors.items() if n.startswith("generator.")},
                statement=facts["statement"],
                extra=facts["extra"],
            )
        except (OSError, SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"{path}: not a released sketch ({type(error).__name__}: {error})") from None


def load_map(kind: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> RecordMap:
    """A map from its tensors (its `tensors`) and the facts kept beside them."""
    if kind == "linear":
        return LinearMap(tensors["weights"], tensors["stretch"], tensors["shift"], int(facts["grid"]))
    channels, height, width = facts["shape"]
    if kind == "textures":
        return TextureMap(tensors["filters"], (channels, height, width), int(facts["knots"]), int(facts["grid"]))
    networks = []
    for index, style in enumerate(facts["networks"]):
        network = FeatureNetwork(style, (channels, height, width), int(facts["classes"]))
        prefix = f"network.{index}."
        network.load_state_dict({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
        networks.append(freeze(network).to(tensors["weights"].device))
    return LearnedMap(networks, tensors["weights"], tensors["shift"])


def _layout(kind: str, data: Mapping[str, Any]) -> Layout:
    return Pooled(**data) if kind == "textures" else Layout(**data)
