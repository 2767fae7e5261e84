"""AIM and MST on the inference of the package mbi, for neighbours that differ in one replaced record.

Both are stated for add-remove neighbours. When a record is replaced, a marginal moves by √2 in L2 instead of 1, and its
L1 distance from anything by 2 instead of 1: the noise and the selection below have these sensitivities. ε becomes
the ρ of zero-concentrated privacy by Canonne, Kamath & Steinke 2020, as in the authors' code.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpot.errors import UsageError
from dpot.privacy.conversion import delta_from_rdp

MARGINAL, DISTANCE = math.sqrt(2), 2.0  # sensitivities, above
Codes = NDArray[np.int64]
Clique = tuple[int, ...]


class Marginals:
    """Exact marginals of a table, as both methods see them."""

    def __init__(self, codes: Codes, sizes: Sequence[int]) -> None:
        mbi = _mbi()
        self.codes, self.sizes = codes, list(sizes)
        self.domain = mbi.Domain([_name(i) for i in range(len(sizes))], self.sizes)
        self._known: dict[Clique, NDArray[np.float64]] = {}

    def __getitem__(self, clique: Clique) -> NDArray[np.float64]:
        if clique not in self._known:
            shape = [self.sizes[i] for i in clique]
            flat = np.ravel_multi_index(tuple(self.codes[:, i] for i in clique), shape)
            self._known[clique] = np.bincount(flat, minlength=math.prod(shape)).astype(np.float64)
        return self._known[clique]

    def cells(self, clique: Clique) -> int:
        """How many combinations there are."""
        return math.prod(self.sizes[i] for i in clique)

    def measured(self, clique: Clique, sigma: float, random: np.random.Generator) -> Any:
        """The marginal with Gaussian noise."""
        noisy = self[clique] + random.normal(0, sigma, self.cells(clique))
        return _mbi().LinearMeasurement(noisy, _names(clique), sigma)


def aim(
    codes: Codes,
    sizes: Sequence[int],
    epsilon: float,
    delta: float,
    random: np.random.Generator,
    *,
    degree: int = 2,
    most_cells: int = 10_000,
    model_size: float = 80.0,
    iterations: int = 1000,
) -> Codes:
    """AIM (McKenna, Mullins, Sheldon & Miklau 2022): measures what the model knows least, again and again.

    The workload is all sets of `degree` columns with at most `most_cells` cells; the model may grow to `model_size` MB.
    """
    table, rho, columns = Marginals(codes, sizes), rho_of(epsilon, delta), len(sizes)
    workload = [c for c in combinations(range(columns), degree) if table.cells(c) <= most_cells]
    parts = {part for c in workload for r in range(1, degree + 1) for part in combinations(c, r)}
    weight = {part: float(sum(len(set(part) & set(c)) for c in workload)) for part in sorted(parts, key=_order)}
    rounds = 16 * columns
    sigma, strength = MARGINAL * math.sqrt(rounds / (1.8 * rho)), math.sqrt(0.8 * rho / rounds)
    measured = [table.measured((i,), sigma, random) for i in range(columns)]
    spent = columns * 0.5 * (MARGINAL / sigma) ** 2
    fit = _Fit(table, iterations)
    model, last = fit(measured, None), False
    while not last:
        if rho - spent < 2 * (0.5 * (MARGINAL / sigma) ** 2 + strength**2 / 8):  # whatever is left, for a last round
            sigma, strength = MARGINAL / math.sqrt(1.8 * (rho - spent)), math.sqrt(0.8 * (rho - spent))
            last = True
        spent += 0.5 * (MARGINAL / sigma) ** 2 + strength**2 / 8
        noise = math.sqrt(2 / math.pi) * sigma
        allowed = [c for c in weight if fit.fits(model, c, model_size * min(1.0, spent / rho))]
        scores = [
            weight[c] * (np.abs(table[c] - fit.marginal(model, c)).sum() - noise * table.cells(c)) for c in allowed
        ]
        chosen = allowed[_select(scores, strength, DISTANCE * max(weight[c] for c in allowed), random)]
        before = fit.marginal(model, chosen)
        measured.append(table.measured(chosen, sigma, random))
        model = fit(measured, model)
        if np.abs(fit.marginal(model, chosen) - before).sum() <= noise * table.cells(chosen):
            sigma, strength = sigma / 2, 2 * strength
    return fit.sample(model)


def mst(
    codes: Codes,
    sizes: Sequence[int],
    epsilon: float,
    delta: float,
    random: np.random.Generator,
    *,
    iterations: int = 5000,
) -> Codes:
    """MST (McKenna, Miklau & Sheldon 2021): all single columns, then the pairs of a maximum spanning tree."""
    rho, columns = rho_of(epsilon, delta), len(sizes)
    whole = Marginals(codes, sizes)
    sigma = MARGINAL * math.sqrt(3 * columns / (2 * rho))
    singles = [whole.measured((i,), sigma, random) for i in range(columns)]
    # values with fewer records than three deviations are one value together
    kept = [np.asarray(s.noisy_measurement) >= 3 * sigma for s in singles]
    maps = [np.where(k, np.cumsum(k) - 1, k.sum()) for k in kept]
    table = Marginals(np.stack([m[codes[:, i]] for i, m in enumerate(maps)], 1), [int(m.max()) + 1 for m in maps])
    measured = [
        s if k.all() else s.compress({_name(i): m}, whole.domain)
        for i, (s, k, m) in enumerate(zip(singles, kept, maps, strict=True))
    ]
    fit = _Fit(table, 1000)
    model = fit(measured, None)
    pairs = list(combinations(range(columns), 2))
    distance = {pair: float(np.abs(table[pair] - fit.marginal(model, pair)).sum()) for pair in pairs}
    strength, tree, group = math.sqrt(8 * rho / 3 / (columns - 1)), [], list(range(columns))
    for _ in range(columns - 1):
        open_pairs = [(a, b) for a, b in pairs if group[a] != group[b]]
        a, b = open_pairs[_select([distance[p] for p in open_pairs], strength, DISTANCE, random)]
        tree.append((a, b))
        group = [group[a] if g == group[b] else g for g in group]
    sigma = MARGINAL * math.sqrt(3 * len(tree) / (2 * rho))
    fit.iterations = iterations
    drawn = fit.sample(fit(measured + [table.measured(pair, sigma, random) for pair in tree], model))
    found = []
    for own, keep in zip(drawn.T, kept, strict=True):
        values = np.append(np.flatnonzero(keep), 0)[np.minimum(own, keep.sum())]
        joined = own == keep.sum()
        found.append(
            np.where(joined, random.choice(np.flatnonzero(~keep), len(own)), values) if joined.any() else values
        )
    return np.stack(found, 1)


class _Fit:
    """mbi's mirror descent, and what is read from its model."""

    def __init__(self, table: Marginals, iterations: int) -> None:
        self.table, self.iterations = table, iterations

    def __call__(self, measured: list[Any], before: Any) -> Any:
        return (
            _mbi()
            .estimation.MirrorDescent()
            .estimate(
                self.table.domain,
                measured,
                known_total=float(len(self.table.codes)),
                iters=self.iterations,
                warm_start=before,
            )
        )

    def marginal(self, model: Any, clique: Clique) -> NDArray[np.float64]:
        """The model's marginal, by eliminating the other variables one by one.

        mbi's own way compiles a program for each of hundreds of cliques, which takes longer than to run it.
        """
        asked = _names(clique)
        factors = [
            (tuple(f.domain.attributes), np.asarray(f.values, np.float64)) for f in model.potentials.tables.values()
        ]
        left = {name for names, _ in factors for name in names} - set(asked)
        while left:
            touched = {v: set().union(*(names for names, _ in factors if v in names)) for v in left}
            size = {v: math.prod(self.table.sizes[int(n[1:])] for n in touched[v]) for v in left}
            variable = min(left, key=lambda v: (size[v], v))
            names = (*(n for n in sorted(touched[variable]) if n != variable), variable)
            whole = sum((_aligned(f, names) for f in factors if variable in f[0]), np.zeros(()))
            top = whole.max(-1, keepdims=True)
            reduced = np.log(np.exp(whole - top).sum(-1)) + top[..., 0]
            factors = [f for f in factors if variable not in f[0]] + [(names[:-1], reduced)]
            left.discard(variable)
        whole = sum((_aligned(f, asked) for f in factors), np.zeros([self.table.sizes[i] for i in clique]))
        shares = np.exp(whole - whole.max()).ravel()
        return np.asarray(shares / shares.sum() * len(self.table.codes))

    def fits(self, model: Any, clique: Clique, size: float) -> bool:
        cliques = [*model.cliques, _names(clique)]
        inside = any(set(_names(clique)) <= set(known) for known in model.cliques)
        return inside or _mbi().junction_tree.hypothetical_model_size(self.table.domain, cliques) <= size

    def sample(self, model: Any) -> Codes:
        drawn = model.synthetic_data(rows=len(self.table.codes)).to_dict()
        return np.stack([np.asarray(drawn[_name(i)], np.int64) for i in range(len(self.table.sizes))], 1)


def rho_of(epsilon: float, delta: float) -> float:
    """The largest ρ of zero-concentrated privacy that has (ε, δ)."""
    orders = 1 + np.geomspace(1e-3, 1e4, 4000)
    low, high = 0.0, 100.0
    for _ in range(80):
        middle = (low + high) / 2
        fits = delta_from_rdp(orders, middle * orders, epsilon, "tight")[0] <= delta
        low, high = (middle, high) if fits else (low, middle)
    return low


def _aligned(factor: tuple[tuple[str, ...], NDArray[np.float64]], names: Sequence[str]) -> NDArray[np.float64]:
    """The values with an axis for each of the names, of length 1 where the factor lacks it."""
    own, values = factor
    ordered = values.transpose([own.index(n) for n in names if n in own])
    return ordered.reshape([ordered.shape[[m for m in names if m in own].index(n)] if n in own else 1 for n in names])


def _select(scores: Sequence[float], strength: float, sensitivity: float, random: np.random.Generator) -> int:
    """The exponential mechanism."""
    exponents = 0.5 * strength / sensitivity * np.asarray(scores)
    chances = np.exp(exponents - exponents.max())
    return int(random.choice(len(chances), p=chances / chances.sum()))


def _name(column: int) -> str:
    return f"c{column}"


def _names(clique: Clique) -> tuple[str, ...]:
    return tuple(map(_name, clique))


def _order(clique: Clique) -> tuple[int, Clique]:
    return len(clique), clique


def _mbi() -> Any:
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    try:
        import mbi
    except ImportError:
        raise UsageError("AIM and MST need the package mbi: pip install 'dpot[tables]'") from None
    return mbi
