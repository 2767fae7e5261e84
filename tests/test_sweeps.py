"""The table that a sweep ends with."""

import json

from rich.console import Console

from dpot.sweeps import table

COMMON = ["task=generate", "dataset=digits"]


def job(overrides, folder="runs", epsilon=1.0, **more):
    answer = {
        "metrics": {"mlp": {"mean": 81.26, "std": None, "passes": [81.26]}, "fid": 12.5, "training": {"steps": 3}},
        "privacy": {"epsilon": epsilon, "rigorous": True} | more,
        "files": {"statement": f"/out/{folder}/{overrides[0]}/privacy.md"},
    }
    return {"overrides": [*COMMON, *overrides], "answer": answer, "exit_code": 0}


def printed(jobs, width=120):
    console = Console(width=width)
    with console.capture() as shown:
        console.print(table(jobs))
    return shown.get()


def test_what_differs_every_number_and_where_each_is_kept():
    failed = {"overrides": [*COMMON, "seed=2"], "error": "loss.batch=[3]: too few", "exit_code": 2}
    jobs = [job(["seed=0"]), job(["seed=1"], epsilon=None), failed, job(["seed=3"], rigorous=False)]
    text = printed(jobs)
    lines = {line.split("│")[1].strip(): line for line in text.splitlines() if line.startswith("│")}
    assert "4 runs, kept in /out/runs" in text
    assert "dataset" not in text  # all have the same
    assert "training" not in text
    assert [cell.strip() for cell in lines["0"].split("│")[1:-1]] == ["0", "0", "81.26", "12.5", "1", "seed=0"]
    assert "none" in lines["1"]
    assert "failed: loss.batch=[3]: too few" in lines["2"]
    assert "1 (not proved)" in lines["3"]


def test_runs_in_several_folders_are_named_in_full():
    assert "/out/others/seed=1" in printed([job(["seed=0"]), job(["seed=1"], folder="others")])


def test_what_is_no_record_shows_its_numbers():
    jobs = [
        {"overrides": [f"task.steps={n}"], "answer": {"sigma": 1.5 * n, "notes": []}, "exit_code": 0} for n in (1, 2)
    ]
    text = printed(jobs)
    assert "sigma" in text
    assert "ε" not in text


def test_a_sweep_ends_in_its_table(dpot):
    """And with output=json in one document that has all of it."""
    release = ["task=calibrate", "task.mechanism=gaussian", "task.sampler=full", "task.steps=1"]
    done = dpot("-m", *release, "privacy.epsilon=1,2,-1", "output=text")
    assert done.returncode == 2
    rows = done.stdout[done.stdout.index("3 runs") :]
    assert rows.count("│") >= 3 * 3
    assert "failed: privacy.epsilon=-1" in rows
    whole = json.loads(dpot("-m", *release, "privacy.epsilon=1,2", "output=json", check=True).stdout)
    assert [one["answer"]["epsilon"] for one in whole["jobs"]] == [1, 2]
