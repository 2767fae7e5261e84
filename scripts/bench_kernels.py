"""What each of our GPU kernels is worth in the steps that use it: the captured step with it and without it.

    python scripts/bench_kernels.py [names] [--out results/bench] [--limit 210]
    python scripts/bench_kernels.py --dry --out FOLDER       # two steps each on a CPU, to see that everything runs

A step is captured as a training captures it, once with all kernels, once more (the control: what two captures of the
same step differ by), once without each of the kernels that it launches, where the plain torch twin runs instead, and
once without any. Blocks of steps of all captures take turns, so that the clock of the device is the same for all. The
share is that of the time without the kernel. A kernel that wins 5% of no step is not worth its lines.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from count_operations import FACES, MNIST, SIZES, adaptation_engine, generation_problem, means
from profile_steps import sketch_engine
from torch import Tensor

from dpot import kernels
from dpot.disk import write_atomically
from dpot.evaluation.downstream import dp_sinkhorn_network, sinkhorn_network
from dpot.evaluation.stepping import TURN, Epochs
from dpot.methods.classify.base import Classification
from dpot.methods.classify.dp_sgd import DPSGD
from dpot.methods.generate.dp_cgan import DPCGAN
from dpot.methods.generate.dp_merf import DPMERF
from dpot.methods.generate.dp_sinkhorn import DPSinkhorn
from dpot.methods.generate.dp_swd import DPSWD
from dpot.models import layers
from dpot.models.cgan_mlp import CGANMLP
from dpot.models.dsw_generator import DSWGenerator
from dpot.models.merf_conv import MerfConv
from dpot.models.pooling import ConvPoolFirst, PooledConv2d
from dpot.models.sinkhorn_biggan import SinkhornBigGAN
from dpot.models.sinkhorn_dcgan import SinkhornDCGAN
from dpot.models.wdp_cnn import WdpCNN
from dpot.record import commit_of_code, device_name
from dpot.training import sanitise
from dpot.training.capture import MANY_STEPS, UNROLLED, choose
from dpot.training.engine import Engine
from dpot.transport import sinkhorn, sliced, solvers

WORTH = 0.05  # of a step
ROUNDS, BLOCK_SECONDS = 9, 0.03
EVERYTHING, CONTROL = "all of them", "none (control)"
FACES_64 = (9_000, (3, 64, 64), 1)
FEW = 640  # records of a dry run


def _no(*_: Any) -> bool:
    return False


def _plain_step(optimizer: torch.optim.Optimizer) -> None:
    type(optimizer).step(optimizer)


# By kernel: what to put in which place so that the plain twin runs. Named as their files in dpot/kernels.
SWITCHES: dict[str, tuple[Any, str, Any]] = {
    "adam": (kernels.adam, "spread_step", _plain_step),
    "blur": (layers.SmoothDoubling, "_takes", _no),
    "conv_pool": (ConvPoolFirst, "_takes", _no),
    "narrow_conv": (layers.NarrowConv2d, "_takes", _no),
    "norm_relu": (layers, "_fits", _no),
    "pool_relu": (PooledConv2d, "_takes", _no),
    "sanitise": (sanitise, "_fits", _no),
    "sinkhorn": (sinkhorn, "fits_kernel", _no),
    "sinkhorn: costs": (kernels.sinkhorn, "ground_cost", solvers.ground_cost),
    "sinkhorn: potentials": (kernels.sinkhorn, "annealed_potentials", solvers.annealed_potentials),
    "sinkhorn: gradient": (kernels.sinkhorn, "envelope_gradient", solvers.envelope_gradient),
    "sliced": (sliced, "fits_kernel", _no),
}


@contextlib.contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """Inside, the plain twins of these kernels run."""
    places = [SWITCHES[name] for name in names]
    before = [getattr(holder, attribute) for holder, attribute, _ in places]
    for holder, attribute, twin in places:
        setattr(holder, attribute, twin)
    try:
        yield
    finally:
        for (holder, attribute, _), original in zip(places, before, strict=True):
            setattr(holder, attribute, original)


@contextlib.contextmanager
def watched() -> Iterator[set[str]]:
    """The kernels of which something is launched inside."""
    from triton.runtime.jit import JITFunction

    seen: set[str] = set()
    plainly = JITFunction.__getitem__

    def noticed(kernel: Any, grid: Any) -> Any:
        seen.add(kernel.fn.__module__.rpartition(".")[2])
        return plainly(kernel, grid)

    JITFunction.__getitem__ = noticed
    try:
        yield seen
    finally:
        JITFunction.__getitem__ = plainly


class Way(NamedTuple):
    """One capture of a step: what comes before a block of n steps, the block, and how it is run."""

    open: Callable[[int], None]
    run: Callable[[int], None]
    mode: str


class Training:
    """The step of a training engine."""

    def __init__(self, engine: Engine) -> None:
        if engine.device.type == "cuda":
            engine.steps = max(engine.steps, MANY_STEPS)  # several steps a graph, as in every long training
        self.engine, self.device = engine, engine.device
        self.most = min([engine.log_every, *engine._every]) // UNROLLED * UNROLLED or 1

    def way(self, off: tuple[str, ...]) -> Way:
        """Captured without these kernels."""
        self.engine.open(1)
        with without(off):
            runner = choose("auto", [self.engine])

        def run(n: int) -> None:
            with without(off):
                runner.run(n)

        return Way(self.engine.open, run, runner.mode if runner.mode == "graph" else runner.reason)


class Judge:
    """The step of a classifier that judges; `most` steps are an epoch."""

    def __init__(self, network_for: Callable[..., Any], kind: str, device: torch.device, records: int) -> None:
        self.device, self._make = device, partial(network_for, kind, 784, (1, 28, 28), 10, device)
        self._x, self._y = torch.rand(records, 784, device=device), torch.arange(records, device=device) % 10
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        batch: int = self._make()[2]["batch"]
        self.most = max(1, records // batch // TURN * TURN)
        self._order = torch.arange(self.most * batch, device=device) % records

    def way(self, off: tuple[str, ...]) -> Way:
        """A network of its own, its steps captured in its first epochs."""
        network, optimiser, plan = self._make()

        def loss(rows: Tensor) -> Tensor:
            return F.cross_entropy(network(self._x.index_select(0, rows)), self._y.index_select(0, rows))

        epochs = Epochs(loss, optimiser, plan["batch"], self.device, fast=True)

        def run(n: int) -> None:
            with without(off), torch.cuda.stream(self._stream) if self._stream else contextlib.nullcontext():
                for _ in epochs.run(self._order):
                    pass

        run(self.most)
        captured = epochs.turn.graph is not None
        return Way(lambda n: None, run, "graph" if captured else "not captured")


def steps(device: torch.device, dry: bool) -> dict[str, Callable[[], Training | Judge]]:
    """What makes each measured step, those of the papers' long trainings first."""

    def generation(method: Any, model: Any, data: tuple[int, tuple[int, ...], int]) -> Training:
        data = (FEW, *data[1:]) if dry else data
        return Training(method.prepare(generation_problem(model, device, data)))

    def classification() -> Training:
        count = FEW if dry else 60_000
        network = WdpCNN((1, 28, 28), 10, "group").to(device)
        problem = Classification(
            images=torch.rand(count, 1, 28, 28, device=device), labels=torch.arange(count, device=device) % 10,
            network=network, accuracy=lambda: 0.0, batch=64 if dry else 1024, epochs=25, learning_rate=0.01,
            noise_multiplier=0.01, **means(device),
        )  # fmt: skip
        return Training(DPSGD().prepare(problem))

    noisy = {"noise_multiplier": 1.5}
    sketched = 10 * FEW if dry else MNIST[0]
    for_swd, for_sinkhorn = (16, 16) if dry else (256, 200)  # faces in a batch
    swd_of_faces = DPSWD(2000, for_swd, learning_rate=5e-4, labels="none", space="encoder", norm_bound=1, ema=0.999)
    sinkhorn_of_faces = DPSinkhorn(for_sinkhorn, l1=0, debias="none", blur=5, power=2, clip=0.1, **noisy)
    dcgan = partial(SinkhornDCGAN, bfloat16=True)
    biggan = partial(SinkhornBigGAN, bfloat16=True, channels=16 if dry else 256)
    made: dict[str, Callable[[], Training | Judge]] = {
        "DP-SWD, MNIST": partial(generation, DPSWD(ema=0.999), MerfConv, MNIST),
        "DP-Sinkhorn, MNIST, image gradient": partial(generation, DPSinkhorn(**noisy), dcgan, MNIST),
        "DP-Sinkhorn, MNIST, parameter gradient": partial(
            generation, DPSinkhorn(**noisy, perturb="parameters"), dcgan, MNIST
        ),
        "sketch, first fit": lambda: Training(sketch_engine(0, device, sketched)),
        "judge, DP-Sinkhorn's CNN": lambda: Judge(dp_sinkhorn_network, "cnn", device, FEW if dry else 54_000),
        "judge, DP-Sinkhorn's MLP": lambda: Judge(dp_sinkhorn_network, "mlp", device, FEW if dry else 54_000),
        "judge, the larger CNN": lambda: Judge(sinkhorn_network, "cnn", device, FEW if dry else 27_000),
    }
    for name in ("source training", "DP-SWD alignment", "SWD alignment", "DANN", "DP-DANN", "sketch's transport"):
        for data in SIZES:
            if (name, data) != ("sketch's transport", "office"):  # it only exists for images
                made[f"{name}, {data}"] = lambda name=name, data=data: Training(adaptation_engine(name, data, device))
    return made | {
        "DP-SWD, MNIST, private labels": partial(generation, DPSWD(labels="private", ema=0.999), MerfConv, MNIST),
        "DP-MERF, MNIST": partial(generation, DPMERF(), MerfConv, MNIST),
        "DP-CGAN, MNIST": partial(generation, DPCGAN(batch=64 if dry else 600, **noisy), CGANMLP, MNIST),
        "DP-SGD, MNIST": classification,
        "DP-Sinkhorn, CelebA": partial(generation, sinkhorn_of_faces, biggan, FACES),
        "DP-SWD, CelebA": partial(generation, swd_of_faces, DSWGenerator, FACES_64),
        "sketch, second fit": lambda: Training(sketch_engine(2, device, sketched)),
    }


def milliseconds(way: Way, n: int, device: torch.device) -> float:
    """Of a step, over a block of n."""
    way.open(n)
    _synchronise(device)
    began = time.perf_counter()
    way.run(n)
    _synchronise(device)
    return 1e3 * (time.perf_counter() - began) / n


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def measured(make: Callable[[], Training | Judge], device: torch.device, dry: bool) -> dict[str, Any]:
    """All captures of one step, and the milliseconds of each in every round."""
    trained = make()
    seen: set[str] = set()
    with contextlib.nullcontext(seen) if dry else watched() as seen:
        ways = {"": trained.way(())}
    used = [name for name in SWITCHES if name.partition(":")[0] in seen]
    if used:
        ways |= {CONTROL: trained.way(())} | {name: trained.way((name,)) for name in used}
        ways[EVERYTHING] = trained.way(tuple(used))
    if dry:
        ways[EVERYTHING] = trained.way(tuple(SWITCHES))
    n = 1 if dry else trained.most
    if isinstance(trained, Training) and not dry:
        milliseconds(ways[""], UNROLLED, device)
        wanted = BLOCK_SECONDS * 1e3 / milliseconds(ways[""], UNROLLED, device)
        n = max(UNROLLED, min(trained.most, int(wanted) // UNROLLED * UNROLLED))
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(1 if dry else ROUNDS + 1):
        for name, way in ways.items():
            spent = milliseconds(way, n, device)
            if number or dry:  # the first round warms up
                found[name].append(spent)
    return {"steps_in_a_block": n, "mode": {name: way.mode for name, way in ways.items()}, "milliseconds": found}


def rows_of(step: str, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per kernel: medians with and without it, and the share of the step that it wins."""
    found = facts["milliseconds"]
    on = found[""]
    rows = []
    for name, off in found.items():
        if name:
            shares = [(b - a) / b for a, b in zip(on, off, strict=True)]
            without_it, with_it = statistics.median(off), statistics.median(on)
            rows.append(
                {
                    "kernel": name, "step": step, "off_ms": without_it, "on_ms": with_it,
                    "off_range_ms": [min(off), max(off)], "on_range_ms": [min(on), max(on)],
                    "share": (without_it - with_it) / without_it, "share_range": [min(shares), max(shares)],
                    "captured": facts["mode"][name] == facts["mode"][""] == "graph",
                }
            )  # fmt: skip
    return rows


def markdown(facts: dict[str, Any]) -> str:
    """Verdicts by kernel, then every row."""
    lines = [
        "# Our kernels on and off in the steps that use them",
        "",
        f"{facts['device']}, torch {facts['torch']}, Triton {facts['triton']}, Python {facts['python']}, "
        f"commit {str(facts['commit'])[:12]}{' (changed since)' if facts['dirty'] else ''}; "
        f"{facts['seconds']:.0f} s in all",
        "",
        f"Medians of {facts['rounds']} blocks, smallest and largest in brackets; all captures of a step take turns. A "
        f"kernel is kept if it wins {WORTH:.0%} of a step. “{CONTROL}” is the same step captured twice, “{EVERYTHING}” "
        "the step with no kernel of ours. Parts of one file (sinkhorn: …) are switched off alone.",
        "",
        "| kernel | most it wins | in the step | verdict |",
        "|---|---|---|---|",
    ]
    rows = [row for row in facts["rows"] if row["kernel"] not in (CONTROL, EVERYTHING)]
    for name in SWITCHES:
        own = [row for row in rows if row["kernel"] == name]
        if own:
            best = max(own, key=lambda row: (row["captured"], row["share"]))
            lines.append(f"| {name} | {best['share']:.1%} | {best['step']} | {_verdict(best)} |")
        else:
            lines.append(f"| {name} | – | launched by no step that was measured | – |")
    lines += [
        "",
        "| kernel | step | ms off | ms on | share won | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for row in facts["rows"]:
        low, high = row["share_range"]
        share = f"{row['share']:.1%} ({low:.1%} to {high:.1%}){'' if row['captured'] else ', not captured'}"
        verdict = "–" if row["kernel"] in (CONTROL, EVERYTHING) else _verdict(row)
        lines.append(
            f"| {row['kernel']} | {row['step']} | {_spread(row, 'off')} | {_spread(row, 'on')} | {share} | {verdict} |"
        )
    idle = [step for step, one in facts["steps"].items() if len(one["milliseconds"]) == 1]  # nothing was switched off
    lines += ["", f"Steps without a kernel of ours: {'; '.join(idle) or 'none of those measured'}."]
    if facts["left_out"]:
        lines.append(f"Not measured: {'; '.join(facts['left_out'])}.")
    return "\n".join([*lines, ""])


def _verdict(row: dict[str, Any]) -> str:
    if not row["captured"]:
        return "not comparable"
    return "keep" if row["share"] >= WORTH else "go"


def _spread(row: dict[str, Any], which: str) -> str:
    low, high = row[f"{which}_range_ms"]
    return f"{row[f'{which}_ms']:.4f} ({low:.4f}–{high:.4f})"


def main() -> None:
    """Measure, print, write after every step, so that nothing is lost at a time limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only steps whose name holds one of these")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "results" / "bench")
    parser.add_argument("--limit", type=float, default=210, help="seconds after which no other step is begun")
    parser.add_argument("--dry", action="store_true", help="one step with and one without all kernels, on a CPU")
    options = parser.parse_args()
    began, dry = time.perf_counter(), options.dry
    if not dry and not torch.cuda.is_available():
        print("bench_kernels: there is no GPU here, and nothing to measure; --dry tries the script without one")
        return
    device = torch.device("cpu" if dry else "cuda:0")
    torch.manual_seed(0)
    commit, dirty = commit_of_code()
    facts: dict[str, Any] = {
        "device": device_name(str(device)), "torch": torch.__version__, "triton": _triton(),
        "python": platform.python_version(), "commit": commit, "dirty": dirty, "rounds": 1 if dry else ROUNDS,
        "left_out": [], "rows": [], "steps": {},
    }  # fmt: skip
    for name, make in steps(device, dry).items():
        if options.names and not any(part in name for part in options.names):
            continue
        at = time.perf_counter() - began
        try:
            if at > options.limit:
                raise TimeoutError(f"{at:.0f} s were over")
            facts["steps"][name] = measured(make, device, dry)
            facts["rows"] += rows_of(name, facts["steps"][name])
        except Exception as error:  # the other steps are worth measuring all the same; the table says what is missing
            message = str(error).strip().splitlines() or [""]
            facts["left_out"].append(f"{name} ({type(error).__name__}: {message[0]})")
        facts["seconds"] = time.perf_counter() - began
        print(f"{facts['seconds']:6.1f} s  {name}: {_summary(facts, name)}", flush=True)
        write_atomically(options.out / f"kernels.{device.type}.json", json.dumps(facts, indent=1) + "\n")
        write_atomically(options.out / f"kernels.{device.type}.md", markdown(facts))
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _summary(facts: dict[str, Any], step: str) -> str:
    if step not in facts["steps"]:
        return f"left out, {facts['left_out'][-1]}"
    on = statistics.median(facts["steps"][step]["milliseconds"][""])
    shares = ", ".join(f"{row['kernel']} {row['share']:.1%}" for row in facts["rows"] if row["step"] == step)
    return f"{on:.3f} ms; {shares or 'no kernel of ours'}"


def _triton() -> str:
    try:
        import triton
    except ImportError:
        return "none"
    version: str = triton.__version__
    return version


if __name__ == "__main__":
    main()
