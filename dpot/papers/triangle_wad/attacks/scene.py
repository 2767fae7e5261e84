"""Both protocols played between two parties of a data set, and every attack on what they sent.

Every attack gets the view of somebody who took part or looked on (`Log.view`), and nothing else, but for what is said:
an insider's own data, public data of the same kind, the range of a pixel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dpot.data.base import Dataset
from dpot.errors import UsageError
from dpot.methods.distance.fed_wad import FedWad
from dpot.methods.distance.parties import SERVER, Distance, Estimate
from dpot.methods.distance.triangle_wad import TriangleWad
from dpot.papers.plots import strips
from dpot.papers.triangle_wad.attacks import denoising, geodesic, inversion
from dpot.papers.triangle_wad.attacks.scores import recovery
from dpot.papers.triangle_wad.clouds import Side, points_allowed, two_sides
from dpot.privacy.budget import Budget
from dpot.profiles import Profile
from dpot.transport.exact import Measure
from dpot.transport.geodesic import measure


@dataclass(frozen=True)
class Outcome:
    """One line of the report, and what it shows."""

    protocol: str
    seen_by: str
    attack: str
    scores: dict[str, float]
    shared: Tensor = field(repr=False)
    recovered: Tensor = field(repr=False)

    def row(self) -> dict[str, Any]:
        """Without the tensors."""
        return {"protocol": self.protocol, "seen_by": self.seen_by, "attack": self.attack, **self.scores}


@dataclass(frozen=True)
class Scene:
    """The two parties, public records of the same kind, and the settings under attack."""

    first: Side
    second: Side
    public: Side
    t: float
    sigma: float
    rounds: int
    seed: int

    def play(self, method: Distance) -> Estimate:
        """Run a protocol between the two parties."""
        pair = self.first.party("mu"), self.second.party("nu")
        return method.estimate(*pair, torch.Generator().manual_seed(self.seed), Budget(None))

    def score(self, protocol: str, seen_by: str, attack: str, shared: Tensor, guess: Tensor) -> Outcome:
        """Compare a guess with the first party's records."""
        return Outcome(protocol, seen_by, attack, recovery(guess, self.first.x).to_dict(), shared, guess)


def on_triangle_wad(scene: Scene) -> list[Outcome]:
    """Constant γ, public γ, γ known to the parties alone."""
    found = []
    view = _seen(scene.play(TriangleWad(t=scene.t, gamma="ones")), SERVER)
    eta, gamma = view["eta mu"], view["gamma"]
    guess = inversion.subtracted(eta.points, gamma.points, scene.t)
    found.append(scene.score("TriangleWad, γ = 1", SERVER, "subtract γ", eta.points, guess))

    view = _seen(scene.play(TriangleWad(t=scene.t, sigma=scene.sigma)), SERVER)
    eta, gamma = view["eta mu"], view["gamma"]
    name = "TriangleWad, random γ, public"
    for attack, guess in (
        ("subtract γ row by row (the paper's)", inversion.subtracted(eta.points, gamma.points, scene.t)),
        ("solve the transport again", inversion.resolved(eta, gamma, scene.t)),
        ("match by the range of a pixel", inversion.range_matched(eta.points, gamma.points, scene.t)),
    ):
        found.append(scene.score(name, SERVER, attack, eta.points, guess))

    estimate = scene.play(TriangleWad(t=scene.t, sigma=scene.sigma, secret=True))
    name, view = "TriangleWad, random γ, secret", _seen(estimate, "nu")
    gamma = measure(inversion.gamma_of_insider(scene.second.x, view["eta nu"].points, scene.t))
    guess = inversion.resolved(view["eta mu"], gamma, scene.t)
    found.append(scene.score(name, "nu", "γ from the own message, then transport", view["eta mu"].points, guess))

    eta = _seen(estimate, SERVER)["eta mu"]
    guess = denoising.wiener(eta.points, scene.t, scene.sigma, scene.public.x, -1.0, 1.0)
    wiener = scene.score(name, SERVER, "Wiener filter, public covariance", eta.points, guess)
    wiener.scores.update(_labels(scene, guess))
    links = denoising.linked(eta.points, torch.cat((scene.first.x, scene.public.x)), scene.t)
    wiener.scores["linked"] = float((links == torch.arange(len(links))).double().mean())
    wiener.scores["linked_among"] = len(scene.first.x) + len(scene.public.x)
    return [*found, wiener]


def on_fed_wad(scene: Scene) -> list[Outcome]:
    """The second party, from γ after the last round."""
    found = []
    own = measure(scene.second.x)
    for t, name in ((0.5, "FedWad, t = ½"), (None, "FedWad, random t")):
        log = scene.play(FedWad(t=t, rounds=scene.rounds, sigma=scene.sigma)).log
        view = log.view("nu")
        gamma, halves = view["gamma"], (view["half mu"], view["half nu"])
        assert isinstance(gamma, Measure)
        place = float(halves[0]) / (float(halves[0]) + float(halves[1]))  # type: ignore[arg-type]
        for attack, guess in (
            ("2γ - nP(γ, ν)ν", geodesic.closed_form(gamma, own)),
            ("extrapolate at the t of the exchanged distances (Eq. 5)", geodesic.extrapolated(gamma, own, place)),
        ):
            found.append(scene.score(name, "nu", attack, gamma.points, guess))
    return found


def _seen(estimate: Estimate, reader: str) -> dict[str, Measure]:
    return {name: c for name, c in estimate.log.view(reader).items() if isinstance(c, Measure)}


def _labels(scene: Scene, guess: Tensor) -> dict[str, float]:
    if scene.first.y is None or scene.public.y is None:
        return {}
    both = denoising.inferred_labels(torch.cat((guess, scene.first.x)), scene.public.x, scene.public.y, scene.seed)
    right = (both == scene.first.y.repeat(2)).double().view(2, -1).mean(1)
    return {"label_accuracy": float(right[0]), "label_accuracy_raw": float(right[1])}


def scene_of(
    data: Any, profile: Profile, size: int, public: int, t: float, sigma: float, rounds: int, seed: int
) -> Scene:
    """Parties and public records, disjoint, from the train and test parts of a data set of images."""
    if not isinstance(data, Dataset) or data.kind != "images":
        raise UsageError("task=attack needs a data set of images (texts: paper=triangle_wad figure=6)")
    size = points_allowed(size, profile)
    public = min(public, len(data.train) - size)
    if public < 2:
        raise UsageError(
            f"task.public: a covariance needs 2 public records, {max(public, 0)} are left beside the parties'"
        )
    random = torch.Generator().manual_seed(seed)
    both, second = two_sides(data, size + public, size, random)
    y = both.y
    first = Side(both.x[:size], None if y is None else y[:size], both.classes)
    known = Side(both.x[size:], None if y is None else y[size:], both.classes)
    return Scene(first, second, known, t, sigma, rounds, seed)


def picture(scene: Scene, found: list[Outcome], shape: tuple[int, ...]) -> bytes:
    """The originals, then what was shared and what each attack recovers of it."""
    rows: list[tuple[str, Tensor]] = [("original", scene.first.x)]
    shown: Tensor | None = None
    for outcome in found:
        if outcome.shared is not shown:
            rows.append((outcome.protocol.replace(", ", "\n") + "\nshared", outcome.shared))
            shown = outcome.shared
        rows.append((outcome.attack.split(" (")[0].replace(", ", ",\n") + "\nrecovered", outcome.recovered))
    return strips(rows, shape, f"{len(scene.first.x)} records, t = {scene.t:g}, σ = {scene.sigma:g}")
