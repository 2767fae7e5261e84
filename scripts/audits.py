"""Run every audit again and write results/audit/ (make audits).

Each line is a method with the settings that make it small: on images of 4 × 4 pixels, a clipping bound of 1 is as
tight as 10 is on MNIST, and two Fourier features can be turned by half a circle where ten thousand cannot. DP-SWD
makes one step: what is proved of several sampled projections is not tight, and hides a perfect record, too.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from dpot.composing import compose_config
from dpot.config import REPOSITORY
from dpot.launch import run
from dpot.reporting.audits import in_words, write_page

AUDITS = {
    "dp_swd": ["loss.projections=50", "loss.norm_bound=1", "task.steps=1"],
    "dp_swd_paper": ["loss.projections=50", "privacy.mode=paper", "privacy.bound=clt"],
    "dp_merf": ["loss.features=2", "loss.kernel_variance=1"],
    "dp_sinkhorn": ["loss.l1=0"],
    "dp_cgan": ["loss.hidden=8"],
    "sketch": ["loss.lines=8", "loss.knots=4", "loss.planes=0", "loss.rounds=1", "task.repetitions=20000"],
    "sketch_add_remove": ["loss.lines=8", "loss.knots=4", "loss.planes=0", "loss.rounds=1", "task.repetitions=20000"],
    "dpdm": ["loss.copies=1"],
    "sketch_diffusion": [
        *("loss.share=0.5", "loss.copies=1", "loss.batch=1", "loss.warm_steps=1", "loss.warm_batch=2"),
        *("loss.sketch_width=2", "loss.sketch={rounds:1,lines:8,knots:2,planes:0,steps:1,batch:4}"),
        *("privacy.epsilon=6", "task.steps=1", "task.pairs=6", "task.repetitions=1000"),
    ],
    "gaussian_floor": ["loss.frequencies=2"],
    "adapt/dp_swd": ["loss.projections=50", "loss.batch=1", "task.steps=1"],
    "adapt/dp_dann": [],
    "adapt/sketch": [],
    "classify/dp_sgd": [],
    "distance/sketch": ["loss.directions=2", "loss.cells=4"],
    "distance/noisy_records": [],
}

NAMES = {"sketch_add_remove": "sketch-add-remove"}  # of files, where an audit has the name of another by itself

if __name__ == "__main__":
    results = REPOSITORY / "results"
    for name in sys.argv[1:] or AUDITS:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            overrides = ["task=audit", f"loss={name}", *AUDITS[name], "device=cpu", f"output_root={folder}"]
            answer = run(compose_config(overrides))
            (path,) = Path(folder, "audit").glob("*.json")
            found = json.loads(path.read_text())
        found["name"] = NAMES.get(name, found["name"])
        (results / "audit" / f"{found['name']}.json").write_text(json.dumps(found, indent=1) + "\n")
        print("\n".join(in_words(answer.data)))
        print(f"{time.perf_counter() - began:.0f} s\n", flush=True)
    print(f"wrote {write_page(results / 'audit')}")
