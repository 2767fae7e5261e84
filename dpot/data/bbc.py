"""BBC News (Greene & Cunningham 2006): articles in five categories, as sequences of GloVe word vectors."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from dpot.data.base import Documents
from dpot.data.cache import Builder, Entry
from dpot.data.files import Layout, Wanted, first_line, refuse
from dpot.data.formats import check_features, read_npz, read_plain
from dpot.data.source import Facts, FileSource, Known
from dpot.data.splits import hold_out_fraction
from dpot.ranges import Count, Probability

CATEGORIES = ("business", "entertainment", "politics", "sport", "tech")
ARTICLES = 2225
CSV_AT_MOST = 64 << 20
WORD = re.compile(r"[^\W_]+")  # words and numbers; 99% of them have a vector


class BBC(FileSource):
    """N×L word numbers (-1 after the last word), L = max_words; words without a vector are left out.

    The collection holds 98 exact duplicates; drop_duplicates keeps the first of each, else two copies of
    one text could stand on both sides of a comparison or of the split. A share test_fraction is held out
    by position among the articles kept.
    """

    name = "bbc"
    licence = "articles © BBC, research use; GloVe PDDL"
    source = "http://mlg.ucd.ie/datasets/bbc.html"
    known: ClassVar[dict[str, Known]] = {
        "bbc_news.csv.gz": Known(1_871_317, "936f380bfed60752eb8645758c145054f4ea6596e424167386f3dd7a82e222d5"),
        "glove_6b_50d_subset.npz": Known(6_182_155, "45eb408ac37761dfd3c30d79852c73bfc4c5e78d7a288e8d934649e69da11686"),
    }

    def __init__(
        self,
        max_words: Count = 400,
        drop_duplicates: bool = True,
        test_fraction: Probability = 0.2,
        limit: Count | None = None,
        limit_test: Count | None = None,
    ) -> None:
        super().__init__(limit, limit_test)
        self.max_words = max_words
        self.drop_duplicates = drop_duplicates
        self.test_fraction = test_fraction

    def options(self) -> dict[str, object]:
        return {
            "max_words": self.max_words,
            "drop_duplicates": self.drop_duplicates,
            "test_fraction": self.test_fraction,
        }

    def layouts(self) -> tuple[Layout, ...]:
        articles = Wanted("articles", ("bbc/bbc_news.csv.gz", "bbc/bbc_news.csv"))
        return (Layout("full", (articles, Wanted("vectors", ("bbc/glove_6b_50d_subset.npz",)))),)

    def advice(self) -> str:
        return (
            f"a CSV of category,file,text made from {self.source}, and an .npz with words and vectors "
            "from https://nlp.stanford.edu/projects/glove/"
        )

    def decode(self, layout: Layout, paths: Mapping[str, Path], builder: Builder) -> Facts:
        words, vectors = read_vectors(paths["vectors"])
        texts, labels = read_articles(paths["articles"])
        note = "" if len(texts) == ARTICLES else f"{len(texts):,} of {ARTICLES:,} articles"
        if self.drop_duplicates:
            first = {hashlib.sha256(t.encode()).digest(): i for i, t in reversed(list(enumerate(texts)))}
            kept = sorted(first.values())
            texts, labels = [texts[i] for i in kept], labels[kept]
        number = {word: i for i, word in enumerate(words)}
        x = np.full((len(texts), self.max_words), -1, np.int32)
        for i, text in enumerate(texts):
            found = [number[w] for w in WORD.findall(text.lower()) if w in number][: self.max_words]
            if not found:
                raise refuse(paths["articles"], f"article {i} has no word with a vector")
            x[i, : len(found)] = found
        for part, rows in zip(("train", "test"), hold_out_fraction(len(x), self.test_fraction), strict=True):
            builder.put(f"{part}_x", x[rows])
            builder.put(f"{part}_y", labels[rows])
        builder.put("vectors", vectors)
        builder.put("words", words)
        return Facts(len(CATEGORIES), "text", note=note, comparable=not note, class_names=CATEGORIES)

    def dataset(self, entry: Entry, hashes: Mapping[str, str]) -> Documents:
        return Documents(
            **self.describe(entry, hashes),
            vectors=torch.from_numpy(entry.arrays["vectors"]),
            words=tuple(entry.arrays["words"].tolist()),
        )


def read_vectors(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(words, their vectors V×d) from the arrays `words` (unicode) and `vectors`."""
    arrays = read_npz(path, ("words", "vectors"))
    words, vectors = arrays["words"], check_features(arrays["vectors"], path)
    if words.dtype.kind != "U" or words.shape != (len(vectors),):
        raise refuse(path, f"words are {words.dtype} {words.shape} for {len(vectors):,} vectors")
    return words, vectors


def read_articles(path: Path) -> tuple[list[str], np.ndarray]:
    """(texts, category numbers) from a CSV with the columns category and text."""
    import pandas as pd

    data = read_plain(path, CSV_AT_MOST)
    try:
        table = pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False)
    except (ValueError, pd.errors.ParserError) as error:
        raise refuse(path, f"is not a readable CSV ({first_line(error)})") from None
    if not {"category", "text"} <= set(table.columns) or table.empty:
        raise refuse(path, "needs the columns category and text")
    unknown = sorted(set(table["category"]) - set(CATEGORIES))
    if unknown:
        raise refuse(path, f"mislabelled: category '{unknown[0]}' is none of {', '.join(CATEGORIES)}")
    return table["text"].tolist(), table["category"].map(CATEGORIES.index).to_numpy(np.int64)
