"""TriangleWad's claims (Li, Huang, Wang & Pang 2024), checked on synthetic clouds."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from dpot.methods.distance.direct_wad import DirectWad
from dpot.methods.distance.fed_wad import FedWad
from dpot.methods.distance.parties import SERVER, Distance, Estimate, Party
from dpot.methods.distance.triangle_wad import TriangleWad
from dpot.papers.claims import Claim, Finding
from dpot.papers.triangle_wad.attacks.inversion import gamma_of_insider, resolved, subtracted
from dpot.papers.triangle_wad.attacks.scores import recovery
from dpot.privacy.budget import Budget
from dpot.transport.exact import Measure
from dpot.transport.geodesic import interpolate, measure, triangle_error_bound, wasserstein

T = 0.5


def _cloud(n: int, d: int, seed: int, shift: float = 0.0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + shift


X, Y = _cloud(60, 30, 1).clamp(-1, 1), _cloud(60, 30, 2, 0.3).clamp(-1, 1)


def _play(method: Distance) -> Estimate:
    return method.estimate(Party("mu", X), Party("nu", Y), torch.Generator().manual_seed(7), Budget(None))


def _through(gamma: Measure, t: float, p: float) -> float:
    etas = [interpolate(measure(z), gamma, t, p) for z in (X, Y)]
    return wasserstein(etas[0], etas[1], p)


def theorem_1() -> Finding:
    """Let σ fall: the error must fall like σ² if the bound holds with any constant."""
    direct = wasserstein(measure(X), measure(Y))
    found = []
    for sigma in (0.1, 0.01, 0.001, 0.0001):
        gamma = measure(sigma * _cloud(60, 30, 3))
        error = abs(_through(gamma, T, 2.0) / (1 - T) - direct)
        found.append((sigma, error, error / (sigma**2 * 30)))
    text = "; ".join(f"σ = {s:g}: error {e:.2e}, error/(σ²d) = {r:.3g}" for s, e, r in found)
    ratios = [r for _, _, r in found]
    return Finding(
        "false" if ratios[-1] > 1 and ratios[-1] > 5 * ratios[-2] else "holds",
        f"{text}: the error is of order σ, not σ²d",
    )


def corrected_bound() -> Finding:
    """The bound of dpot/transport/geodesic.py over t, p, σ and sizes."""
    worst = 0.0
    cases = list(itertools.product((0.1, 0.5, 0.9), (1.0, 2.0), (0.001, 1.0, 10.0), (20, 60)))
    for t, p, sigma, size in cases:
        gamma = measure(sigma * _cloud(size, 30, 4))
        error = abs(_through(gamma, t, p) / (1 - t) - wasserstein(measure(X), measure(Y), p))
        worst = max(worst, error / triangle_error_bound(t, gamma, p))
    return Finding(
        "holds" if worst <= 1 else "false",
        f"error at most {worst:.3f} of 2t·s(γ)/(1 - t) in {len(cases)} cases; proved in dpot/transport/geodesic.py",
    )


def scale() -> Finding:
    """The printed 1/t^p against 1/(1 - t), with constant defence data, where the answer is known."""
    parts, right = [], []
    for p, t in ((1.0, 0.5), (2.0, 0.5), (1.0, 0.3), (2.0, 0.8)):
        direct = _play(DirectWad(p)).value
        printed = _play(TriangleWad(p, t, gamma="ones", scale="printed")).value / direct
        proper = _play(TriangleWad(p, t, gamma="ones")).value / direct
        parts.append(f"p = {p:g}, t = {t:g}: {printed:.3g} times the distance (1/(1 - t): {proper:.6f})")
        right.append(abs(printed - 1) < 1e-9)
    return Finding("conditional" if right == [True, False, False, False] else "false", "; ".join(parts))


def zero_gap_hides() -> Finding:
    """Constant defence data: the published rows without a gap."""
    estimate = _play(TriangleWad(gamma="ones"))
    view = estimate.log.view(SERVER)
    eta, gamma = view["eta mu"], view["gamma"]
    assert isinstance(eta, Measure)
    assert isinstance(gamma, Measure)
    got = recovery(subtracted(eta.points, gamma.points, T), X, 1e-9)
    gap = abs(estimate.value - _play(DirectWad()).value)
    return Finding(
        "false" if got.rows == 1 else "holds",
        f"gap {gap:.1e}, and {100 * got.rows:.0f}% of the rows recovered by subtracting γ, "
        f"largest error {got.max_error:.1e}",
    )


def matching_is_hidden() -> Finding:
    """Random defence data: the paper's attack, and the matching found again."""
    view = _play(TriangleWad()).log.view(SERVER)
    eta, gamma = view["eta mu"], view["gamma"]
    assert isinstance(eta, Measure)
    assert isinstance(gamma, Measure)
    aligned = recovery(subtracted(eta.points, gamma.points, T), X, 1e-9)
    again = recovery(resolved(eta, gamma, T), X, 1e-9)
    return Finding(
        "false" if again.rows > 0.99 else "holds",
        f"row by row {100 * aligned.rows:.0f}% of the rows ({aligned.psnr:.1f} dB); with the transport solved again "
        f"{100 * again.rows:.0f}%, largest error {again.max_error:.1e}",
    )


def secret_reference() -> Finding:
    """γ unknown to the server, attacked by the other party."""
    view = _play(TriangleWad(secret=True)).log.view("nu")
    eta, own = view["eta mu"], view["eta nu"]
    assert isinstance(eta, Measure)
    assert isinstance(own, Measure)
    got = recovery(resolved(eta, measure(gamma_of_insider(Y, own.points, T)), T), X, 1e-9)
    return Finding(
        "false" if got.rows > 0.99 else "holds",
        f"the second party computes γ from its own message and recovers {100 * got.rows:.0f}% of the first one's rows",
    )


def faster() -> Finding:
    """Count transports: seconds depend on machines, these do not."""
    direct, triangle = (_play(m).details["transports"] for m in (DirectWad(), TriangleWad()))
    fed = _play(FedWad(rounds=20)).details["transports"]
    return Finding(
        "conditional",
        f"{fed} transports for FedWad with K = 20, {triangle} for TriangleWad ({fed / triangle:.1f} times fewer, "
        f"(3K + 2)/3), and {direct} for the direct distance that gives as much away",
    )


def fed_wad_gap() -> Finding:
    """FedWad with t fixed at ½, as tabulated, and with a random t, its authors' default."""
    direct = _play(DirectWad()).value
    fixed, moving = (_play(FedWad(t=t)).value for t in (0.5, None))
    return Finding(
        "false" if moving / direct - 1 < 0.2 * (fixed / direct - 1) else "holds",
        f"{100 * (fixed / direct - 1):.1f}% above the distance with t = ½, "
        f"{100 * (moving / direct - 1):.2f}% with a random t",
    )


CLAIMS = [
    Claim("Theorem 1", "The error through γ ~ N(0, σ²I) is bounded by a multiple of σ²d", theorem_1),
    Claim("Theorem 1, corrected", "|W(η_μ, η_ν)/(1 - t) - W(μ, ν)| ≤ 2t·s(γ)/(1 - t)", corrected_bound, "dpot"),
    Claim("Algorithm", "The distance is W(η_μ, η_ν) scaled by 1/t^p", scale),
    Claim("Table 1, ones", "With constant defence data there is no gap and the data stay hidden", zero_gap_hides),
    Claim(
        "Attack analysis", "Without the transport plan the data cannot be recovered from η and γ", matching_is_hidden
    ),
    Claim("Attack analysis, secret γ", "A γ known to the two parties alone protects them", secret_reference),
    Claim("Complexity", "TriangleWad is about 20 times faster", faster),
    Claim("Table 1, FedWad", "FedWad has a gap to the distance by its nature", fed_wad_gap),
]
