"""Spark, for real: one session of this machine, which all of this test uses."""

import shutil
import sys

import counted
import pytest
import spreading
import torch

from dpot.composing import compose_config
from dpot.data.partitions import table_partitions
from dpot.engines.local import Local
from dpot.engines.spark import SparkEngine
from dpot.errors import DataError, UsageError
from dpot.launch import run
from dpot.spread import Spread
from dpot.synthesis import Synthesizer

pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'dpot[spark]'")
if shutil.which("java") is None:
    pytest.skip("Java is not installed: apt-get install openjdk-17-jre-headless", allow_module_level=True)
SUMS = [counted.table_counters()[index] for index in (0, 1, -1)]  # histograms, pairs, learned features


@pytest.fixture
def session(workers_find_the_tests, monkeypatch, tmp_path):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto")  # begins sooner
    builder = pyspark.sql.SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    for name, value in {"spark.python.daemon.module": "spark_daemon", "spark.log.level": "OFF"}.items():
        builder = builder.config(name, value)
    session = builder.config("spark.local.dir", str(tmp_path / "spark")).getOrCreate()
    yield session
    session.stop()


def test_spark(session, same_noise, tmp_path):
    """Sums, releases, workers that die, files that are damaged: one test, because Spark takes long to begin."""
    frame = spreading.people()
    folder = spreading.write_people(tmp_path / "t", frame, 3, 100)
    parts, rows = table_partitions(str(folder), spreading.TABLE.columns)
    engine = SparkEngine()
    sums_are_equal_and_a_killed_worker_adds_once(engine, parts, rows, tmp_path)
    data_frames_release_what_records_in_memory_do(session, frame, folder)
    the_task_runs(folder, tmp_path)
    what_is_wrong_is_one_line(session, engine, folder, tmp_path)


def sums_are_equal_and_a_killed_worker_adds_once(engine, parts, rows, tmp_path):
    here, there = Spread.of(Local(), parts, spreading.TABLE, rows), Spread.of(engine, parts, spreading.TABLE)
    assert len(there) == rows
    for counter in SUMS:
        assert torch.equal(there.total(counter), here.total(counter))
    deadly = spreading.Deadly(spreading.TABLE, str(tmp_path / "flag"))
    assert torch.equal(Spread.of(engine, parts, deadly, rows).total(counter), here.total(counter))
    assert (tmp_path / "flag").exists()


def data_frames_release_what_records_in_memory_do(session, frame, folder):
    found = counted.table_release(session.read.parquet(str(folder)).repartition(3))
    counted.assert_same(found, counted.table_release(frame))
    images, labels = spreading.digits()
    rows = [(image.flatten().tolist(), int(label)) for image, label in zip(images, labels, strict=True)]
    there = session.createDataFrame(rows, "image array<int>, label int").repartition(2)
    counted.assert_images(Spread.of(SparkEngine(), there, spreading.IMAGES), images, labels)


def the_task_runs(folder, tmp_path):
    command = ["task=synthesize", "dataset=table", "privacy.delta=1e-6", "profile=smoke", "device=cpu", "engine=spark"]
    (tmp_path / "schema.yaml").write_text(str(spreading.SCHEMA))
    files = [f"dataset.path={folder}", f"dataset.schema={tmp_path}/schema.yaml", f"output_root={tmp_path}/outputs"]
    assert run(compose_config([*command, *files])).data["provenance"]["data"]["records"] == 2000


def what_is_wrong_is_one_line(session, engine, folder, tmp_path):
    with pytest.raises(UsageError, match="the data set has no column 'age'; it has id"):
        Synthesizer(1, 1e-6, schema=spreading.SCHEMA).fit(session.range(5))
    counter = SUMS[0]
    parts, rows = table_partitions(str(folder), spreading.TABLE.columns)
    always = spreading.Deadly(spreading.TABLE, str(tmp_path / "again"), always=True)
    with pytest.raises(DataError, match="engine=spark: nothing of this pass was released") as found:
        Spread.of(engine, parts, always, rows).total(counter)
    assert "\n" not in str(found.value)
    counted.damage(folder / "part-1.parquet")
    with pytest.raises(DataError, match=r"part-1.parquet: row group \d is damaged") as found:
        Spread.of(engine, parts, spreading.TABLE, rows).total(counter)
    assert "\n" not in str(found.value)
