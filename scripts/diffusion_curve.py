"""FID over the private steps of diffusion models, of the weights that loss.snapshots left beside a record.

    python scripts/diffusion_curve.py outputs/runs --samples 10000

Reads every finished run below the folder that has snapshots, draws samples of each state and compares them with the
images that the run itself was compared with. Writes curve.json beside the record; what is there already is not computed
again. With fewer samples than a table's 60,000 an FID is larger: these are for comparison with each other.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from safetensors.torch import load_file

from dpot import config
from dpot.data.base import unit_range
from dpot.data.weights import inception_weights
from dpot.disk import write_atomically
from dpot.evaluation.fid import FrechetInception, Statistics, frechet_distance, inception, read_weights
from dpot.models.generator import synthesize
from dpot.precision import fast_products
from dpot.record import Record


def curve(folder: Path, samples: int, data_root: str | None, network: Any, known: dict[str, Statistics]) -> Any:
    """[{step, fid}] of one run."""
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    cfg = OmegaConf.create(Record.load(folder).config)
    data = config.instantiate(cfg.dataset, "dataset").load(data_root)
    model = config.instantiate(cfg.generator, "generator", classes=data.classes, shape=data.shape).to(device)
    train = cfg.task.get("fid_reference") == "train" or "ImageBench" in cfg.classifier._target_
    protocol, key = FrechetInception(samples=samples), f"{data.checksum} {train}"
    if key not in known:
        known[key] = protocol.statistics(unit_range((data.train if train else data.test).x).to(device), network)
    target, found = folder / "curve.json", []
    done = json.loads(target.read_text())["curve"] if target.exists() else []
    for path in sorted((folder / "snapshots").glob("*.safetensors")):
        step = int(path.stem)
        row = next((r for r in done if r["step"] == step and r["samples"] == samples), None)
        if row is None:
            model.load_state_dict(load_file(path))
            images, _ = synthesize(model, samples, torch.Generator(device).manual_seed(0), device)
            row = {"step": step, "samples": samples}
            row["fid"] = frechet_distance(protocol.statistics(images, network), known[key])
        found.append(row)
        print(f"{folder.name}: step {step:,}: FID {row['fid']:.2f}", flush=True)
        facts = {"loss": OmegaConf.to_container(cfg.loss), "epsilon": cfg.privacy.epsilon, "against_train": train}
        write_atomically(target, json.dumps(facts | {"curve": found}, indent=1) + "\n")
    return found


def main() -> None:
    """All runs in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--data-root", default=None)
    options = parser.parse_args()
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    network = inception(read_weights(inception_weights(options.data_root).path), device)
    known: dict[str, Statistics] = {}
    with fast_products():
        for folder in sorted(path.parent for path in options.runs.glob("*/snapshots")):
            if (folder / "record.json").exists():
                curve(folder, options.samples, options.data_root, network, known)
            else:
                print(f"{folder.name}: not finished yet")


if __name__ == "__main__":
    main()
