"""What to expect of a synthesis, before anything is spent: from public numbers, and from our own measured curves.

The number that decides is the signal (dpot/methods/sketch/rules.py): records of a class over the noise of one count.
The curves say what classifiers reached that were trained on synthetic and tested on real records, at which signal. They
were measured on other data than yours, so they are a guide and no promise. A test holds them to the records that they
come from.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import torch

from dpot.data.coding import Coding, ImageCoding, TableCoding
from dpot.methods.sketch import rules
from dpot.methods.sketch.file import CERTAIN
from dpot.methods.sketch.fit import PIECES_PER_STEP, PIECES_PER_STEP_ON_CPU
from dpot.methods.sketch.marginals import HISTOGRAM_SHARE, LEAST_SIGNAL, signal
from dpot.models.generator import Generator
from dpot.models.sketch_dcgan import SketchDCGAN
from dpot.privacy import calibration
from dpot.privacy.budget import Budget
from dpot.privacy.events import Gaussian
from dpot.tables import columns_of

# ε → accuracy (%) of an MLP; 60,000 images of 28×28 in 10 classes, δ = 1e-5, fitted on a GPU
EPSILONS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
MNIST = (84.2, 93.0, 94.7, 95.7, 96.3, 96.0)
FASHION = (73.7, 77.1, 79.0, 80.5, 81.7, 83.0)
IMAGES_SOURCE = "results/sketch/figure_1/records.jsonl"
ON_CPU, CPU_SOURCE = 83.2, "results/bench/synthesize.cpu.json"  # MNIST, at ε = 1 and at ε = 10
# of a pair of columns: signal, AUC of gradient boosting over that on real records, which table, at which ε
TABLES = (
    (1.28, 0.54, "wine", 1.0),
    (2.26, 0.95, "breast_cancer", 1.0),
    (5.61, 0.94, "diabetes", 1.0),
    (14.2, 0.97, "diabetes", 3.0),
    (98.2, 0.98, "adult", 0.3),
    (300.0, 0.99, "adult", 1.0),
    (2305.0, 0.99, "adult", 10.0),
)
TABLES_SOURCE = "results/tables/table_1/computed.md"
FEW = 850  # signal of images: below ε = 0.5 on MNIST the curves fall steeply
TRIED, PARTS = 2, 1.6  # steps that are timed; a whole step over the generator's part of it
COUNTED = 100  # random records whose projections are timed


@dataclass(frozen=True)
class Expectation:
    """What public numbers say about a synthesis."""

    records: int
    classes: int
    shape: tuple[int, ...]
    epsilon: float
    delta: float
    noise_per_class: float  # standard deviation, in records
    signal: float
    method: str
    quality: str
    source: str
    seconds: float | None  # on this device; None: a few
    resized: Sequence[str] = ()
    warnings: Sequence[str] = field(default_factory=list)

    def line(self) -> str:
        """The short form."""
        size = "×".join(map(str, self.shape))
        took = "seconds" if self.seconds is None else f"about {_duration(self.seconds)} for release and fits"
        return (
            f"{self.records:,} records of {size} in {self.classes} class{'' if self.classes == 1 else 'es'} at "
            f"ε = {self.epsilon:g}: a class's count gets noise of ±{self.noise_per_class:.3g} records; expect "
            f"{self.quality}; {took} on this device"
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able data."""
        return asdict(self)


def expect(
    coding: Coding,
    records: int,
    classes: int,
    budget: Budget,
    device: torch.device,
    *,
    resized: Sequence[str] = (),
    model: Generator | None = None,
) -> Expectation:
    """From the number of records and classes, the form of a record, the budget and the device."""
    classes = max(1, classes)
    mu = 1 / calibration.find_sigma(Gaussian, 1, budget)
    warnings: list[str] = []
    shape = coding.shape if isinstance(coding, ImageCoding) else (len(coding.columns),)
    plan = rules.plan(records, classes, mu, images=isinstance(coding, ImageCoding), cuda=device.type == "cuda")
    noise, seconds, method = plan.count_deviation(mu), None, "lines"
    pairs = 0.0
    if isinstance(coding, TableCoding):
        columns = len(columns_of(coding))
        pairs = signal(records, classes, columns, mu)
        if pairs >= LEAST_SIGNAL:
            method = "marginals"
            noise = math.sqrt(2 * (columns + 1) / HISTOGRAM_SHARE) / mu
        quality, source = _of_table(pairs), TABLES_SOURCE
    else:
        quality, source = _of_images(plan.signal, shape, device, warnings)
    if method == "lines":
        seconds = _seconds(coding, records, classes, plan, device, model)
        if isinstance(coding, TableCoding):
            warnings.append(
                f"few records for {shape[0]} columns: the noise hides most relations between columns "
                f"(signal {pairs:.2g}, {LEAST_SIGNAL} are wanted); leave out columns or raise privacy.epsilon"
            )
    if records / classes < 2 * CERTAIN * noise:
        warnings.append(
            f"the classes have {records / classes:.0f} records each on average, hardly more than the "
            f"{CERTAIN * noise:.0f} that the noise hides: small classes will be lost; take fewer classes or "
            "raise privacy.epsilon"
        )
    told = (records, classes, tuple(shape), budget.epsilon or 0.0, budget.delta or 0.0, noise, plan.signal)
    return Expectation(*told, method, quality, source, seconds, list(resized), warnings)


def _of_images(signal: float, shape: Sequence[int], device: torch.device, warnings: list[str]) -> tuple[str, str]:
    """What an MLP that is trained on synthetic images reaches, and where this was measured."""
    easy, hard = (between(signal, [6000 * _mu(e) for e in EPSILONS], curve) for curve in (MNIST, FASHION))
    source = IMAGES_SOURCE
    if signal < FEW:
        least = 6000 * _mu(EPSILONS[0])
        steep = "below everything that was measured" if signal < least else "where the curves fall steeply"
        warnings.append(
            f"little signal (records per class × μ = {signal:.0f}, {steep}): expect images that show little more than "
            "the average of their class; give more records, fewer classes or a larger privacy.epsilon"
        )
    on_cpu = device.type == "cpu"
    if on_cpu:
        easy, hard = min(easy, ON_CPU), min(hard, ON_CPU)
        source = f"{source}, {CPU_SOURCE}"
    if shape[0] == 3:
        warnings.append(
            "photographs are harder than the grey images behind this estimate: 9,000 faces of 32×32 at ε = 10, fitted "
            "on a GPU, are blurred, with an FID of 122 (results/sketch/table_3/comparison.md)"
            + ("; on a CPU expect blotches: fit the release on a GPU (Synthesizer.from_release)" * on_cpu)
        )
    if signal < 6000 * _mu(EPSILONS[0]):
        return f"less than was ever measured (below {hard:.0f}% for clothes and {easy:.0f}% for digits)", source
    span = f"{hard:.0f} to {easy:.0f}%" if round(hard) < round(easy) else f"at most {easy:.0f}%"
    worse = "less than " * (shape[0] == 3)
    return f"classifiers to reach {worse}{span} where real grey images of ten classes give 84 to 98%", source


def _of_table(pairs: float) -> str:
    share = between(pairs, [row[0] for row in TABLES], [row[1] for row in TABLES])
    return f"classifiers to keep about {100 * share:.0f}% of the AUC that real records give"


def between(x: float, places: Sequence[float], values: Sequence[float]) -> float:
    """A curve at x, linear in the logarithm; beyond its ends it is flat."""
    if x <= places[0]:
        return values[0]
    for (a, u), (b, v) in pairwise(zip(places, values, strict=True)):
        if x <= b:
            return u + (v - u) * math.log(x / a) / math.log(b / a)
    return values[-1]


def _mu(epsilon: float) -> float:
    return 1 / calibration.find_sigma(Gaussian, 1, Budget(epsilon, 1e-5, conversion="tight"))


def _seconds(
    coding: Coding, records: int, classes: int, plan: rules.Plan, device: torch.device, model: Generator | None
) -> float | None:
    """Release and fits, from a few steps of such a generator and some projections of random numbers, on no records."""
    if not isinstance(coding, ImageCoding):
        return 40.0  # measured on two cores: results/tables/table_1/computed.md
    state = torch.random.get_rng_state()
    own = model or SketchDCGAN(classes, coding.shape)
    own = own.to(device)
    at_once = 2 * (PIECES_PER_STEP if device.type == "cuda" else PIECES_PER_STEP_ON_CPU)
    size, positions = math.prod(coding.shape), plan.layout.positions
    lines = torch.randn(size, min(positions, at_once), device=device)
    labels = torch.arange(classes, device=device).repeat(plan.per_class)
    random = torch.Generator(device).manual_seed(0)
    took = []
    for _ in range(TRIED + 1):  # the first one warms up
        began = time.perf_counter()
        images = own(own.code(len(labels), random, device), labels)
        (images.flatten(1) @ lines).square().mean().backward()
        own.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took.append(time.perf_counter() - began)
    torch.random.set_rng_state(state)
    steps = plan.steps + (plan.second_steps if plan.second_share else 0)
    whole = torch.rand(COUNTED, size, dtype=torch.float64, device=device)
    began = time.perf_counter()
    whole @ torch.rand(size, positions, dtype=torch.float64, device=device)
    release = (time.perf_counter() - began) * records / COUNTED
    return PARTS * (steps * min(took[1:]) + release)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
