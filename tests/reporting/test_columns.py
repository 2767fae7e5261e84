"""The picture of a synthetic table."""

import io

import numpy as np
import pandas as pd
from PIL import Image

from dpot.reporting.columns import ACROSS, column_picture


def test_every_kind_of_column_has_a_panel():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "number": random.random(50),
            "gaps": np.where(random.random(50) < 0.5, np.nan, 1.0),
            "word": random.choice(np.array(["a", "b", None], object), 50),
            "flag": random.random(50) < 0.5,
            "nothing": np.full(50, np.nan),
            7: pd.array([1, None] * 25, "Int64"),
        }
    )
    sizes = []
    for columns in (list(frame)[:ACROSS], list(frame)):  # another row of panels: a higher picture
        with Image.open(io.BytesIO(column_picture(frame[columns], random.integers(0, 2, 50)))) as image:
            sizes.append(image.size)
            assert np.asarray(image.convert("L")).std() > 5  # something is drawn
    assert sizes[0][0] == sizes[1][0]
    assert sizes[1][1] > 1.5 * sizes[0][1]
    assert column_picture(frame[["word"]])
