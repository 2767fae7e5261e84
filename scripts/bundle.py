"""Pack the suite for a machine without a network: code, packages beyond torch, data, weights.

    make bundle PYTHON=3.12 DATA=mnist,fashion_mnist WEIGHTS=inception

writes bundle/ (ignored by git). Copy it to a machine that has Python, torch, torchvision, scipy, scikit-learn,
pandas and matplotlib, and run `bundle/dpot task=...` there. The commit id travels along, so records made there say
which code made them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from dpot.record import commit_of_code

REPOSITORY = Path(__file__).resolve().parents[1]
# Wheels are unpacked without their dependencies: what torch and scikit-learn bring along is there already.
PACKAGES = {
    "core": ["hydra-core", "omegaconf", "antlr4-python3-runtime", "rich", "markdown-it-py", "mdurl"],
    "privacy": ["autodp", "dp-accounting", "absl-py", "attrs", "dm-tree", "wrapt"],
    "transport": ["pot", "geomloss"],
    "learning": ["pytorch-fid", "safetensors", "filelock", "packaging"],
    "test": ["pytest", "iniconfig", "pluggy", "hypothesis", "sortedcontainers", "mpmath", "opacus", "opt-einsum"],
    "tracking": ["wandb"],
    "tables": ["pyarrow"],
}
DEFAULT = "core,privacy,transport,learning,test"
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux_2_5")
CODE = ("conf", "dpot", "experiments", "results/published", "results/bench", "scripts", "tests", "pyproject.toml")
RUNNER = """#!/bin/sh
# runs dpot from this folder alone: bundle/dpot task=...
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH="$here/code:$here/site" DPOT_DATA="${DPOT_DATA:-$here/data}"
exec "${PYTHON:-python3}" -P -m dpot "$@" # -P: not the code of a clone that one stands in
"""


def pinned(package: str) -> str:
    """The version installed here: what was tested is what is packed."""
    try:
        return f"{package}=={metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return package


def install(packages: list[str], target: Path, python: str, machine: str) -> None:
    """Unpack wheels for that Python; a package that has only a source archive must be pure Python."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--upgrade",
        "--no-compile",
        "--target",
        str(target),
    ]
    wheel = ["--python-version", python, "--implementation", "cp", "--only-binary=:all:"]
    wheel += [part for platform in PLATFORMS for part in ("--platform", f"{platform}_{machine}")]
    wheel += ["--platform", "any"]
    for package in packages:
        done = subprocess.run([*pip, *wheel, package], capture_output=True, text=True, check=False)
        if done.returncode:
            done = subprocess.run([*pip, package], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"bundle: {package} cannot be had for Python {python}: {done.stderr.strip().splitlines()[-1]}")


def slim(site: Path, machine: str) -> None:
    """Take out what is not needed to run: tests, caches, and debug symbols (170 MB in POT) if a strip is at hand."""
    for waste in (*site.rglob("tests"), *site.rglob("__pycache__"), site / "bin"):
        if waste.is_dir():
            shutil.rmtree(waste, ignore_errors=True)
    tool = next(filter(shutil.which, (f"{machine}-linux-gnu-strip", "llvm-strip", "strip")), None)
    for library in site.rglob("*.so") if tool else ():
        subprocess.run([str(tool), "--strip-unneeded", str(library)], capture_output=True, check=False)


def copy_code(target: Path) -> None:
    """The files git tracks (and new ones it does not ignore), so that nothing private slips in."""
    listed = subprocess.run(
        ["git", "-C", str(REPOSITORY), "ls-files", "-co", "--exclude-standard", "-z", "--", *CODE],
        capture_output=True,
        check=True,
    ).stdout.decode()
    for name in filter(None, listed.split("\0")):
        destination = target / name
        if (REPOSITORY / name).exists():
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, destination)
    commit, dirty = commit_of_code()
    (target / "COMMIT").write_text(f"{commit} {'dirty' if dirty else 'clean'}\n")


def copy_data(names: list[str], target: Path) -> None:
    """Whole folders of the data root."""
    if not names:
        return
    if "DPOT_DATA" not in os.environ:
        sys.exit("bundle: set DPOT_DATA to the folder that holds the data sets, or choose DATA= WEIGHTS=")
    root = Path(os.environ["DPOT_DATA"])
    for name in names:
        if not (root / name).is_dir():
            here = ", ".join(sorted(p.name for p in root.iterdir() if p.is_dir()))
            sys.exit(f"bundle: {name} is not in DPOT_DATA; there are: {here}")
        shutil.copytree(root / name, target / name, dirs_exist_ok=True, copy_function=shutil.copy)


def megabytes(path: Path) -> float:
    """What lies below a folder."""
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) / 2**20


def main() -> None:
    """Build the folder and print what each part weighs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.12", help="Python version of the other machine")
    parser.add_argument("--machine", default="x86_64", help="x86_64 or aarch64")
    parser.add_argument("--packages", default=DEFAULT, help=f"of {', '.join(PACKAGES)}")
    parser.add_argument("--data", default="", help="folders of DPOT_DATA, comma separated")
    parser.add_argument("--weights", default="", help="'inception' for the FID network")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "bundle")
    parser.add_argument("--cap", type=float, default=60, help="warn above so many MB")
    options = parser.parse_args()
    groups = [g for g in options.packages.split(",") if g]
    unknown = sorted(set(groups) - set(PACKAGES))
    if unknown:
        parser.error(f"no package group {unknown[0]}; choose from {', '.join(PACKAGES)}")
    for part in ("code", "data"):
        shutil.rmtree(options.out / part, ignore_errors=True)
    site = options.out / "site"
    packages = [pinned(p) for g in groups for p in PACKAGES[g]]
    wanted = " ".join(packages) + f" {options.python} {options.machine}"
    note = options.out / "site.txt"
    if not note.exists() or note.read_text() != wanted:  # the packages change seldom, the code often
        shutil.rmtree(site, ignore_errors=True)
        install(packages, site, options.python, options.machine)
        slim(site, options.machine)
        note.write_text(wanted)
    copy_code(options.out / "code")
    names = [d for d in (*options.data.split(","), *options.weights.split(",")) if d]
    copy_data(names, options.out / "data")
    runner = options.out / "dpot"
    runner.write_text(RUNNER)
    runner.chmod(0o755)
    for part in ("code", "site", *(f"data/{n}" for n in names)):
        print(f"{megabytes(options.out / part):8.1f} MB  {part}")
    total = megabytes(options.out)
    print(f"{total:8.1f} MB  in all, in {options.out.name}/ for Python {options.python}")
    if total > options.cap:
        print(f"bundle: more than {options.cap:g} MB; leave something out with DATA=, WEIGHTS=, ARGS='--packages ...'")


if __name__ == "__main__":
    main()
