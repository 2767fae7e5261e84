"""task=synthesize end to end: folders, tables and known data sets, with everything it leaves behind."""

from __future__ import annotations

import base64
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from dpot import Synthesizer
from dpot.composing import compose_config
from dpot.errors import DpotError, UsageError
from dpot.launch import run
from dpot.released import comparisons
from dpot.reporting import charts, markup, pages, store
from dpot.reporting.gather import Gathered

SMALL = ["task=synthesize", "profile=smoke", "profile.steps=4", "device=cpu", "loss.rounds=1", "generator.width=4"]
SMALL += ["privacy.epsilon=10", "classifier.kinds=[logreg]"]
RNG = np.random.default_rng(0)


def synthesize(tmp_path: Path, *overrides: str) -> dict[str, Any]:
    return run(compose_config([*SMALL, f"output_root={tmp_path / 'out'}", *overrides])).data


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of small colour photographs of different sizes."""
    for index in range(80):
        folder = tmp_path / "photos" / ("cat" if index % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        height, width = 8 + index % 3, 12 - index % 4
        Image.fromarray(RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(folder / f"{index}.png")
    return tmp_path / "photos"


def test_a_folder_of_images_becomes_a_synthetic_folder(tmp_path: Path, photos: Path) -> None:
    record = synthesize(tmp_path, f"dataset.path={photos}", "dataset.size=8", "task.count=30")
    files = {name: Path(place) for name, place in record["files"].items()}
    made = sorted(files["synthetic"].rglob("*.png"))
    assert len(made) == 30
    assert {place.parent.name for place in made} == {"cat", "dog"}
    assert Image.open(made[0]).size == (8, 8)
    assert Image.open(made[0]).mode == "RGB"
    assert Image.open(files["samples"]).size[0] > 80
    privacy = record["privacy"]
    assert (privacy["rigorous"], privacy["verdict"]) == (False, "conditional")
    assert [condition.partition(":")[0] for condition in privacy["conditions"]] == [
        "which classes there are",
        "whether there are colours",
    ]
    assert privacy["epsilon"] <= 10
    assert privacy["releases"] == 4  # one round: lengths, mean, second moments, bins
    assert json.loads(files["statement_data"].read_text())["epsilon"] == privacy["epsilon"]
    assert "discrete Gaussian" in files["statement_page"].read_text()
    uncovered = " ".join(privacy["not_covered"])
    assert "utility report: its scores were computed on 8 held-out records" in uncovered
    assert "not covered by ε" in files["utility"].read_text()
    assert 0 <= record["metrics"]["logreg"]["mean"] <= 100
    assert set(record["metrics"]["classes"]["noisy_counts"]) == {"cat", "dog"}
    loaded = Synthesizer.load(files["release"], device="cpu")
    images, labels = loaded.sample(3)
    assert images.shape == (3, 8, 8, 3)
    assert set(labels) <= {"cat", "dog"}
    assert synthesize(tmp_path, f"dataset.path={photos}", "dataset.size=8", "task.count=30") == record  # on record


class Page(HTMLParser):
    """Everything that a page names or shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_a_page_of_its_own_shows_everything_and_names_are_only_names(tmp_path: Path) -> None:
    names = ("<script>alert(1)</script>", "a|b *c* [d](javascript:e)")
    pixels = []
    for index in range(60):
        image = RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        pixels.append(image.tobytes())
        folder = tmp_path / "photos" / names[index % 2].replace("/", "∕")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{index}.png")
    record = synthesize(tmp_path, f"dataset.path={tmp_path / 'photos'}", "dataset.size=8", "task.count=20")
    text = Path(record["files"]["page"]).read_text()
    page = Page(text)
    assert not [tag for tag, _ in page.tags if tag in ("script", "i", "iframe")]
    assert not re.search(r"(?:src|href)=\"(?!data:)", text)  # it loads nothing, and leads nowhere on this machine
    said = " ".join(page.words)
    assert "<script>alert(1)<∕script>" in said
    assert "ε does not cover them" in said  # the utility scores
    assert record["privacy"]["headline"] in said
    assert "publication_date" in said  # the registry's draft
    assert "@software{dpot" in said
    assert "8×8 pixels" in said
    shown = [tag for tag in page.tags if tag[0] == "img"]
    assert len(shown) == 2
    for _, attributes in shown:
        picture = Image.open(io.BytesIO(base64.b64decode(str(attributes["src"]).partition(",")[2])))
        assert int(attributes["width"] or 0) >= 64
        assert not any(own in np.asarray(picture).tobytes() for own in pixels)  # no private image
    report = Path(record["files"]["utility"]).read_text()
    assert not re.search(r"<\w", report)
    assert "javascript" not in markup.to_html(report).partition("href")[2]
    assert "<script" not in Path(record["files"]["statement"]).read_text()
    folder = tmp_path / "report"
    pages.write(folder, Gathered([], {}, [], [], store.records(tmp_path / "out", committed=False)))
    own = (folder / "syntheses.html").read_text()
    assert (folder / re.findall(r'href="(files/[^"]+)"', own)[0]).read_text() == text


def test_released_and_synthetic_counts_are_of_the_same_size() -> None:
    frame = pd.DataFrame({"age": RNG.integers(20, 60, 3000), "work": RNG.choice(["state", "private"], 3000)})
    frame.loc[:999, "age"] = 40
    own = Synthesizer(20, 1e-5, ranges={"age": (0, 100)}, categories={"work": ["state", "private", "none"]}, steps=20)
    own.fit(frame, RNG.choice(["low", "high"], 3000))
    records, labels = own.draw(20_000, seed=0)
    found = {one.title: one for one in comparisons(own.release_, own.coding_, own.classes_, records, labels)}
    assert set(found) == {"Class sizes", "age", "work"}
    for one in found.values():
        assert sum(one.released) == pytest.approx(3000, abs=6 * np.linalg.norm(one.deviation))
        assert sum(one.synthetic) == pytest.approx(3000)
    work = dict(zip(found["work"].places, found["work"].released, strict=True))
    true = frame["work"].value_counts()
    assert all(abs(work[name] - true.get(name, 0)) < 6 * found["work"].deviation[0] for name in work)
    age = found["age"]
    spike = int(np.argmax(age.released))
    assert float(age.places[spike]) <= 40 < float(age.places[spike + 1])
    drawn = charts.against(age)
    assert drawn.count("<rect") == drawn.count('class="error"') == len(age.places)


def test_without_a_utility_report_nothing_is_computed_on_held_out_records(tmp_path: Path, photos: Path) -> None:
    record = synthesize(tmp_path, f"dataset.path={photos}", "dataset.size=8", "task.utility=false", "task.format=npz")
    assert set(record["metrics"]) == {"classes", "training", "seconds"}
    assert set(record["metrics"]["seconds"]) == {"reading", "release and fits", "writing"}
    assert "utility" not in record["files"]
    assert "utility report" not in " ".join(record["privacy"]["not_covered"])
    with np.load(record["files"]["synthetic"]) as made:
        assert made["x"].shape == (72, 8, 8, 3)
        assert set(made["y"]) <= {"cat", "dog"}


def test_a_table_becomes_a_table(tmp_path: Path) -> None:
    given = pd.DataFrame(
        {
            "age": RNG.integers(18, 80, 300),
            "work": RNG.choice(["state", "private"], 300),
            "pay": RNG.random(300).round(3),
            "income": RNG.choice(["low", "high"], 300),
        }
    )
    given.to_csv(tmp_path / "people.csv", index=False)
    own = ["dataset=table", f"dataset.path={tmp_path / 'people.csv'}", "dataset.label=income"]
    record = synthesize(
        tmp_path, *own, "dataset.bounds={age:[0,100],pay:[0,1]}", "dataset.categories={work:[state,private,none]}"
    )
    made = pd.read_csv(record["files"]["synthetic"])
    assert list(made.columns) == list(given.columns)
    assert len(made) == 270
    assert made["age"].dtype == np.int64
    assert made["age"].between(0, 100).all()
    assert set(made["work"]) <= {"state", "private", "none"}
    assert set(made["income"]) <= {"low", "high"}
    with pytest.raises(UsageError, match=r"dataset\.bounds"):
        synthesize(tmp_path, "dataset=table", f"dataset.path={_numbers(tmp_path)}", "dataset.label=null")


def test_with_a_schema_nothing_is_taken_from_the_table(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "label: income\ncolumns:\n  age: {kind: integer, range: [0, 120]}\n"
        "  income: {kind: category, values: [low, high, none]}\n"
    )
    rows = "".join(f"{20 + i % 50},{('low', 'high')[i % 2]}\n" for i in range(300))
    (tmp_path / "people.csv").write_text(f"age,income\n{rows}")
    own = ["dataset=table", f"dataset.path={tmp_path / 'people.csv'}", f"dataset.schema={tmp_path / 's.yaml'}"]
    record = synthesize(tmp_path, *own, "task.utility=false")
    assert (record["privacy"]["rigorous"], record["privacy"]["verdict"]) == (True, "yes")
    assert record["config"]["dataset"]["schema"]["columns"]["age"]["range"] == ["0", "120"]
    made = pd.read_csv(record["files"]["synthetic"])
    assert list(made.columns) == ["age", "income"]
    assert set(record["metrics"]["classes"]["noisy_counts"]) == {"low", "high", "none"}


def _numbers(tmp_path: Path) -> Path:
    pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1, 2, 3]}).to_csv(tmp_path / "n.csv", index=False)
    return tmp_path / "n.csv"


def test_a_known_data_set_with_two_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpot.methods.sketch.fit.NETWORK_STEPS_ON_CPU", 2)
    monkeypatch.setattr("dpot.methods.sketch.method.SYNTHETIC_ON_CPU", 200)
    record = synthesize(tmp_path, "dataset=digits", "dataset.size=8", "loss.rounds=2", "task.count=50")
    assert record["privacy"]["releases"] == 5
    assert record["metrics"]["training"]["steps"] == 4
    with np.load(record["files"]["synthetic"]) as made:
        assert made["x"].shape == (50, 8, 8)
    folder = Path(record["files"]["synthetic"]).parent
    assert not list(folder.rglob("step-*"))  # checkpoints are gone: they hold the states of generators


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["loss=dp_merf"], "choose loss= from sketch, sketch_add_remove$"),
        (["privacy=none"], "needs a budget"),
        (["task.format=csv"], "images as png or npz"),
        (["dataset=gaussians"], "needs images or a table"),
    ],
)
def test_refused(tmp_path: Path, photos: Path, overrides: list[str], words: str) -> None:
    path = [] if "dataset=gaussians" in overrides else [f"dataset.path={photos}", "dataset.size=8"]
    small = ["task=synthesize", "profile=smoke", "device=cpu", f"output_root={tmp_path}"]
    with pytest.raises(DpotError, match=words):
        run(compose_config([*small, *path, *overrides]))
