"""This process and others on this machine: the same sums to the bit, whatever the partitions and whoever dies."""

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import counted
import forked
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spreading
import torch

from dpot.composing import compose_config
from dpot.data.partitions import table_partitions
from dpot.engines.local import Local
from dpot.engines.processes import Processes
from dpot.errors import DataError, UsageError
from dpot.launch import run
from dpot.privacy.spending import Spending
from dpot.spread import Spread


@pytest.fixture(scope="module")
def processes():
    multiprocessing.set_forkserver_preload(forked.LOADED)
    engine = Processes(2)
    yield engine
    engine.close()


def spread(engine, folder, decode=spreading.TABLE, **more):
    parts, rows = table_partitions(str(folder), decode.columns)
    return Spread.of(engine, parts, decode, more.get("size", rows))


@pytest.mark.parametrize(("files", "group"), [(1, 2000), (1, 130), (5, 77)])
def test_sums_do_not_depend_on_the_partitions(files, group, tmp_path):
    frame = spreading.people()
    records, labels = counted.in_memory(frame)
    shuffled = frame.sample(frac=1, random_state=1)
    there = spread(Local(), spreading.write_people(tmp_path, shuffled, files, group))
    assert there.shape == (2000, *spreading.TABLE.coding.shape)
    for counter in counted.table_counters():
        assert torch.equal(there.total(counter), counter([(records, labels)]))


def test_processes_count_the_same_as_one(processes, tmp_path):
    frame = spreading.people()
    whole = [(counted.in_memory(frame))]
    there = spread(processes, spreading.write_people(tmp_path, frame, 3, 100))
    for counter in counted.table_counters():
        assert torch.equal(there.total(counter), counter(whole))
    images, labels = spreading.digits()
    pq.write_table(spreading.image_table(images, labels), tmp_path / "images.parquet", row_group_size=60)
    (tmp_path / "i").mkdir()
    (tmp_path / "images.parquet").rename(tmp_path / "i" / "images.parquet")
    there = spread(processes, tmp_path / "i", spreading.IMAGES)
    records = torch.from_numpy(images).flatten(1).float() / 255
    for counter in counted.image_counters():
        assert torch.equal(there.total(counter), counter([(records, torch.from_numpy(labels))]))


def test_a_release_is_that_of_the_records_in_memory(same_noise, tmp_path):
    """Noise, bins and the learned round: everything that is released is equal to the bit."""
    frame = spreading.people()
    there = spread(Local(), spreading.write_people(tmp_path / "t", frame, 4, 90))
    counted.assert_same(counted.table_release(there), counted.table_release(frame))
    images, labels = spreading.digits()
    (tmp_path / "i").mkdir()
    pq.write_table(spreading.image_table(images, labels), tmp_path / "i" / "x.parquet", row_group_size=70)
    streamed = counted.image_release(spread(Local(), tmp_path / "i", spreading.IMAGES), None)
    counted.assert_same(streamed, counted.image_release(images, labels))


def test_a_worker_that_is_killed_in_the_middle_is_replaced_and_adds_once(processes, tmp_path, caplog):
    folder = spreading.write_people(tmp_path / "t", spreading.people(), 4, 100)
    deadly = spreading.Deadly(spreading.TABLE, str(tmp_path / "flag"))
    counter = counted.table_counters()[0]
    expected = spread(Local(), folder).total(counter)
    assert torch.equal(spread(processes, folder, deadly).total(counter), expected)
    assert (tmp_path / "flag").exists()
    assert "a worker has died" in caplog.text


def test_workers_that_always_die_are_one_line(tmp_path):
    folder = spreading.write_people(tmp_path / "t", spreading.people(300), 2, 50)
    deadly = spreading.Deadly(spreading.TABLE, str(tmp_path / "flag"), always=True)
    engine = Processes(1, tries=2)
    with pytest.raises(DataError, match=r"workers have died in 2 attempts, .*nothing of this pass was released"):
        spread(engine, folder, deadly).total(counted.table_counters()[0])
    engine.close()


def refused(folder, engine=None, decode=spreading.TABLE, **more):
    with pytest.raises(DataError) as found:
        spread(engine or Local(), folder, decode, **more).total(counted.table_counters()[0])
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_damaged_row_group_is_named(processes, tmp_path):
    folder = spreading.write_people(tmp_path, spreading.people(), 3, 200)
    counted.damage(folder / "part-1.parquet")
    assert "part-1.parquet: row group" in refused(folder)
    assert refused(folder) == refused(folder, processes)


def test_a_partition_that_has_gone_is_named_and_one_that_shrinks_is_noticed(tmp_path):
    folder = spreading.write_people(tmp_path, spreading.people(), 3, 200)
    there = spread(Local(), folder)
    counter = counted.table_counters()[0]
    (folder / "part-2.parquet").rename(folder / "kept")
    with pytest.raises(DataError, match=r"part-2.parquet has gone: it was there when the run began"):
        there.total(counter)
    fewer = pq.read_table(folder / "kept").slice(0, 400)
    pq.write_table(fewer, folder / "part-2.parquet", row_group_size=100)
    with pytest.raises(DataError, match=r"has found 1,734 of them, and there are 2,000: a partition is missing"):
        there.total(counter)


def test_files_whose_columns_differ_are_refused_by_name(tmp_path):
    folder = spreading.write_people(tmp_path / "t", spreading.people(), 2, 500)
    other = spreading.people(100).rename(columns={"pay": "salary"})
    pq.write_table(pa.Table.from_pandas(other), folder / "part-9.parquet")
    assert "part-9.parquet has no column 'pay'; it has age, salary, work, income" in refused(folder)
    spreading.people(50).to_csv(tmp_path / "a.csv", index=False)
    other.to_csv(tmp_path / "b.csv", index=False)
    (tmp_path / "c").mkdir()
    for name in "ab":
        (tmp_path / f"{name}.csv").rename(tmp_path / "c" / f"{name}.csv")
    assert "b.csv has no column 'pay'" in refused(tmp_path / "c", size=150)


def test_a_worker_out_of_memory_is_one_line(tmp_path):
    folder = spreading.write_people(tmp_path, spreading.people(100), 1, 100)
    assert "not enough memory" in refused(folder, decode=spreading.Hungry(spreading.TABLE, ""))


def test_a_column_of_another_type_is_read_cell_by_cell(tmp_path):
    """Whole numbers in one file and words in the other give the same records: every cell is read by itself."""
    frame = spreading.people(400)
    folder = spreading.write_people(tmp_path / "a", frame, 1, 100)
    words = frame.astype({"age": str})
    other = spreading.write_people(tmp_path / "b", words, 1, 100)
    counter = counted.table_counters()[0]
    assert torch.equal(spread(Local(), folder).total(counter), spread(Local(), other).total(counter))


COMMAND = ("task=synthesize", "dataset=table", "privacy.delta=1e-6", "profile=smoke", "device=cpu")


def prepared(tmp_path):
    """A folder of files, and the command that makes synthetic records of them."""
    folder = spreading.write_people(tmp_path / "people", spreading.people(), 3, 200)
    (tmp_path / "schema.yaml").write_text(json.dumps(spreading.SCHEMA))
    return [*COMMAND, f"dataset.path={folder}", f"dataset.schema={tmp_path / 'schema.yaml'}"]


def spent():
    """How many releases the accounts of all data sets have."""
    folder = Path(os.environ["DPOT_CACHE"]) / "spending"
    return sum(Spending(path).releases() for path in folder.glob("*.json"))


def test_the_task_reads_a_folder_as_a_stream_and_another_engine_finds_its_record(tmp_path):
    command = [*prepared(tmp_path), f"output_root={tmp_path}/outputs"]
    answer = run(compose_config(command)).data
    assert answer["provenance"]["data"]["records"] == 2000
    assert answer["config"]["task"]["utility"] is False
    assert spent() == 1
    again = run(compose_config([*command, "engine=processes"])).data
    assert again["privacy"] == answer["privacy"]
    assert spent() == 1


def test_a_driver_that_is_killed_after_the_release_goes_on_from_it(dpot, tmp_path, monkeypatch):
    """The release is on the disk and its record is not: the next run looks at no record, and nothing is spent again."""
    command = [*prepared(tmp_path), "profile.steps=1000000", "loss.steps=1000000", "loss.rounds=1"]
    process = dpot.start(*command)
    releases = tmp_path / "outputs" / "releases"
    until = time.monotonic() + 100
    while not list(releases.glob("*/release-sketch-first-*.safetensors")) and time.monotonic() < until:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.join()
    (kept,) = releases.glob("*/release-sketch-first-*.safetensors")
    before = kept.read_bytes()
    assert spent() == 1
    assert not list((tmp_path / "outputs").rglob("record.json"))
    monkeypatch.setattr(Local, "total", lambda *given: pytest.fail("the records were looked at again"))
    shorter = [*command, "profile.steps=2", "loss.steps=2", f"output_root={tmp_path}/outputs"]
    run(compose_config(shorter))
    assert kept.read_bytes() == before
    assert spent() == 1


def test_a_pass_that_fails_releases_nothing_and_the_next_run_is_the_first(tmp_path):
    command = [*prepared(tmp_path), f"output_root={tmp_path}/outputs"]
    file = tmp_path / "people" / "part-1.parquet"
    sound = file.read_bytes()
    counted.damage(file)
    with pytest.raises(DataError, match="row group"):
        run(compose_config(command))
    assert not list((tmp_path / "outputs" / "releases").glob("*/*.safetensors"))
    file.write_bytes(sound)
    run(compose_config(command))
    assert spent() <= 2  # the damaged file is another data set, whose begun release stays counted


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["~dataset.schema", "+dataset.schema=null"], "dataset.schema: a table that is read as a stream needs one"),
        (["dataset.limit=5"], "dataset.limit: records that are read as a stream are all learned from"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(changes, says, tmp_path):
    with pytest.raises(UsageError, match=says):
        run(compose_config([*prepared(tmp_path), f"output_root={tmp_path}", *changes]))


def test_engines_are_for_synthesis_of_own_files(tmp_path):
    with pytest.raises(UsageError, match="task=generate reads its records into memory"):
        run(compose_config(["task=generate", "engine=processes", f"output_root={tmp_path}"]))
    with pytest.raises(UsageError, match="it reads files of your own"):
        run(compose_config(["task=synthesize", "dataset=digits", "engine=processes", f"output_root={tmp_path}"]))


def test_images_of_a_folder_are_decoded_by_the_engine(tmp_path):
    from PIL import Image

    images, labels = spreading.digits(40)
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        (tmp_path / "photos" / f"c{label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "photos" / f"c{label}" / f"{index}.png")
    command = ["task=synthesize", "dataset=folder", f"dataset.path={tmp_path}/photos", "dataset.size=8"]
    from dpot.tasks import streaming

    cfg = compose_config([*command, "dataset.channels=grey", "dataset.streamed=true"])
    assert streaming.settle(cfg)
    data = streaming.load(cfg)
    assert data.class_names == ("c0", "c1", "c2")
    records = torch.from_numpy(images).flatten(1).float() / 255
    for counter in counted.image_counters():
        assert torch.equal(data.spread.total(counter), counter([(records, torch.from_numpy(labels))]))
    assert np.isclose(len(data.spread), 40)
