"""Charts as inline SVG: they follow the page's colours, need no network and can be read aloud by their title."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 260, 56, 38, 12, 12
MOST_PLACES = 8  # of a logarithmic axis that each get their number
COLOURS = 8  # --series-0 .. --series-7 in style.css


@dataclass(frozen=True)
class Series:
    """A named line of (x, y)."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Bar:
    """A value with its name; a hollow one is a published number."""

    name: str
    value: float
    text: str
    hollow: bool = False


def lines(title: str, series: Sequence[Series], x: str, y: str, log_x: bool = False) -> str:
    """A line chart with a legend; empty series are left out."""
    shown = [s for s in series if len(s.points) > 1]
    if not shown:
        return ""
    xs = [_scaled(a, log_x) for s in shown for a, _ in s.points]
    ys = [b for s in shown for _, b in s.points]
    low, high = min(ys), max(ys)
    room = (high - low or abs(high) or 1) * 0.06
    low, high = low - room, high + room
    left, right = min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1
    parts = [_open(title, WIDTH, HEIGHT)]
    for tick in _ticks(low, high):
        at = _place(tick, low, high, HEIGHT - BOTTOM, TOP)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick:g}</text>')
    few = log_x and len(set(xs)) <= MOST_PLACES
    for tick in sorted(set(xs)) if few else _ticks(left, right):
        at = _place(tick, left, right, LEFT, WIDTH - RIGHT)
        label = 10**tick if log_x else tick
        parts.append(
            f'<text class="tick" x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_short(label)}</text>'
        )
    for i, s in enumerate(shown):
        path = " ".join(
            f"{_place(_scaled(a, log_x), left, right, LEFT, WIDTH - RIGHT):.1f},"
            f"{_place(b, low, high, HEIGHT - BOTTOM, TOP):.1f}"
            for a, b in s.points
        )
        parts.append(f'<polyline class="line s{i % COLOURS}" points="{path}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{html.escape(x)}</text>')
    parts.append(
        f'<text class="axis" transform="translate(12 {(HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
        f"{html.escape(y)}</text></svg>"
    )
    keys = "".join(
        f'<li><span class="key s{i % COLOURS}" aria-hidden="true"></span>{html.escape(s.name)}</li>'
        for i, s in enumerate(shown)
    )
    drawn = "".join(parts)
    caption = f"<figcaption>{html.escape(title)}</figcaption>"
    return f'<figure class="chart">{caption}{drawn}<ul class="legend">{keys}</ul></figure>'


def bars(title: str, values: Sequence[Bar], unit: str = "", from_zero: bool = True) -> str:
    """Horizontal bars, one line each, with name on the left and number on the right; dots if not from zero."""
    if not values:
        return ""
    step, width = 24, 540
    names = [_cut(b.name) for b in values]
    label = 16 + 7 * max(len(name) for name in names)  # a letter takes 7 at most, on average
    height = step * len(values) + 12
    high = max(b.value for b in values) or 1.0
    low = 0.0 if from_zero else min(b.value for b in values)
    low -= 0.0 if from_zero else (high - low or 1) * 0.1
    parts = [_open(title, width, height)]
    for i, (bar, name) in enumerate(zip(values, names, strict=True)):
        y = 8 + i * step
        end = _place(bar.value, low, high or 1, label, width - 80)
        kind = "hollow" if bar.hollow else "solid"
        parts.append(f'<text class="tick" x="{label - 8}" y="{y + 13}" text-anchor="end">{html.escape(name)}</text>')
        if from_zero:
            length = max(end - label, 1)
            parts.append(f'<rect class="bar {kind}" x="{label}" y="{y + 2}" width="{length:.1f}" height="14" rx="3"/>')
        else:
            parts.append(f'<line class="grid" x1="{label}" x2="{width - 80}" y1="{y + 9}" y2="{y + 9}"/>')
            parts.append(f'<circle class="bar {kind}" cx="{end:.1f}" cy="{y + 9}" r="5.5"/>')
        parts.append(f'<text class="tick" x="{end + 10:.1f}" y="{y + 13}">{html.escape(bar.text)}</text>')
    caption = html.escape(f"{title}, {unit}" if unit else title)
    return f'<figure class="chart"><figcaption>{caption}</figcaption>{"".join(parts)}</svg></figure>'


def share(counts: Sequence[tuple[str, int]], label: str) -> str:
    """A stacked strip of counts by verdict, with the counts in words for who cannot see it."""
    total = sum(n for _, n in counts)
    if not total:
        return ""
    words = ", ".join(f"{n} {name}" for name, n in counts if n)
    at, parts = 0.0, []
    for name, n in counts:
        if n:
            width = 100 * n / total
            kind = name.replace(",", "").replace(" ", "-")
            parts.append(f'<rect class="v-{kind}" x="{at:.2f}" y="0" width="{max(width - 0.6, 0.4):.2f}" height="10"/>')
            at += width
    return (
        f'<svg class="strip" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{html.escape(label)}: {html.escape(words)}">{"".join(parts)}</svg>'
    )


def _open(title: str, width: float, height: float) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(title)}">'


def _scaled(value: float, log: bool) -> float:
    return math.log10(max(value, 1e-12)) if log else value


def _place(value: float, low: float, high: float, start: float, end: float) -> float:
    return start + (value - low) / ((high - low) or 1) * (end - start)


def _ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers inside [low, high], about as many as wanted."""
    raw = (high - low) / wanted
    size = 10 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= raw) if raw > 0 else 1.0
    first = math.ceil(low / step)
    return [round(i * step, 12) for i in range(first, math.floor(high / step) + 1)]


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:.3g}"


def _cut(text: str, length: int = 38) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
