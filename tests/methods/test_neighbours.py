"""Every private method, replayed on arbitrary neighbours: what one record moves, against the sensitivity it states.

The neighbours are those of the adjacency that the method itself declares; black, white, faint, sparse, constant and
arbitrary images, and for methods on vectors entries far beyond every clipping bound. Every release is looked at.
"""

import itertools
import math

import pytest
import torch

from dpot import config
from dpot.composing import compose_config
from dpot.config import CONF_DIR
from dpot.tasks.audit import Audit, neighbours
from dpot.tasks.rehearsal import Rehearsal
from dpot.tasks.scenes import scene_of
from dpot.tasks.training import _loss_in

ROUNDING = 1 + 1e-4  # float32 sums of two runs
SMALL = {
    "dp_swd": [
        ["loss.projections=8", "loss.norm_bound=1"],
        ["loss.projections=8", "loss.norm_bound=1", "loss.labels=joint", "loss.label_weight=1"],
    ],
    "dp_merf": [["loss.features=2", "loss.kernel_variance=1"]],
    "dp_sinkhorn": [["loss.l1=0"], ["loss.perturb=parameters"], ["loss.clip_per=row"]],
    "dp_cgan": [["loss.hidden=8"]],
    "sketch": [["loss.lines=8", "loss.knots=4", "loss.planes=2", "loss.rounds=1"]],
    "sketch_add_remove": [["loss.lines=8", "loss.knots=4", "loss.planes=2", "loss.rounds=1"]],
    "dpdm": [["loss.copies=2"]],
    "sketch_diffusion": [
        [
            *("loss.share=0.9", "loss.copies=1", "loss.batch=1", "loss.warm_steps=1", "loss.warm_batch=2"),
            *("loss.sketch_width=2", "loss.sketch={rounds:1,lines:8,knots:2,planes:0,steps:1,batch:4}"),
            "privacy.epsilon=50",
        ]
    ],
    "gaussian_floor": [["loss.frequencies=2"]],
    "adapt/dp_swd": [["loss.projections=8"]],
    "distance/sketch": [["loss.directions=2", "loss.label_scale=3"]],
}
VARIANTS = ("_paper", "_coded", "_celeba", "_averaged")  # of a method that is there already
FOLDER = CONF_DIR / "loss"
LOSSES = [path.relative_to(FOLDER).with_suffix("").as_posix() for path in sorted(FOLDER.rglob("*.yaml"))]
PRIVATE = [
    (name, overrides)
    for name in LOSSES
    if _loss_in(FOLDER / f"{name}.yaml").private and _loss_in(FOLDER / f"{name}.yaml").keeps_epsilon
    if not name.endswith(VARIANTS)
    for overrides in SMALL.get(name, [[]])
]


@pytest.mark.parametrize(("name", "overrides"), PRIVATE, ids=lambda given: str(given))
def test_no_record_moves_a_release_by_more_than_is_stated(name, overrides):
    cfg = compose_config(["task=audit", f"loss={name}", *overrides, "device=cpu"])
    scene = scene_of(config.locate(str(cfg.loss._target_), "loss"))
    cast = Audit(steps=2)._cast(cfg, scene, config.instantiate(cfg.privacy, "privacy"))
    random = torch.Generator().manual_seed(len(name))
    pairs = neighbours(cast.relation, cast.sampler is not None, cast.records, scene, random)
    found = [max(Rehearsal(cast, pair).largest_moves()) for pair in itertools.islice(pairs, 10)]
    assert all(math.isfinite(moved) for moved in found)
    assert 0.3 < max(found) <= ROUNDING  # and the neighbours are such that something moves


def test_every_private_method_is_replayed():
    assert {name for name, _ in PRIVATE} >= {
        *(
            "dp_swd",
            "dp_merf",
            "dp_sinkhorn",
            "dp_cgan",
            "sketch",
            "dpdm",
            "adapt/dp_swd",
            "adapt/dp_dann",
            "adapt/sketch",
        ),
        *("classify/dp_sgd", "distance/sketch", "distance/noisy_records"),
    }
