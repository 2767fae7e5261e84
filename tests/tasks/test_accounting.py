"""task=accounting: tables and figures written, and set beside the published column."""

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from dpot import config
from dpot.errors import DataError, UsageError
from dpot.tasks.accounting import Accounting, published_table_4
from dpot.tasks.base import Answer


def run(folder: Path, **keys: Any) -> Answer:
    cfg = {"output_root": str(folder), "paper": None, "table": None, "figure": None, **keys}
    return Accounting(draws=2000).run(OmegaConf.create(cfg))


def test_table_4_is_written_and_compared(tmp_path: Path) -> None:
    answer = run(tmp_path, paper="dp_swd", table=4)
    stored = json.loads((tmp_path / "dp_swd" / "table4.json").read_text())
    assert stored == answer.data
    verdicts = {cell["row"]: cell["verdict"] for cell in stored["cells"]}
    assert verdicts.pop("VisDA") == "outside"
    assert verdicts.pop("VisDA 1e-6") == "near"
    assert set(verdicts.values()) == {"within"}
    assert len(verdicts) == 7
    text = (tmp_path / "dp_swd" / "table4.md").read_text()
    assert "| U-M | 1e-05 | 4.74 | 4.717 | -0.5% | within | 4.386 | 0.911 | 0.748 | 0.710 | 2.042 |" in text
    console = Console(width=100, record=True, quiet=True)
    answer.show(console)


@pytest.mark.parametrize("figure", [1, "7"])
def test_figures(tmp_path: Path, figure: int | str) -> None:
    answer = run(tmp_path, paper="dp_swd", figure=figure)
    assert sum(answer.data["counts"]) == 2000
    assert all(Path(file).stat().st_size > 500 for file in answer.data["files"])


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"paper": "dp_swd"},
        {"paper": "dp_swd", "table": 2},
        {"paper": "dp_swd", "figure": 3},
        {"paper": "dp_swd", "table": 4, "figure": 1},
        {"paper": "dp_sinkhorn", "table": 1},
        {"paper": "wdp"},
    ],
)
def test_other_tables_are_refused(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="task=accounting does"):
        run(tmp_path, **keys)
    assert not list(tmp_path.rglob("*.json"))


def test_a_broken_published_table_is_named(tmp_path: Path) -> None:
    for name, content in [
        ("absent.yaml", None),
        ("empty.yaml", ""),
        ("wrong.yaml", "tables: {4: {columns: [a], rows: {x: [1, 2]}}}"),
    ]:
        path = tmp_path / name
        if content is not None:
            path.write_text(content)
        with pytest.raises(DataError, match=name):
            published_table_4(path)


def test_the_config_file_fits_the_task() -> None:
    node = OmegaConf.load(config.CONF_DIR / "task" / "accounting.yaml")
    config.check(OmegaConf.create({"task": node}))
    assert isinstance(config.instantiate(node, "task"), Accounting)  # type: ignore[arg-type]
