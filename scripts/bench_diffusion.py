"""One gradient per image of the diffusion model, in three ways: equal, and how fast each is.

    python scripts/bench_diffusion.py --out results/bench

The ways: Opacus' hooks (a row for every noisy copy, averaged afterwards), torch.func's vmap of grad, and our layers
that contract copies and positions together (dpot/models/per_image.py). All are held against a loop over the images. A
step is forward, backward and the clipped sum of the rows; its FLOPs are counted as three times the forward pass,
whatever a way really does. Each way is measured at every size of micro-batch that fits the memory, captured in a CUDA
graph where it can be; --tune also tries tiles of our kernels, --profile lists where the time goes.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.utils.flop_counter import FlopCounterMode

from dpot import kernels
from dpot.disk import write_atomically
from dpot.graphs import recording
from dpot.models.diffusion import Diffusion, Examples
from dpot.models.per_image import Conv, Dense, Norm, one_row_per_image, use_fused
from dpot.precision import fast_products
from dpot.record import commit_of_code, device_name
from dpot.training.sanitise import sum_of_clipped

SHAPES = {"28×28": ((1, 28, 28), (2, 2)), "32×32": ((3, 32, 32), (2, 4))}
Rows = Callable[[Diffusion, Examples, int], Tensor]  # (model, examples, images) → (images, parameters)


def parameters(model: Diffusion) -> int:
    """How many numbers a row has."""
    return sum(p.numel() for p in model.parameters())


def flat(gradients: Any) -> Tensor:
    """The rows of all parameters side by side."""
    return torch.cat([g.flatten(1) for g in gradients], 1)


def by_loop(model: Diffusion, given: Examples, images: int) -> Tensor:
    """One backward pass after the other: what the others must equal."""
    errors = model.errors(given).view(images, -1).mean(1)
    found = [torch.autograd.grad(e, list(model.parameters()), retain_graph=True) for e in errors]
    return torch.stack([torch.cat([g.flatten() for g in one]) for one in found])


def by_rows(model: Diffusion, given: Examples, images: int) -> Tensor:
    """Our layers."""
    rows = given.inputs.new_empty(images, parameters(model), dtype=torch.float32)
    with one_row_per_image(model, rows):
        model.errors(given).view(images, -1).mean(1).sum().backward()
    return rows


def by_vmap(model: Diffusion, given: Examples, images: int) -> Tensor:
    """torch.func, an image with all its copies at a time."""
    use_fused(model, False)
    weights = {name: p.detach() for name, p in model.network.named_parameters()}
    half = model.in_half and given.inputs.is_cuda
    inputs = given.inputs.to(torch.bfloat16) if half else given.inputs

    def loss(weights: dict[str, Tensor], x: Tensor, level: Tensor, told: Tensor, target: Tensor) -> Tensor:
        found = functional_call(model.network, weights, (x, level, told))
        return (found.float() - target).square().mean()

    columns = (one.unflatten(0, (images, -1)) for one in (inputs, *given[1:]))
    try:
        return flat(vmap(grad(loss), in_dims=(None, 0, 0, 0, 0))(weights, *columns).values())
    finally:
        use_fused(model, True)


def by_opacus(model: Diffusion, given: Examples, images: int) -> Tensor:
    """Opacus' hooks on the same network; its samplers for matrices and convolutions, ours for the norm."""
    from opacus import GradSampleModule
    from opacus.grad_sample import register_grad_sampler
    from opacus.grad_sample.conv import compute_conv_grad_sample
    from opacus.grad_sample.linear import compute_linear_grad_sample

    def norm_grad_sample(layer: Norm, seen: list[Tensor], slope: Tensor) -> dict[Any, Tensor]:
        x = seen[0] if len(seen) < 2 or seen[1] is None else seen[0] + seen[1][:, :, None, None].to(seen[0].dtype)
        normal = torch.nn.functional.group_norm(x, layer.groups, eps=layer.eps)
        if layer.act:
            value = normal * layer.weight[:, None, None].to(x.dtype) + layer.bias[:, None, None].to(x.dtype)
            gate = torch.sigmoid(value)
            slope = slope * gate * (1 + value * (1 - gate))
        return {layer.weight: (slope * normal).sum((2, 3)), layer.bias: slope.sum((2, 3))}

    def conv_grad_sample(layer: Conv, seen: list[Tensor], slope: Tensor) -> dict[Any, Tensor]:
        sizes = layer.in_channels, layer.out_channels, layer.kernel_size
        plain = torch.nn.Conv2d(*sizes, padding=layer.padding, bias=False, device="meta")  # type: ignore[arg-type]
        plain.weight, plain.bias = layer.weight, layer.bias  # Opacus asks for this very class
        return compute_conv_grad_sample(plain, [seen[0].contiguous()], slope)  # type: ignore[no-any-return]

    register_grad_sampler(Conv)(conv_grad_sample)
    register_grad_sampler(Dense)(compute_linear_grad_sample)
    register_grad_sampler(Norm)(norm_grad_sample)
    use_fused(model, False)
    watched = GradSampleModule(model.network, batch_first=True, loss_reduction="sum", strict=False)
    try:
        (model.errors(given).view(images, -1).mean(1)).sum().backward()
        return flat(p.grad_sample.unflatten(0, (images, -1)).sum(1) for p in model.parameters())  # type: ignore[operator]
    finally:
        watched.remove_hooks()
        watched.del_grad_sample()
        for p in model.parameters():
            p.grad = None
        use_fused(model, True)


WAYS: dict[str, Rows] = {"Opacus": by_opacus, "vmap": by_vmap, "rows": by_rows}


def make(name: str, device: torch.device, bfloat16: bool) -> Diffusion:
    """A network whose last convolutions are not zero, so that no gradient is."""
    torch.manual_seed(0)
    shape, multipliers = SHAPES[name]
    model = Diffusion(10, shape, width=32, multipliers=multipliers, blocks=2, patch=1, bfloat16=bfloat16)
    with torch.no_grad():
        for p in model.parameters():
            if not p.any():
                p.normal_(std=0.02)
    return model.to(device)


def examples(model: Diffusion, images: int, copies: int, device: torch.device) -> Examples:
    """Smooth images: what a step costs does not depend on what they show."""
    random = torch.Generator(device).manual_seed(0)
    small = torch.rand(images, model.shape[0], 4, 4, generator=random, device=device)
    shown = torch.nn.functional.interpolate(small, size=model.shape[1:], mode="bilinear") * 2 - 1
    labels = torch.arange(images, device=device) % model.classes
    return model.examples(shown, labels, model.chance(images, copies, random))


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest relative error of a row, in its norm."""
    return float(((found.double() - expected.double()).norm(dim=1) / expected.double().norm(dim=1)).max())


def equality(name: str, device: torch.device) -> dict[str, Any]:
    """Each way against the loop: in single precision, and in bfloat16 against single precision."""
    facts: dict[str, Any] = {}
    exact = make(name, device, bfloat16=False)
    given = examples(exact, 3, 4, device)
    expected = by_loop(exact, given, 3)
    for way, rows in WAYS.items():
        try:
            facts[way] = {"single": distance(rows(exact, given, 3), expected)}
            if device.type == "cuda":
                facts[way]["bfloat16"] = distance(rows(make(name, device, bfloat16=True), given, 3), expected)
        except Exception as error:
            facts[way] = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
        print(name, "equality", way, facts[way], flush=True)
    return facts


def forward_flops(model: Diffusion, device: torch.device) -> int:
    """Of one noisy copy."""
    given = examples(model, 1, 1, device)
    use_fused(model, False)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.errors(given)
    use_fused(model, True)
    return int(counter.get_total_flops())


def timed(step: Callable[[], Any], device: torch.device, seconds: float) -> tuple[float, str]:
    """Seconds a call, and how it was run."""
    for _ in range(3):
        step()
    how, call = "eager", step
    if device.type == "cuda":
        torch.cuda.synchronize()
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        try:
            with recording(graph, stream=stream):
                step()
            how, call = "captured", graph.replay
        except Exception as error:
            torch.cuda.synchronize()
            print("not captured:", type(error).__name__, str(error).splitlines()[0][:160], flush=True)
        call()
        torch.cuda.synchronize()
    began, done = time.perf_counter(), 0
    while done < 2 or time.perf_counter() - began < seconds:
        call()
        done += 1
        if device.type == "cuda":
            torch.cuda.synchronize()
    return (time.perf_counter() - began) / done, how


def speeds(name: str, sizes: list[int], copies: int, device: torch.device, seconds: float) -> list[dict[str, Any]]:
    """Each way at each size of micro-batch, and for comparison the forward pass and the batch's own gradient."""
    model = make(name, device, bfloat16=True)
    flops = forward_flops(model, device)
    found = []

    def forward(images: int, given: Examples) -> Any:
        with torch.no_grad():
            return model.errors(given)

    def batch(images: int, given: Examples) -> Any:
        return torch.autograd.grad(model.errors(given).sum(), list(model.parameters()))

    steps: dict[str, tuple[Callable[[int, Examples], Any], int]] = {
        "forward alone": (forward, 1),
        "no rows": (batch, 3),
    }
    for way, rows in WAYS.items():

        def clipped(images: int, given: Examples, rows: Rows = rows) -> Any:
            return sum_of_clipped({"all": rows(model, given, images)}, 1e-3)

        steps[way] = (clipped, 3)
    for way, (step, passes) in steps.items():
        for size in sizes:
            try:
                given = examples(model, size, copies, device)
                if device.type == "cuda":
                    torch.cuda.reset_peak_memory_stats()
                took, how = timed(functools.partial(step, size, given), device, seconds)
            except Exception as error:
                print(name, way, size, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}", flush=True)
                if device.type == "cuda":
                    torch.cuda.empty_cache()
                break
            row = {"network": name, "way": way, "images": size, "copies": copies, "run": how, "seconds": took}
            row["tflops"] = passes * flops * size * copies / took / 1e12
            if device.type == "cuda":
                row["gigabytes"] = torch.cuda.max_memory_allocated() / 1e9
                torch.cuda.empty_cache()
            found.append(row)
            print(json.dumps(row, ensure_ascii=False), flush=True)
    return found


def tune(device: torch.device, seconds: float) -> list[dict[str, Any]]:
    """The kernels' own tiles, at the sizes that take most of a step."""
    found: list[dict[str, Any]] = []
    for inputs, outputs, side, size in ((64, 64, 3, 28), (128, 64, 3, 28), (64, 64, 3, 14), (64, 64, 1, 28)):
        found += tune_rows(device, seconds, inputs, outputs, side, size)
    x, norm = pixels(64, 28, device), kernels.group_norm
    weight, shift = torch.ones(64, device=device), torch.zeros(len(x), 64, device=device)
    before = norm.BLOCK, norm.WARPS
    for norm.BLOCK, norm.WARPS in itertools.product((32, 64, 128), (2, 4, 8)):
        given = (x, shift, weight, weight)
        _, mean, inverse = norm.forward(*given, 4, 1e-5, True)
        forth, _ = timed(functools.partial(norm.forward, *given, 4, 1e-5, True), device, seconds)
        back, _ = timed(functools.partial(norm.backward, *given, mean, inverse, x, 4, True), device, seconds)
        terabytes = x.numel() * 2 / 1e12
        row = {"norm": [norm.BLOCK, norm.WARPS], "forward": 2 * terabytes / forth, "backward": 3 * terabytes / back}
        found.append(row)
        print("tune, TB/s", json.dumps(row), flush=True)
    norm.BLOCK, norm.WARPS = before
    return found


def pixels(channels: int, size: int, device: torch.device) -> Tensor:
    """Activations of 64 images with 32 copies each."""
    made = torch.randn(64 * 32, channels, size, size, device=device, dtype=torch.bfloat16)
    return made.contiguous(memory_format=torch.channels_last)


def tune_rows(device: torch.device, seconds: float, inputs: int, outputs: int, side: int, size: int) -> list[Any]:
    """The kernel of rows of one convolution, and the library's own convolution beside it."""
    x, slope = pixels(inputs, size, device), pixels(outputs, size, device)
    rows = torch.empty(64, outputs, inputs, side, side, device=device)
    flops, module, found = 2 * x.numel() * outputs * side * side, kernels.image_rows, []
    before = module.BLOCK, module.WARPS, module.STAGES, module.PROGRAMS
    for setting in itertools.product((64, 128), (4, 8), (3, 4), (256, 1024, 4096)):
        module.BLOCK, module.WARPS, module.STAGES, module.PROGRAMS = setting
        try:
            took, _ = timed(functools.partial(module.conv_rows, x, slope, rows), device, seconds)
        except Exception as error:
            print("tune", setting, type(error).__name__, str(error).splitlines()[0][:120], flush=True)
            continue
        found.append({"conv": [inputs, outputs, side, size], "setting": setting, "tflops": flops / took / 1e12})
    module.BLOCK, module.WARPS, module.STAGES, module.PROGRAMS = before
    found.sort(key=lambda row: -row["tflops"])
    print("tune, best of (block, warps, stages, programs):", *map(json.dumps, found[:4]), sep="\n  ", flush=True)
    weight = rows[0].bfloat16().contiguous(memory_format=torch.channels_last)
    took, _ = timed(functools.partial(torch.nn.functional.conv2d, x, weight, padding=side // 2), device, seconds)
    print("  the library's convolution forwards:", round(flops / took / 1e12), "TFLOP/s", flush=True)
    return found


def profile(name: str, images: int, copies: int, device: torch.device) -> str:
    """Where the time of a step by our layers goes."""
    model = make(name, device, bfloat16=True)
    given = examples(model, images, copies, device)

    def step() -> Any:
        return sum_of_clipped({"all": by_rows(model, given, images)}, 1e-3)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as found:
        step()
        torch.cuda.synchronize()
    return str(found.key_averages().table(sort_by="self_cuda_time_total", row_limit=40, max_name_column_width=90))


def markdown(facts: dict[str, Any]) -> str:
    """The measurements as tables."""
    lines = ["# One gradient per image of a diffusion model, in three ways", ""]
    lines += [f"{facts['device']}, torch {facts['torch']}, commit {str(facts['commit'])[:12]}", ""]
    lines += ["| network | way | images × copies | run | TFLOP/s | GB |", "|---|---|---|---|---|---|"]
    for row in facts["speeds"]:
        memory = f"{row['gigabytes']:.1f}" if "gigabytes" in row else "–"
        size = f"{row['images']} × {row['copies']}"
        lines.append(f"| {row['network']} | {row['way']} | {size} | {row['run']} | {row['tflops']:.4g} | {memory} |")
    lines += ["", "Largest relative error of a row against a loop over the images:", ""]
    lines += ["| network | way | single precision | bfloat16 |", "|---|---|---|---|"]
    for name, ways in facts["equality"].items():
        for way, found in ways.items():
            shown = [
                f"{found[kind]:.1e}" if kind in found else found.get("failed", "–") for kind in ("single", "bfloat16")
            ]
            lines.append(f"| {name} | {way} | {shown[0]} | {shown[1]} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "results" / "bench")
    parser.add_argument("--networks", default="28×28,32×32")
    parser.add_argument("--images", default="8,32,64,128", help="sizes of micro-batch, in turn until memory ends")
    parser.add_argument("--copies", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1.0, help="per measurement")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    names, sizes = options.networks.split(","), [int(n) for n in options.images.split(",")]
    try:
        import opacus  # noqa: F401
    except ImportError:
        print("Opacus is not installed here: its hooks are left out")
        del WAYS["Opacus"]
    commit, dirty = commit_of_code()
    facts: dict[str, Any] = {"device": device_name(str(device)), "torch": torch.__version__}
    facts |= {"python": platform.python_version(), "commit": commit, "dirty": dirty, "equality": {}, "speeds": []}

    def keep() -> None:
        write_atomically(options.out / f"diffusion.{device.type}.json", json.dumps(facts, indent=1) + "\n")
        write_atomically(options.out / f"diffusion.{device.type}.md", markdown(facts))

    options.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        facts["equality"][name] = equality(name, device)
        keep()
    with fast_products():
        if options.profile and device.type == "cuda":
            for name in names:
                text = profile(name, min(64, max(sizes)), options.copies, device)
                print(text, flush=True)
                write_atomically(options.out / f"diffusion.profile.{name[:2]}.txt", text)
        for name in names:
            facts["speeds"] += speeds(name, sizes, options.copies, device, options.seconds)
            keep()
        if options.tune and device.type == "cuda":
            facts["tune"] = tune(device, 0.1)
            keep()


if __name__ == "__main__":
    main()
