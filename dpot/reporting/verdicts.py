"""What may be said of a number beside the published one, and how cells are counted.

*Reproduced* is only what lies within the bounds. A number that is better than the published one is no reproduction of
it, and is counted apart; so is everything that was not made as the published number was (COUNTED_APART).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from omegaconf import OmegaConf

from dpot.config import CONF_DIR

BOUNDS = "2 points of accuracy, 10% of a FID or gap, 3% of a distance, 1% of the rest"  # what `within` means
FEW = "within, few runs"
ENOUGH = 3  # trainings, or draws of the data, from which chance can be told
JUDGED = ("within", FEW, "better", "outside")  # held against the published number
COUNTED_APART = ("explained", "other data", "other method", "other setting", "fitted")
VERDICTS = (*JUDGED, *COUNTED_APART, "ours", "not comparable", "published only", "missing")
HEADS = {"within": "reproduced"}  # the name of a count, where it is not that of the verdict
MEANING = {
    "within": f"within {BOUNDS}, over {ENOUGH} or more trainings",
    FEW: f"within the same bounds, by fewer than {ENOUGH} trainings: it may be chance",
    "better": "better than published, and no reproduction",
    "outside": "missed; the link says what is known of the reason",
    "explained": "missed, and runs on record show why",
    "other data": "not the paper's data, though of the same name and size",
    "other method": "not the paper's method",
    "other setting": "not the paper's settings",
    "fitted": "a setting was fitted to this very number",
}


def bound(metric: str, published: float) -> float:
    """By how much a number may differ from the published one and still be `within`."""
    if metric == "accuracy":
        return 2.0
    if metric == "gap":  # printed with two decimals, often 0
        return max(0.1 * published, 0.005)
    share = {"fid": 0.1, "distance": 0.03}.get(metric, 0.01)  # a distance between samples depends on the draw
    return share * abs(published)


def by_numbers(metric: str, published: float, ours: float) -> str:
    """Within BOUNDS; else better or outside."""
    difference = ours - published
    if abs(difference) <= bound(metric, published):
        return "within"
    gained = {"accuracy": difference, "fid": -difference}.get(metric, -1.0)  # of the rest nothing is good or bad
    return "better" if gained > 0 else "outside"


def verdict(
    metric: str,
    published: float | None,
    ours: float | None,
    comparable: bool,
    runs: int = ENOUGH,
    noise: float | None = None,
    said: str | None = None,
) -> str:
    """What stands beside a cell.

    `runs`: how many trainings (or draws) it is the mean of. `noise`: what one training is known to differ by; where
    that is less than the bound, one training is enough. `said`: what the sheet or the data set says of the cell.
    """
    if ours is None:
        return "published only" if published is not None else "missing"
    if not comparable:
        return "not comparable"
    if published is None:
        return "ours"
    if said in COUNTED_APART and said != "explained":
        return str(said)
    found = by_numbers(metric, published, ours)
    if found == "outside":
        return "explained" if said == "explained" else found
    settled = runs >= ENOUGH or (noise is not None and noise <= bound(metric, published))
    return FEW if found == "within" and not settled else found


@cache
def difference_of_data(name: str) -> str:
    """How a data set of conf/dataset differs from that of the papers, as its source class declares; mostly "" ."""
    path = CONF_DIR / "dataset" / f"{name}.yaml"
    if not path.exists():
        return ""
    node = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(node, dict)
    targets = [part["_target_"] for part in (node, *node.values()) if isinstance(part, Mapping) and "_target_" in part]
    told = [str(getattr(_class(target), "differs", "")) for target in targets]
    return "; ".join(dict.fromkeys(text for text in told if text))


def _class(target: str) -> type:
    module, _, name = target.rpartition(".")
    found: type = getattr(import_module(module), name)
    return found


def count_head(name: str) -> str:
    """The head of a column of counts."""
    return HEADS.get(name, name)


def in_words(counts: Mapping[str, int], names: tuple[str, ...] = COUNTED_APART) -> str:
    """The counts that are not 0, as `3 explained, 8 other data`."""
    return ", ".join(f"{counts[name]} {name}" for name in names if counts.get(name)) or "–"
