"""Two clouds of features in the plane: PCA, or t-SNE, of both together."""

from __future__ import annotations

import torch
from torch import Tensor


def embed(source: Tensor, target: Tensor, kind: str = "pca") -> dict[str, list[list[float]]]:
    """Coordinates of both clouds in one common plane, rounded to what a picture shows.

    pca: the two leading principal directions of the union. tsne: scikit-learn's, on at most 30 of them.
    """
    both = torch.cat([source, target]).double()
    both = both - both.mean(0)
    _, _, directions = torch.linalg.svd(both, full_matrices=False)
    if kind == "tsne":
        from sklearn.manifold import TSNE

        reduced = (both @ directions[:30].T).numpy()
        perplexity = min(30.0, (len(both) - 1) / 3)
        plane = torch.from_numpy(TSNE(init="pca", perplexity=perplexity, random_state=0).fit_transform(reduced))
    else:
        plane = both @ directions[:2].T
    rounded = [[round(float(x), 4), round(float(y), 4)] for x, y in plane]
    return {"source": rounded[: len(source)], "target": rounded[len(source) :]}
