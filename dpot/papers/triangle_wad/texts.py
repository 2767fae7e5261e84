"""Figure 6 of TriangleWad and its matching rates: words recovered from what is exchanged about BBC articles.

A text is a cloud of word vectors. A recovered vector is read as the nearest word of the whole vocabulary; the matching
rate is the share of a text's words (with repetitions) that are read right.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import Tensor

from dpot.data.base import Documents
from dpot.errors import UsageError
from dpot.methods.distance.fed_wad import FedWad
from dpot.methods.distance.parties import Distance, Log, Party
from dpot.methods.distance.triangle_wad import TriangleWad
from dpot.papers.computed import Computed, Context, Table
from dpot.papers.plots import bars
from dpot.papers.triangle_wad.attacks.geodesic import closed_form, extrapolated
from dpot.papers.triangle_wad.attacks.inversion import resolved, subtracted
from dpot.papers.triangle_wad.clouds import few
from dpot.privacy.budget import Budget
from dpot.transport.exact import Measure
from dpot.transport.geodesic import measure

WORDS = 250  # of a text, at most: shorter ones make sizes unequal
PAIRS = 8
PUBLISHED = {("FedWad", "different"): 69, ("TriangleWad", "different"): 4} | {
    ("FedWad", "identical"): 100,
    ("TriangleWad", "identical"): 32,
}


def figure_6(context: Context) -> Computed:
    """Matching rates for pairs of different and of identical texts, by each attack."""
    data = context.data("bbc")
    if not isinstance(data, Documents):
        raise UsageError("figure=6 needs the BBC articles")
    vectors = data.vectors.double()
    random = torch.Generator().manual_seed(context.seed)
    order = torch.randperm(len(data.train), generator=random).tolist()
    pairs = [(order[2 * i], order[2 * i + 1]) for i in range(few(PAIRS, context.profile))]
    rounds = few(20, context.profile)
    rates: dict[tuple[str, str, str], list[float]] = {}
    for a, b in pairs:
        for kind, other in (("different", b), ("identical", a)):
            first, second = (_words(data, i) for i in (a, other))
            for (protocol, attack), guess in _guesses(vectors[first], vectors[second], rounds).items():
                read = _nearest(guess, vectors)
                rates.setdefault((protocol, attack, kind), []).append(float((read == first).double().mean()))
    rows: list[dict[str, Any]] = []
    for protocol, attack in dict.fromkeys((p, a) for p, a, _ in rates):
        row: dict[str, Any] = {"protocol": protocol, "attack": attack}
        for kind in ("different", "identical"):
            row[f"{kind} texts, %"] = 100 * statistics.fmean(rates[protocol, attack, kind])
            is_papers = attack.endswith("(the paper's)") or attack == "2γ - nP(γ, ν)ν"
            row[f"published, {kind}, %"] = PUBLISHED[protocol.split(",")[0], kind] if is_papers else None
        rows.append(row)
    panels = [
        (f"{kind} texts", {f"{r['protocol']}: {r['attack']}": [r[f"{kind} texts, %"]] for r in rows})
        for kind in ("different", "identical")
    ]
    lengths = [len(_words(data, i)) for pair in pairs for i in pair]
    note = (
        f"{len(pairs)} pairs of articles of {min(lengths)} to {max(lengths)} words, GloVe 50-d; the second party "
        "attacks FedWad, anybody attacks TriangleWad with a public γ (σ = 1). How the paper chose its texts and "
        "counted matches is not known to us, so its rates are a rough guide."
    )
    title = "TriangleWad, Figure 6 and matching rates: words of BBC articles recovered"
    picture = bars(panels, ["words read right, %"], "Figure 6: words recovered from the messages")
    return Computed({"rows": rows}, [Table(title, rows, note)], {"": picture}, [data])


def _words(data: Documents, index: int) -> Tensor:
    row = data.train.x[index]
    return row[row >= 0].long()[:WORDS]


def _guesses(first: Tensor, second: Tensor, rounds: int) -> dict[tuple[str, str], Tensor]:
    found = {}
    for name, t in (("FedWad", 0.5), ("FedWad, random t", None)):
        view = _log(FedWad(t=t, rounds=rounds), first, second).view("nu")
        gamma = view["gamma"]
        assert isinstance(gamma, Measure)
        halves = [float(view[f"half {party}"]) for party in ("mu", "nu")]  # type: ignore[arg-type]
        place = halves[0] / sum(halves) if sum(halves) > 0 else 0.5
        found[name, "2γ - nP(γ, ν)ν"] = closed_form(gamma, measure(second))
        found[name, "extrapolated (Eq. 5)"] = extrapolated(gamma, measure(second), min(place, 0.99))
    view = _log(TriangleWad(), first, second).view("server")
    eta, gamma = view["eta mu"], view["gamma"]
    assert isinstance(eta, Measure)
    assert isinstance(gamma, Measure)
    found["TriangleWad", "subtract γ row by row (the paper's)"] = subtracted(eta.points, gamma.points, 0.5)
    found["TriangleWad", "solve the transport again"] = resolved(eta, gamma, 0.5)
    return found


def _log(method: Distance, first: Tensor, second: Tensor) -> Log:
    pair = Party("mu", first), Party("nu", second)
    return method.estimate(*pair, torch.Generator().manual_seed(0), Budget(None)).log


def _nearest(guess: Tensor, vectors: Tensor) -> Tensor:
    return torch.cdist(guess, vectors).argmin(1)
