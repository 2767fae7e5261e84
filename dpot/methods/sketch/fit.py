"""Fitting a generator to a released sketch: post-processing, without the records and free of budget.

The loss is a squared distance of features, ‖noisy target - mean of generated features‖². The noise is additive and
independent of the generator, so its expectation is the noiseless loss plus a constant; the generated records' own
sampling noise is taken out by multiplying two independent halves of the batch, ⟨target - a, target - b⟩. On plain
bins this is a sliced MMD, on cumulated ones a sliced Cramér distance; both are used.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from dpot.methods.sketch.directions import is_table
from dpot.methods.sketch.features import (
    SPAN,
    Layout,
    LearnedMap,
    RecordMap,
    freeze,
    hidden,
)
from dpot.models.feature_network import FeatureNetwork, Style
from dpot.models.generator import Generator
from dpot.precision import fast_products
from dpot.training.engine import Engine
from dpot.training.progress import Progress
from dpot.training.schedules import Cosine
from dpot.transport.directions import ImageShape

PIECES_PER_STEP, PIECES_PER_STEP_ON_CPU = 1400, 350  # lines and planes; twice as many are looked at in parts
KEEP_BACK = 32  # one line in so many is not fitted but watched
CUMULATED = 0.2  # weight of the cumulated bins against 1 of the plain ones
NETWORKS: tuple[Style, ...] = ("conv", "conv", "dense", "dense")
NETWORKS_ON_CPU: tuple[Style, ...] = ("conv", "dense")
TABLE_NETWORKS: tuple[Style, ...] = ("dense", "dense", "dense")
NETWORK_RATE, INPUT_NOISE = 2e-3, 0.1
NETWORK_STEPS, NETWORK_BATCH = 720, 500
NETWORK_STEPS_ON_CPU, NETWORK_BATCH_ON_CPU = 300, 100
SECONDS_ON_CPU = (150.0, 75.0)  # of the two fits to photographs
TRIED, LEAST_TIMED = 4, 200  # steps that are tried to know the machine's speed; steps that a fit has at least
MOST_HIDDEN = 256  # principal directions of the networks' hidden units that are kept


@dataclass(frozen=True)
class Target:
    """One round of the sketch as the fit sees it: what to compute of generated records and what it should be."""

    record_map: RecordMap
    layout: Layout
    expected: Tensor  # (classes, bins), weights of each line or plane summing to about 1
    cumulated: float = CUMULATED
    weight: float = 1.0
    positions: Tensor | None = None  # those of the map that belong to this target, where it is a part of a round

    def loss(self, records: Tensor, class_weights: Tensor, random: torch.Generator) -> Tensor:
        """Records (classes, 2, n, d), two halves per class → the unbiased squared distance, averaged over pieces.

        Of many lines and planes only every s-th is looked at, from a random one on: an unbiased part of the whole.
        """
        part = self._some(random)
        layout, (classes, halves, count, size) = part.layout, records.shape
        positions = self.record_map(records.reshape(-1, size), part.positions).view(classes * halves, count, -1)
        gap = layout.means(positions).view(classes, halves, -1) - part.expected[:, None]
        edge = layout.lines * layout.knots
        lines = gap[..., :edge].reshape(classes, halves, layout.lines, layout.knots)
        total = (lines[:, 0] * lines[:, 1]).sum(2).mean(1)
        if self.cumulated:
            steps = lines @ lines.new_ones(layout.knots, layout.knots).triu()  # torch's cumsum is slow here
            total = total + self.cumulated * (steps[:, 0] * steps[:, 1]).sum(2).mean(1)
        if layout.planes:
            total = total + (gap[:, 0, edge:] * gap[:, 1, edge:]).sum(1) / layout.planes
        return self.weight * (class_weights * total).mean()

    def split(self) -> tuple[Target, Target]:
        """(most lines and all planes to fit, every 32nd line to watch).

        The noise of the lines kept back is independent of the generator, so its loss on them, unlike that on the
        others, is the noiseless one up to a constant: where it grows, the generator is learning the noise.
        """
        lines, planes = (torch.arange(n, device=self.expected.device) for n in (self.layout.lines, self.layout.planes))
        kept_back = lines % KEEP_BACK == KEEP_BACK - 1
        return self._only(lines[~kept_back], planes), self._only(lines[kept_back], planes[:0])

    def _some(self, random: torch.Generator) -> Target:
        """What one step looks at."""
        device = self.expected.device
        stride = self.layout.pieces // (PIECES_PER_STEP if device.type == "cuda" else PIECES_PER_STEP_ON_CPU)
        if stride < 2:
            return self
        first = torch.randint(stride, (), generator=random, device=device)
        counts = (self.layout.lines // stride, self.layout.planes // stride)
        lines, planes = (torch.arange(n, device=device) * stride + first for n in counts)
        return self._only(lines, planes)

    def _only(self, lines: Tensor, planes: Tensor) -> Target:
        """These lines and planes as a target of their own."""
        full = self.layout
        on_lines, on_planes = self.expected.split([full.lines * full.knots, full.planes * full.plane_knots**2], 1)
        chosen = torch.cat([lines, full.lines + planes, full.lines + full.planes + planes])
        expected = [on_lines.reshape(-1, full.lines, full.knots)[:, lines].flatten(1)]
        if len(planes):
            expected.append(on_planes.reshape(-1, full.planes, full.plane_knots**2)[:, planes].flatten(1))
        return replace(
            self,
            layout=replace(full, lines=len(lines), planes=len(planes)),
            expected=torch.cat(expected, 1),
            positions=chosen if self.positions is None else self.positions[chosen],
        )


def expectations(noisy: Tensor, counts: Tensor, layout: Layout) -> Tensor:
    """Noisy counts as mean weights per record of the class."""
    return (noisy.double() / (layout.unit * counts.clamp(min=1)[:, None])).float()


def class_weights(counts: Tensor) -> Tensor:
    """A class with few records is known less well: its noise grows with 1/count. Weight 1 from half the median on."""
    common = counts.clamp(min=1).quantile(0.5) / 2  # torch's median of two classes would be the smaller one
    return (counts.clamp(min=0) / common).clamp(max=1).square().float()


def fit_step(
    targets: Sequence[Target],
    model: Generator,
    optimizer: torch.optim.Optimizer,
    weights: Tensor,
    per_class: int,
    random: torch.Generator,
) -> Callable[[], dict[str, Tensor]]:
    """One step: the same number of records of every class in two halves, all targets, the optimiser.

    The first target is that of the linear round, of which some lines are only watched.
    """
    enough = targets[0].layout.lines >= 2 * KEEP_BACK
    seen, watched = targets[0].split() if enough else (targets[0], None)
    fitted = [seen, *targets[1:]]
    device = weights.device
    labels = torch.arange(model.classes, device=device).repeat_interleave(per_class)

    def step() -> dict[str, Tensor]:
        with fast_products():  # a position on a line of 24 knots is off by a hundredth of a knot
            images = model(model.code(len(labels), random, device), labels)
            records = images.reshape(model.classes, 2, per_class // 2, -1)
            loss = torch.stack([target.loss(records, weights, random) for target in fitted]).sum()
            loss.backward()
            with torch.no_grad():
                unseen = {} if watched is None else {"unseen": watched.loss(records, weights, random)}
        optimizer.step()
        return {"loss": loss, **unseen}

    return step


def steps_in(
    seconds: float,
    targets: Sequence[Target],
    model: Generator,
    weights: Tensor,
    per_class: int,
    random: torch.Generator,
) -> int:
    """How many steps this machine makes in so many seconds: a few are tried, on copies."""
    trial = copy.deepcopy(model)
    own = torch.Generator(random.device)
    own.set_state(random.get_state())
    step = fit_step(targets, trial, torch.optim.Adam(trial.parameters()), weights, per_class, own)
    took = []
    for _ in range(TRIED):
        began = time.perf_counter()
        step()
        took.append(time.perf_counter() - began)
    return max(LEAST_TIMED, int(seconds / min(took)))


def styles_for(shape: ImageShape, device: torch.device) -> tuple[Style, ...]:
    """Which networks the second round learns."""
    if is_table(shape):
        return TABLE_NETWORKS
    return NETWORKS if device.type == "cuda" else NETWORKS_ON_CPU


def learn_map(
    records: Tensor,
    labels: Tensor,
    shape: ImageShape,
    classes: int,
    layout: Layout,
    random: torch.Generator,
    progress: Progress | None = None,
    steps: int | None = None,
) -> LearnedMap:
    """Train small classifiers on synthetic records; lines through their whitened hidden units.

    Where the classifiers look is where the classes differ: there the second round measures the private records. The
    classifiers see synthetic records only, so the map is public.
    """
    device = records.device
    styles = styles_for(shape, device)
    networks = [FeatureNetwork(style, shape, classes).to(device) for style in styles]
    optimizer = torch.optim.Adam([p for n in networks for p in n.parameters()], lr=NETWORK_RATE)
    cuda = device.type == "cuda"
    steps = steps or (NETWORK_STEPS if cuda else NETWORK_STEPS_ON_CPU)
    batch = min(NETWORK_BATCH if cuda else NETWORK_BATCH_ON_CPU, len(records))

    def step() -> dict[str, Tensor]:
        rows = torch.randint(len(records), (batch,), generator=random, device=device)
        shown = records[rows]
        shown = shown + INPUT_NOISE * torch.randn(shown.shape, generator=random, device=device)
        loss = torch.stack([F.cross_entropy(network(shown), labels[rows]) for network in networks]).sum()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    Engine(
        step,
        modules={f"network {i}": network for i, network in enumerate(networks)},
        optimizer=optimizer,
        generators={"random": random},
        steps=steps,
        schedule=Cosine(steps),
        report=progress,
        name="networks of the second round",
    ).run()
    frozen = [freeze(network) for network in networks]
    with torch.no_grad():
        seen = torch.cat([hidden(frozen, part) for part in records[:20_000].split(2000)]).double()
    centre = seen.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov(seen.T))
    kept = min(MOST_HIDDEN, len(values))
    values = values[-kept:].clamp(min=max(1e-3 * float(values[-1]), 1e-12))
    mixtures = torch.randn(kept, layout.lines, generator=random, device=device, dtype=torch.float64)
    weights = (vectors[:, -kept:] / values.sqrt()) @ F.normalize(mixtures, dim=0)
    spread = ((seen - centre) @ weights).std(0).clamp(min=1e-9)
    weights = weights / spread * ((layout.knots - 1) / (2 * SPAN))
    shift = centre @ weights - (layout.knots - 1) / 2
    return LearnedMap(frozen, weights.float(), shift.float())
