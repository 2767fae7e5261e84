"""Ray, for real: one cluster of this machine, which all of this test uses."""

import importlib.util
import json
import sys

import counted
import pyarrow as pa
import pyarrow.parquet
import pytest
import spreading
import torch

from dpot.composing import compose_config
from dpot.data.partitions import table_partitions
from dpot.engines.local import Local
from dpot.engines.ray import RayEngine
from dpot.errors import DataError, UsageError
from dpot.launch import main, run
from dpot.spread import Spread
from dpot.synthesis import Synthesizer

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'dpot[ray]'")
SUMS = [counted.table_counters()[index] for index in (0, 1, -1)]  # histograms, pairs, learned features


@pytest.fixture
def cluster(workers_find_the_tests):
    small = {"num_cpus": 2, "object_store_memory": 100 << 20, "include_dashboard": False}
    ray.init(**small, log_to_driver=False, logging_level="ERROR")
    yield RayEngine()
    ray.shutdown()


def test_ray(cluster, same_noise, tmp_path, monkeypatch):
    """Sums, releases, workers that die, files that are damaged: one test, because Ray takes long to begin."""
    frame = spreading.people()
    folder = spreading.write_people(tmp_path / "t", frame, 3, 100)
    parts, rows = table_partitions(str(folder), spreading.TABLE.columns)
    sums_are_equal_and_a_killed_worker_adds_once(cluster, parts, rows, tmp_path)
    data_sets_release_what_records_in_memory_do(frame, folder)
    the_task_runs(folder, tmp_path)
    if importlib.util.find_spec("hydra_plugins.hydra_ray_launcher"):
        the_launcher_of_sweeps_runs(tmp_path / "sweeps", monkeypatch)
    what_is_wrong_is_one_line(cluster, folder, tmp_path)


def sums_are_equal_and_a_killed_worker_adds_once(cluster, parts, rows, tmp_path):
    here, there = Spread.of(Local(), parts, spreading.TABLE, rows), Spread.of(cluster, parts, spreading.TABLE)
    assert len(there) == rows
    for counter in SUMS:
        assert torch.equal(there.total(counter), here.total(counter))
    deadly = spreading.Deadly(spreading.TABLE, str(tmp_path / "flag"))
    assert torch.equal(Spread.of(cluster, parts, deadly, rows).total(counter), here.total(counter))
    assert (tmp_path / "flag").exists()


def data_sets_release_what_records_in_memory_do(frame, folder):
    blocks = [pa.parquet.read_table(path) for path in sorted(folder.iterdir())]
    counted.assert_same(counted.table_release(ray.data.from_arrow(blocks)), counted.table_release(frame))
    images, labels = spreading.digits()
    blocks = [spreading.image_table(images[rows], labels[rows]) for rows in (slice(0, 40), slice(40, 300))]
    there = Spread.of(RayEngine(), ray.data.from_arrow(blocks), spreading.IMAGES)
    counted.assert_images(there, images, labels)


def the_task_runs(folder, tmp_path):
    command = ["task=synthesize", "dataset=table", "privacy.delta=1e-6", "profile=smoke", "device=cpu", "engine=ray"]
    (tmp_path / "schema.yaml").write_text(str(spreading.SCHEMA))
    files = [f"dataset.path={folder}", f"dataset.schema={tmp_path}/schema.yaml", f"output_root={tmp_path}/outputs"]
    assert run(compose_config([*command, *files])).data["provenance"]["data"]["records"] == 2000


def the_launcher_of_sweeps_runs(folder, monkeypatch):
    sizes = [f"task.{name}" for name in ("d=784", "k=1000", "records=60000", "batch=100", "steps=600")]
    command = ["-m", "task=calibrate", "privacy.epsilon=1,2", *sizes, "hydra/launcher=ray", f"output_root={folder}"]
    monkeypatch.setattr(sys, "argv", ["dpot", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    answers = [json.loads(path.read_text())["answer"] for path in sorted(folder.rglob("job.json"))]
    assert [answer["epsilon"] for answer in answers] == [1, 2]


def what_is_wrong_is_one_line(cluster, folder, tmp_path):
    with pytest.raises(UsageError, match="the data set has no column 'age'; it has image, label"):
        Synthesizer(1, 1e-6, schema=spreading.SCHEMA).fit(
            ray.data.from_arrow(spreading.image_table(*spreading.digits(4)))
        )
    counter = SUMS[0]
    always = spreading.Deadly(spreading.TABLE, str(tmp_path / "again"), always=True)
    parts, rows = table_partitions(str(folder), spreading.TABLE.columns)
    with pytest.raises(DataError, match=r"engine=ray: nothing of this pass was released .*[Ww]orker") as found:
        Spread.of(RayEngine(tries=1), parts[:1], always, rows).total(counter)
    assert "\n" not in str(found.value)
    counted.damage(folder / "part-1.parquet")
    with pytest.raises(DataError, match=r"part-1.parquet: row group \d is damaged") as found:
        Spread.of(cluster, parts, spreading.TABLE, rows).total(counter)
    assert "\n" not in str(found.value)
    odd = ray.data.from_arrow(pa.table({"image": [b"no image"], "label": [0]}))
    with pytest.raises(DataError, match="is not a readable image"):
        Spread.of(cluster, odd, spreading.IMAGES, 1).total(counted.image_counters()[0])
