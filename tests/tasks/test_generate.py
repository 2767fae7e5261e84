"""task=generate end to end on the embedded digits, with the real configuration shrunk."""

import json
from pathlib import Path

import numpy as np
import pytest

from dpot import config
from dpot.composing import compose_config
from dpot.errors import UsageError
from dpot.launch import run
from dpot.privacy.noise import NoiseSource
from dpot.tasks import training
from dpot.tasks.generate import Generate

SMALL = ["task=generate", "dataset=digits", "profile=smoke", "profile.steps=5", "device=cpu"]
SMALL += ["classifier.kinds=[logreg]"]
METHODS = {
    "swd": ["loss=swd", "loss.projections=200", "privacy=none", "classifier.kinds=[logreg,mlp]"],
    "dp_swd": ["loss=dp_swd", "loss.projections=200", "privacy=eps10"],
    "dp_swd joint": ["loss=dp_swd", "loss.projections=200", "loss.labels=joint", "privacy=eps10"],
    "dp_swd_paper": ["loss=dp_swd_paper", "privacy=eps10", "privacy.bound=coded", "privacy.mode=paper"],
    "dp_merf": ["loss=dp_merf", "loss.features=500", "loss.batch=100", "privacy=eps10"],
    "sinkhorn": ["loss=sinkhorn", "generator=sinkhorn_dcgan", "generator.width=8", "privacy=none"],
    "dp_sinkhorn": ["loss=dp_sinkhorn", "generator=sinkhorn_dcgan", "generator.width=8", "privacy=eps10"],
    "dp_cgan": ["loss=dp_cgan", "generator=cgan_mlp", "loss.batch=100", "privacy=eps10"],
    "dp_cgan_paper": [
        "loss=dp_cgan_paper",
        "generator=cgan_mlp",
        "loss.batch=100",
        "privacy=eps10",
        "privacy.mode=paper",
    ],
}


def generate(tmp_path, *overrides):
    return run(compose_config([*SMALL, f"output_root={tmp_path}", *overrides])).data


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_its_statement_comes_from_its_ledger(tmp_path, method):
    record = generate(tmp_path, *METHODS[method])
    privacy, metrics = record["privacy"], record["metrics"]
    assert metrics["training"]["steps"] <= 5
    assert ("mlp" in metrics) == (method == "swd")
    assert all(0 <= metrics[kind]["mean"] <= 100 for kind in ("logreg", "mlp") if kind in metrics)
    assert metrics["pixel_frechet"] > 0
    assert "fid" not in metrics  # no weights, no FID: the stand-in has its own name
    if method in ("swd", "sinkhorn"):
        assert not privacy["rigorous"]
    elif method == "dp_swd_paper":
        assert not privacy["rigorous"]
        assert any("diameter of up to 28" in reason for reason in privacy["reasons"])
    elif method == "dp_cgan_paper":
        assert not privacy["rigorous"]
        assert any("four tensors is clipped by itself" in reason for reason in privacy["reasons"])
    else:
        assert privacy["rigorous"], privacy
        assert privacy["epsilon"] <= 10
        releases = 1 if method == "dp_merf" else metrics["training"]["steps"]
        assert privacy["releases"] == releases


def test_a_second_run_reads_the_record_of_the_first(tmp_path):
    first = generate(tmp_path, *METHODS["dp_merf"])
    again = generate(tmp_path, *METHODS["dp_merf"])
    assert again == json.loads(json.dumps(first))
    other = generate(tmp_path, *METHODS["dp_merf"], "rerun=true")
    assert other["provenance"]["finished"] >= first["provenance"]["finished"]


def test_changed_data_are_not_answered_from_the_record_of_the_old(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    overrides = ["dataset=folder", f"dataset.path={folder}/x.npz", "loss=dp_merf", "loss.features=64", "loss.batch=50"]
    overrides += ["dataset.size=28", "classifier.kinds=[logreg]", "privacy=eps10"]
    checksums = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x, y = rng.integers(0, 256, (60, 28, 28), dtype=np.uint8), np.arange(60) % 3
        np.savez(folder / "x.npz", x=x, y=y)
        checksums.append(generate(tmp_path / "out", *overrides)["provenance"]["data"]["checksum"])
    assert checksums[0] != checksums[1]


def test_the_privacy_noise_does_not_follow_the_seed(tmp_path):
    runs = [generate(tmp_path / str(i), *METHODS["dp_swd"]) for i in range(2)]
    losses = [r["metrics"]["training"]["history"][-1]["loss"] for r in runs]
    assert losses[0] != losses[1]


def test_no_checkpoint_remains_of_a_finished_run(tmp_path):
    generate(tmp_path, *METHODS["dp_swd"])
    assert not list(tmp_path.rglob("*.dpot"))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["loss=dp_swd", "privacy=eps10", "loss.batch=33"], "multiple of the 10 classes"),
        (["loss=dp_swd", "privacy=eps10", "loss.batch=5000"], "fewer than the 500 of a batch"),
        (["loss=dp_swd", "privacy=eps10", "generator=sinkhorn_dcgan"], "sigmoid"),
        (["loss=dp_sinkhorn", "privacy=eps10", "generator=merf_conv"], "tanh"),
        (["loss=swd", "privacy=none", "dataset=gaussians"], "images"),
        ([*METHODS["dp_sinkhorn"], "loss.batch=1"], "loss.batch"),
        ([*METHODS["dp_sinkhorn"], "loss.batch=1001"], "loss.batch=1001: there are 1000 records"),
        (
            ["loss=swd", "privacy=none", "classifier=dp_sinkhorn", "classifier.kinds=[cnn]", "dataset.size=16"],
            "18×18 or more, not 16×16",
        ),
        (["loss=swd", "privacy=none", "profile.samples=1"], "at least two images"),
        (["loss=swd", "privacy=none", "task.fid_samples=1"], "at least two images"),
        (["loss=swd", "privacy=none", "task.fid_reference=training"], "fid_reference"),
        (["loss=swd", "privacy=none", "task.grey_too=true"], "goes with task.dark_to_black=true"),
    ],
)
def test_what_does_not_fit_together_is_said(tmp_path, overrides, words):
    with pytest.raises(UsageError, match=words):
        generate(tmp_path, *overrides)


def test_what_was_refused_leaves_nothing_behind(tmp_path):
    with pytest.raises(UsageError):
        generate(tmp_path, "privacy=none")
    assert not [path for path in tmp_path.rglob("*") if path.is_dir()]


def test_images_without_labels_get_no_accuracy(tmp_path):
    np.savez(tmp_path / "own.npz", x=np.random.default_rng(0).random((60, 8, 8)).astype(np.float32))
    own = [
        f"dataset.path={tmp_path / 'own.npz'}",
        "dataset.size=8",
        "loss=dp_merf",
        "loss.features=50",
        "loss.batch=20",
    ]
    own = ["dataset=folder", *own, "privacy=eps10"]
    record = generate(tmp_path, *own, "privacy.delta=0.1", "large_delta=true")
    assert set(record["metrics"]) == {"pixel_frechet", "training"}
    assert "WARNING: δ = 0.1 is not below 1/54" in record["privacy"]["headline"]
    with pytest.raises(UsageError, match="at least two real images"):
        generate(tmp_path, *own, "dataset.test_fraction=0.001")


def test_samples_are_judged_with_their_grey_pixels_too(tmp_path):
    real = [
        "loss=real_data",
        "privacy=none",
        "profile.records=400",
        "profile.samples=400",
        "profile.passes=2",
    ]  # all of them, in any order
    real += ["classifier.kinds=[logreg]"]
    plain = generate(tmp_path, *real)["metrics"]
    both = generate(tmp_path, *real, "task.dark_to_black=true", "task.grey_too=true")["metrics"]
    assert both["logreg_grey"]["mean"] == pytest.approx(plain["logreg"]["mean"], abs=0.2)
    assert both["logreg"]["mean"] != pytest.approx(plain["logreg"]["mean"], abs=0.2)
    assert all(len(both[name]["passes"]) == 2 for name in ("logreg", "logreg_grey"))


def test_samples_and_statement_are_written(tmp_path):
    files = generate(tmp_path, *METHODS["dp_swd"])["files"]
    assert Path(files["samples"]).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "ε" in Path(files["statement"]).read_text()
    assert "<html" in Path(files["statement_page"]).read_text()


def test_side_by_side_each_learns_what_it_learns_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "NoiseSource", lambda device: NoiseSource(seed=7, device=device))

    short = [*SMALL, "profile.steps=3", "profile.samples=100"]

    def configs(folder):
        cfgs = [
            compose_config([*short, f"output_root={tmp_path}/{folder}", *METHODS[method], f"seed={seed}"])
            for method, seed in (("dp_swd", 0), ("dp_swd", 1), ("dp_merf", 0))
        ]
        for cfg in cfgs:
            config.check(cfg)
        return cfgs

    task = Generate(fid=False)
    alone = [task.run(cfg).data for cfg in configs("alone")]
    together = [answer.data for answer in task.run_together(configs("together"))]
    again = [answer.data for answer in task.run_together(configs("together"))]
    for one, other, kept in zip(alone, together, again, strict=True):
        assert one["metrics"]["training"]["history"] == other["metrics"]["training"]["history"]
        assert one["metrics"]["logreg"] == other["metrics"]["logreg"]
        assert one["privacy"]["epsilon"] == other["privacy"]["epsilon"]
        assert kept["provenance"]["finished"] == other["provenance"]["finished"]
    assert together[0]["metrics"]["logreg"] != together[1]["metrics"]["logreg"]
    assert not list(tmp_path.rglob("*.dpot"))


@pytest.mark.parametrize(
    ("override", "disclosed"),
    [("task.judged_on=train", "the accuracies and the FID"), ("task.fid_reference=train", "the FID"), ("seed=0", None)],
)
def test_what_is_measured_on_the_private_images_is_said_to_be_outside_the_epsilon(tmp_path, override, disclosed):
    privacy = generate(tmp_path, *METHODS["dp_merf"], override)["privacy"]
    outside = [what for what in privacy["not_covered"] if "private training images themselves" in what]
    assert [what.split(" in this record")[0] for what in outside] == ([disclosed] if disclosed else [])
