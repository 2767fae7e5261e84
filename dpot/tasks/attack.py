"""`task=attack`: what the messages of TriangleWad and FedWad give away, measured, with pictures.

dpot task=attack dataset=mnist
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from dpot import config
from dpot.data.base import facts
from dpot.disk import write_atomically
from dpot.methods.distance.triangle_wad import Time
from dpot.papers.triangle_wad.attacks.scene import on_fed_wad, on_triangle_wad, picture, scene_of
from dpot.papers.triangle_wad.clouds import loaded
from dpot.profiles import Profile
from dpot.ranges import Count, Positive
from dpot.record import Run
from dpot.tasks.base import Answer, Task


class Attack(Task):
    """Play the protocols, attack the logs, report rows, PSNR and labels recovered, and draw the images."""

    def __init__(
        self, size: Count = 500, public: Count = 5000, t: Time = 0.5, sigma: Positive = 1.0, rounds: Count = 20
    ) -> None:
        self.size, self.public, self.t, self.sigma, self.rounds = size, public, t, sigma, rounds

    def run(self, cfg: DictConfig) -> Answer:
        """Attack, or give the record of this configuration if there is one."""
        profile: Profile = config.instantiate(cfg.profile, "profile")
        data = loaded(cfg, profile)
        with Run(cfg) as run:
            record = run.finished()
            if record is None:
                scene = scene_of(data, profile, self.size, self.public, self.t, self.sigma, self.rounds, cfg.seed)
                found = [*on_triangle_wad(scene), *on_fed_wad(scene)]
                write_atomically(run.directory / "attacks.png", picture(scene, found, data.shape))
                privacy = {"epsilon": None, "headline": "No ε covers what these protocols send."}
                metrics = {"records": len(scene.first.x), "attacks": [outcome.row() for outcome in found]}
                record = run.finish(metrics, privacy, facts(data), {"pictures": "attacks.png"})
            answer = {key: getattr(record, key) for key in ("config", "metrics", "privacy", "provenance")}
            answer["files"] = {name: str(run.directory / file) for name, file in record.files.items()}
            rows = record.metrics["attacks"]
            return Answer(answer, lambda console: _show(console, rows, answer["files"]["pictures"]))


def _show(console: Console, rows: list[dict[str, Any]], where: str) -> None:
    table = Table(title="What is recovered of the first party's records", title_justify="left")
    for name in ("protocol", "seen by", "attack", "rows", "max error", "PSNR dB", "more"):
        table.add_column(name, overflow="fold")
    for row in rows:
        more = [f"{key} {row[key]:.3g}" for key in row if key.startswith(("label", "linked"))]
        numbers = (f"{100 * row['rows']:.1f}%", f"{row['max_error']:.1e}", f"{row['psnr']:.1f}")
        table.add_row(row["protocol"], row["seen_by"], row["attack"], *numbers, ", ".join(more))
    console.print(table)
    console.print(f"pictures: {where}", highlight=False)
