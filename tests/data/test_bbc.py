"""BBC News and word vectors."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpot.data.base import Documents
from dpot.data.bbc import BBC
from dpot.errors import DataError

WORDS = np.array(["the", "market", "goal", "fell", "2005"])
ARTICLES = [
    ("business", "The market FELL, the_market fell in 2005."),
    ("sport", "Goal! Goal!"),
    ("sport", "Goal! Goal!"),
    ("tech", '"quoted, the" goal'),
    ("politics", "the\n\nmarket"),
    ("entertainment", "2005"),
]


def write(root: Path, articles: list[tuple[str, str]] = ARTICLES, **changed: Any) -> None:
    folder = root / "bbc"
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["category,file,text"]
    rows += [f'{c},{i:03d}.txt,"{t.replace(chr(34), chr(34) * 2)}"' for i, (c, t) in enumerate(articles)]
    (folder / "bbc_news.csv.gz").write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))
    np.savez(
        folder / "glove_6b_50d_subset.npz",
        **{"words": WORDS, "vectors": np.arange(20, dtype=np.float32).reshape(5, 4), **changed},
    )


def everything(data: Documents) -> dict[str, int]:
    """Every document as its words, with its label."""
    found = {}
    for split in (data.train, data.test):
        assert split.y is not None
        for row, label in zip(split.x, split.y, strict=True):
            found[" ".join(data.words[w] for w in row[row >= 0])] = int(label)
    return found


def test_words_and_vectors(tmp_path: Path) -> None:
    write(tmp_path)
    data = BBC(max_words=10).load(tmp_path)
    assert isinstance(data, Documents)
    assert everything(data) == {
        "the market fell the market fell 2005": 0,
        "goal goal": 3,
        "the goal": 4,
        "the market": 2,
        "2005": 1,
    }
    assert len(data.train) + len(data.test) == 5  # the copy is left out
    row = torch.tensor([2, 3, -1])
    assert data.cloud(row).tolist() == [[8, 9, 10, 11], [12, 13, 14, 15]]
    assert data.class_names == ("business", "entertainment", "politics", "sport", "tech")


def test_long_articles_are_cut(tmp_path: Path) -> None:
    write(tmp_path)
    data = BBC(max_words=3).load(tmp_path)
    assert data.shape == (3,)
    assert "the market fell" in everything(data)  # type: ignore[arg-type]


def test_duplicates_can_be_kept(tmp_path: Path) -> None:
    write(tmp_path)
    data = BBC(drop_duplicates=False).load(tmp_path)
    assert len(data.train) + len(data.test) == 6


@pytest.mark.parametrize(
    ("articles", "changed", "why"),
    [
        ([("weather", "the")], {}, r"bbc_news\.csv\.gz: mislabelled: category 'weather'"),
        ([("sport", "xyzzy"), ("tech", "the")], {}, r"bbc_news\.csv\.gz: article 0 has no word"),
        ([], {}, r"bbc_news\.csv\.gz: needs the columns"),
        (ARTICLES, {"words": WORDS[:4]}, r"glove_6b_50d_subset\.npz: words are"),
        (ARTICLES, {"words": WORDS.astype(object)}, r"glove_6b_50d_subset\.npz: .*pickled"),
        (ARTICLES, {"vectors": np.full((5, 4), np.inf)}, r"glove_6b_50d_subset\.npz: record 0"),
    ],
)
def test_refused_by_name(tmp_path: Path, articles: list[tuple[str, str]], changed: dict[str, Any], why: str) -> None:
    write(tmp_path, articles, **changed)
    with pytest.raises(DataError, match=why):
        BBC().load(tmp_path)


def test_real_bbc(real: Callable[[str], Path]) -> None:
    root = real("bbc")
    data = BBC(drop_duplicates=False).load(root)
    assert isinstance(data, Documents)
    assert data.train.y is not None
    assert data.test.y is not None
    counts = torch.bincount(torch.cat([data.train.y, data.test.y])).tolist()
    assert counts == [510, 386, 417, 511, 401]  # Greene & Cunningham 2006
    assert data.vectors.shape == (32441, 50)
    fewer = BBC().load(root)
    assert len(fewer.train) + len(fewer.test) == 2225 - 98
    # vectors of related words are closer than those of unrelated ones
    v = {w: data.vectors[data.words.index(w)] for w in ("football", "rugby", "inflation")}
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(v["football"], v["rugby"], 0) > cosine(v["football"], v["inflation"], 0) + 0.3
