"""Events: values that survive JSON, refuse nonsense by name, and never mix neighbouring relations."""

import ast
import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import dpot.privacy
from dpot.errors import PrivacyError
from dpot.privacy.errors import AdjacencyMismatch, InvalidParameter, UnknownEvent
from dpot.privacy.events import (
    AdaptiveSequence,
    Adjacency,
    Composed,
    CountGaussian,
    DiscreteGaussian,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    ProjectionGaussian,
    Sampler,
    SelfComposed,
    StratifiedSampled,
)

ADD, ONE, LABEL = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.REPLACE_KEEPING_LABEL
EVENTS = [
    Gaussian(1.1),
    Gaussian(1.1, ADD),
    CountGaussian(0.7),
    Laplace(0.3),
    DiscreteGaussian(50.0, 2, 2000),
    ProjectionGaussian(784, 1000, 0.776),
    ProjectionGaussian(784, 1000, 0.776, 2.5, LABEL),
    PoissonSampled(Gaussian(1.1, ADD), 1 / 1200),
    FixedSizeSampled(ProjectionGaussian(50, 100, 2.7), 32, 497),
    StratifiedSampled(ProjectionGaussian(784, 10, 1.0, 1.0, LABEL), (10, 9), (5421, 6742)),
    SelfComposed(FixedSizeSampled(Gaussian(2.0), 1, 10), 12_345_678),
    Composed((Gaussian(1.0), SelfComposed(Laplace(3.0), 2), DiscreteGaussian(4.0))),
    AdaptiveSequence((Gaussian(1.0), Gaussian(2.0)), 8.0, 6.0),
    NonPrivate("labels read as they are"),
    PoissonSampled(Composed((Gaussian(1.0, ADD), Gaussian(3.0, ADD))), 0.5),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_json_round_trip(event: Event) -> None:
    again = Event.from_dict(json.loads(json.dumps(event.to_dict(), allow_nan=False)))
    assert again == event
    assert hash(again) == hash(event)
    assert type(again) is type(event)


def test_every_event_is_in_the_round_trip() -> None:
    concrete = {kind for kind in Event.kinds.values() if dataclasses.is_dataclass(kind)}
    assert {type(event) for event in EVENTS} == concrete


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_events_are_frozen(event: Event) -> None:
    field = dataclasses.fields(event)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, field, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian(0.0),
        lambda: Gaussian(-1.0),
        lambda: Gaussian(math.nan),
        lambda: Gaussian(math.inf),
        lambda: Gaussian("1"),
        lambda: Gaussian(True),
        lambda: Gaussian(1.0, "neighbours"),
        lambda: Laplace(0),
        lambda: DiscreteGaussian(1.0, 0),
        lambda: DiscreteGaussian(1.0, 1, 0),
        lambda: DiscreteGaussian(1.0, 1.5),
        lambda: ProjectionGaussian(0, 1, 1.0),
        lambda: ProjectionGaussian(10, 0, 1.0),
        lambda: ProjectionGaussian(10, 1, 0.0),
        lambda: ProjectionGaussian(10, 1, 1.0, 0.0),
        lambda: PoissonSampled(Gaussian(1.0, ADD), 0.0),
        lambda: PoissonSampled(Gaussian(1.0, ADD), 1.01),
        lambda: PoissonSampled(Gaussian(1.0, ADD), math.nan),
        lambda: FixedSizeSampled(Gaussian(1.0), 0, 10),
        lambda: FixedSizeSampled(Gaussian(1.0), 11, 10),
        lambda: StratifiedSampled(Gaussian(1.0, LABEL), (), ()),
        lambda: StratifiedSampled(Gaussian(1.0, LABEL), (1,), (2, 3)),
        lambda: StratifiedSampled(Gaussian(1.0, LABEL), (3,), (2,)),
        lambda: SelfComposed(Gaussian(1.0), 0),
        lambda: SelfComposed("x", 1),
        lambda: Composed(()),
        lambda: AdaptiveSequence((Gaussian(1.0),), 1.0, 3.0),
        lambda: AdaptiveSequence((), 2.0, 3.0),
        lambda: PoissonSampled(PoissonSampled(Gaussian(1.0, ADD), 0.1), 0.1),
        lambda: FixedSizeSampled(NonPrivate(), 1, 2),
    ],
)
def test_bad_input_has_a_name(make: object) -> None:
    with pytest.raises(InvalidParameter):
        make()  # type: ignore[operator]
    assert issubclass(InvalidParameter, PrivacyError)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Composed((Gaussian(1.0, ADD), Gaussian(1.0, ONE))),
        lambda: Composed((Gaussian(1.0, LABEL), SelfComposed(Gaussian(1.0, ONE), 2))),
        lambda: AdaptiveSequence((Gaussian(1.0, ADD), Gaussian(1.0, ONE)), 2.0, 3.0),
        lambda: PoissonSampled(Gaussian(1.0, ONE), 0.1),
        lambda: FixedSizeSampled(Gaussian(1.0, ADD), 1, 10),
        lambda: StratifiedSampled(Gaussian(1.0, ONE), (1,), (10,)),
    ],
)
def test_relations_do_not_mix(make: object) -> None:
    with pytest.raises(AdjacencyMismatch):
        make()  # type: ignore[operator]


def test_an_unprivate_access_goes_with_every_relation() -> None:
    assert Composed((NonPrivate(), Gaussian(1.0, ADD))).relation is ADD
    assert NonPrivate().relation is None


def test_samplers_and_atoms() -> None:
    sampled = FixedSizeSampled(Gaussian(1.0), 1, 10)
    event = Composed((SelfComposed(sampled, 3), SelfComposed(SelfComposed(sampled, 2), 5)))
    assert sum(times for _, times in event.atoms()) == 13
    assert event.sampler is Sampler.FIXED_SIZE
    assert Composed((sampled, Gaussian(1.0))).sampler is Sampler.MIXED
    assert Gaussian(1.0).sampler is Sampler.FULL


@pytest.mark.parametrize(
    "data", [{}, {"kind": "Mechanism"}, {"kind": "Gaussian"}, {"kind": "os.system", "command": "true"}, {"kind": None}]
)
def test_unknown_events_are_refused(data: dict) -> None:
    with pytest.raises(UnknownEvent):
        Event.from_dict(data)


def test_privacy_imports_neither_models_nor_data_and_accounting_no_torch() -> None:
    folder = Path(dpot.privacy.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            allowed = ("dpot.privacy", "dpot.errors", "dpot.ranges", "dpot.disk", "dpot.version")
            assert all(not n.startswith("dpot") or n.startswith(allowed) for n in names), (path.name, names)
            if path.name not in ("noise.py", "counts.py"):
                assert all(n.split(".")[0] != "torch" for n in names), path.name
    code = "import sys, dpot.privacy.ledger, dpot.privacy.statement; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
