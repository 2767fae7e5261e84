"""Measures of synthetic tables against cases that were computed by hand."""

import numpy as np
import pytest

from dpot.evaluation.tables import learned, query_error, total_variation


def test_total_variation_by_hand():
    real = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    fake = np.array([[0, 0], [0, 0], [1, 1], [1, 1]])
    assert total_variation(real, real, [2, 2], 2) == 0
    assert total_variation(real, fake, [2, 2], 1) == 0  # every column alone is right
    assert total_variation(real, fake, [2, 2], 2) == pytest.approx(0.5)  # ¼ each against ½ on the diagonal
    third = np.array([[0], [0], [0], [1]])
    assert total_variation(np.hstack([real, third]), np.hstack([fake, 1 - third]), [2, 2, 2], 1) == pytest.approx(
        0.5 / 3  # two columns are right, the third has ¾ : ¼ against ¼ : ¾
    )


def test_queries_by_hand():
    """One ordered column, so each query is a cumulated share: 0 … 0 against 0 … 1 in two codes."""
    real, fake = np.zeros((10, 1), int), np.array([[0], [1]] * 5)
    assert query_error(real, real, [2], [True]) == 0
    # up to a random number in [0, 1): only code 0 is asked for, and the shares are 1 and ½
    assert query_error(real, fake, [2], [True]) == pytest.approx(0.5)
    # a random half of two codes: none, both, the first or the second; wrong by ½ in two of four cases
    assert query_error(real, fake, [2], [False], count=4000) == pytest.approx(0.25, abs=0.02)


def test_classifiers_learn_what_the_synthetic_records_say():
    random = np.random.default_rng(0)
    x = random.integers(0, 2, (400, 2))
    real = (x.astype(float), x[:, 0])
    group = {"side": x[:, 1]}
    right = learned(real, real, [1], groups=group)
    assert right["gb_auc"] == right["lr_auc"] == right["lr_balanced"] == right["gb_worst_side"] == 1
    assert right["mlp_auc"] == right["mlp_worst_side"] == 1
    wrong = learned((real[0], 1 - real[1]), real, [1])
    assert wrong["lr_auc"] == wrong["lr_balanced"] == wrong["mlp_auc"] == 0
    none = learned((real[0], np.zeros(400)), real, [1])
    assert none == {f"{model}_{score}": 0.5 for model in ("gb", "lr", "mlp") for score in ("balanced", "auc")}
