"""When γ is truly secret: what noise of known strength leaves of the data, and what it does not hide."""

from __future__ import annotations

import torch
from torch import Tensor


def wiener(
    eta: Tensor, t: float, sigma: float, public: Tensor, low: float | None = None, high: float | None = None
) -> Tensor:
    """The best linear guess of x from η = (1 - t)x + tγ, γ taken as white noise N(0, σ²), with a public covariance.

        x̂ = m + (1 - t)C [(1 - t)²C + t²σ²I]^{-1} (η - (1 - t)m)

    m and C come from public data of the same kind. γ was matched to x by transport, which a linear filter ignores.
    The guess is cut to [low, high] where the range of the values is known.
    """
    mean = public.mean(0)
    covariance = torch.cov(public.T)
    keep = 1 - t
    noisy = keep**2 * covariance + (t * sigma) ** 2 * torch.eye(len(mean), dtype=eta.dtype)
    guess = mean + torch.linalg.solve(noisy, (eta - keep * mean).T).T @ (keep * covariance)
    return guess if low is None and high is None else guess.clamp(low, high)


def linked(eta: Tensor, candidates: Tensor, t: float) -> Tensor:
    """For each η_i the candidate record it was made from, by index: the c most correlated with it, both centred.

    This is membership and re-identification: somebody with a list of possible records learns which of them took part.
    """
    centre = candidates.mean(0)
    directions = torch.nn.functional.normalize(candidates - centre, dim=1)
    return ((eta - (1 - t) * centre) @ directions.T).argmax(1)


def inferred_labels(guess: Tensor, public: Tensor, labels: Tensor, seed: int = 0) -> Tensor:
    """Labels read off the guesses by logistic regression trained on public records; of one class, that class."""
    if len(labels.unique()) == 1:
        return labels[:1].expand(len(guess))
    import warnings

    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=100, C=0.01, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an attacker need not wait for the last digit of convergence
        model.fit(public.numpy(), labels.numpy())
    return torch.from_numpy(model.predict(guess.numpy()))
