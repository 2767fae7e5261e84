"""How a fitted synthesizer shows itself: a preview, a page, scores on real records, its guarantee in its repr.

Everything but `evaluate` looks at the release and at synthetic records only, and costs nothing.
"""

from __future__ import annotations

import contextlib
import html
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dpot.data.coding import Coding, ImageCoding, Number, TableCoding, written
from dpot.data.dtypes import as_frame, numbered_labels, typed
from dpot.data.schema import Schema
from dpot.disk import write_atomically
from dpot.errors import DataError, UsageError
from dpot.released import comparisons
from dpot.reporting import synthesis_page
from dpot.reporting.figures import grid
from dpot.transport.directions import uniform_directions
from dpot.transport.sliced import sliced_wasserstein

if TYPE_CHECKING:
    from dpot.synthesis import Synthesizer

DRAWN = 5000  # synthetic records behind the plots of a page
PER_CLASS, MOST_CLASSES = 10, 40  # samples on a page
SHOWN = 10  # records of a table on a page
DIRECTIONS = 200
GAP = 2


class Views:
    """What Synthesizer has beside fitting and sampling."""

    def preview(self: Any) -> Any:
        """Some synthetic records: a PIL image with a row for each class, or a DataFrame."""
        from PIL import Image

        with _undisturbed(self):
            if isinstance(self.coding_, TableCoding):
                return self.sample(SHOWN, seed=self.seed)[0]
            records, labels = self.draw(PER_CLASS * 4 * self.release_.classes, seed=self.seed)
        picture = grid(records.cpu(), labels.cpu(), self.release_.classes, PER_CLASS, GAP)
        return Image.open(io.BytesIO(picture))

    def report(self: Any, path: str | Path, **more: Any) -> Path:
        """Write one page about the synthesis, which holds all that it shows; its place."""
        self._check_fitted()
        place = Path(path)
        write_atomically(place, page(self, **more))
        return place

    def evaluate(self: Any, X: Any, y: Any = None) -> dict[str, float]:
        """Scores on real records that were not learned from. They carry no noise: ε does not cover them.

        accuracy: of a logistic regression that was trained on synthetic records (with labels only), in percent;
        chance: of always naming the commonest class; sliced_wasserstein: between real and synthetic records.
        """
        from sklearn.linear_model import LogisticRegression

        self._check_fitted()
        real, numbers = _encoded(self, X, y)
        with _undisturbed(self):
            records, labels = self.draw(max(DRAWN, len(real)), seed=self.seed)
        fake = records.flatten(1).cpu()
        found = {}
        if numbers is not None and len(self.classes_) > 1 and len(labels.unique()) > 1:
            judge = LogisticRegression(max_iter=300).fit(fake.numpy(), labels.cpu().numpy())
            found["accuracy"] = 100 * float(judge.score(real.numpy(), numbers.numpy()))
            found["chance"] = 100 * float(torch.bincount(numbers).max() / len(numbers))
        directions = uniform_directions(DIRECTIONS, real.shape[1], torch.Generator().manual_seed(self.seed))
        found["sliced_wasserstein"] = float(sliced_wasserstein(fake[: len(real)], real, directions))
        return found

    def __repr__(self: Any, N_CHAR_MAX: int = 700) -> str:
        told = super().__repr__(N_CHAR_MAX)  # type: ignore[call-arg]
        return f"{told}: {self.statement_.headline()}" if hasattr(self, "statement_") else told

    def _repr_html_(self: Any) -> str:
        """For notebooks."""
        if not hasattr(self, "statement_"):
            return f"<pre>{html.escape(repr(self))}</pre>"
        said = [self.statement_.headline(), self.statement_.total or "", *self.remarks_]
        body = "".join(f"<p>{html.escape(line)}</p>" for line in said if line)
        return f"<div><strong>{type(self).__name__}</strong>{body}</div>"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        random = state.pop("_random", None)
        if random is not None:
            state["_random_state"] = random.get_state(), str(random.device)
        if "outcome_" in state:
            state["outcome_"] = None  # of the training: it holds what no longer runs
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        own = dict(state)
        kept = own.pop("_random_state", None)
        super().__setstate__(own)  # type: ignore[misc]
        if kept is not None:
            self._random = torch.Generator(kept[1])
            self._random.set_state(kept[0])


def page(
    own: Synthesizer,
    *,
    title: str = "Synthetic data",
    data: str = "own data",
    utility: Mapping[str, float] | None = None,
    held_out: int = 0,
) -> str:
    """The page about a fitted synthesizer; `utility`: scores on so many held-out records, to be marked as such."""
    release, coding = own.release_, own.coding_
    with _undisturbed(own):
        records, labels = own.draw(min(DRAWN, max(release.records, 500)), seed=own.seed)
    rows: list[synthesis_page.Row] = []
    preview = None
    names = [str(name) for name in own.classes_] or ["all records"]
    if isinstance(coding, ImageCoding):
        for index, name in enumerate(names[:MOST_CLASSES]):
            mine = records[labels == index][:PER_CLASS].cpu()
            if len(mine):
                picture = grid(mine, torch.zeros(len(mine)), 1, len(mine), GAP)
                width = len(mine) * (mine.shape[3] + GAP) + GAP
                rows.append(synthesis_page.Row(name, picture, width, mine.shape[3]))
    else:
        preview = _preview(own, records[:SHOWN], labels[:SHOWN])
    return synthesis_page.render(
        synthesis_page.Made(
            title=title,
            statement=own.statement_,
            records=release.records,
            rows=rows,
            preview=preview,
            comparisons=comparisons(release, coding, own.classes_, records, labels),
            changed=changes(coding),
            remarks=own.remarks_,
            utility=utility or {},
            held_out=held_out,
            data=data,
        )
    )


def changes(coding: Coding) -> list[str]:
    """What happens to every record before it is counted, from public numbers alone."""
    if isinstance(coding, ImageCoding):
        channels, height, width = coding.shape
        colour = "grey" if channels == 1 else "in colour"
        return [f"Images have {height}×{width} pixels, {colour}; those of another size were stretched, without crop."]
    found = []
    for column in coding.columns:
        if isinstance(column, Number):
            ends = [written(column, end) for end in (column.lower, column.upper)]
            found.append(f"{column.name}: cut to the public range {ends[0]} to {ends[1]}")
    return found


def _preview(own: Synthesizer, records: Tensor, labels: Tensor) -> tuple[list[str], list[list[str]]]:
    values = own.coding_.decode(records)
    frame, _ = as_frame(values)
    named = own.named(labels)
    head = [*map(str, frame.columns), *([] if named is None else ["label"])]
    rows = [[str(value) for value in row] for row in frame.itertuples(index=False)]
    return head, [[*row, *([] if named is None else [str(named[i])])] for i, row in enumerate(rows)]


def _encoded(own: Synthesizer, X: Any, y: Any) -> tuple[Tensor, Tensor | None]:
    """Real records as they were learned from, and their class numbers."""
    if isinstance(own.coding_, ImageCoding):
        X = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asarray(X)
        if len(X) == 0 or ImageCoding.of(X, (own.coding_.lower, own.coding_.upper)).shape != own.coding_.shape:
            raise DataError(f"images of another size than those learned from ({own.coding_.shape})")
        encoded = own.coding_.encode(X)
    elif own.schema is not None:
        schema = Schema.of(own.schema)
        frame, _ = as_frame(X)
        if schema.label is not None and schema.label not in frame and y is None:
            raise UsageError(f"evaluate: the records have no column {schema.label}, and no y is given")
        frame = frame if y is None or schema.label is None else frame.assign(**{schema.label: np.asarray(y)})
        values = schema.conform(frame)
        numbers = torch.from_numpy(schema.class_numbers(values)) if schema.label is not None else None
        return own.coding_.encode(values).flatten(1), numbers
    else:
        frame, _ = as_frame(typed(X, own.ranges, own.categories)[0])
        encoded = own.coding_.encode(frame)
    numbers = numbered_labels(y, len(encoded), own.classes_)[0] if y is not None and own.classes_ else None
    return encoded.flatten(1), numbers


@contextlib.contextmanager
def _undisturbed(own: Any) -> Iterator[None]:
    """What is drawn inside does not change what is drawn afterwards."""
    own._check_fitted()
    state = own._random.get_state()
    try:
        yield
    finally:
        own._random.set_state(state)
