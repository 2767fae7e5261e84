"""Try a built wheel as a user would: in an environment of its own, in a folder outside any clone.

    make wheel

The environment holds the wheel alone; the libraries that it needs are those of the interpreter that runs this script.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
PACKED = {"conf/": "dpot/conf/", "experiments/": "dpot/experiments/", "results/published/": "dpot/results/published/"}
CALIBRATE = "task=calibrate task.d=784 task.k=1000 task.records=60000 task.batch=100 task.steps=60100"
SYNTHESIZE = "task=synthesize dataset=table dataset.path=people.csv dataset.label=income profile=smoke"


def clean() -> dict[str, str]:
    """The environment's variables without those that could lead to a clone or its data."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("DPOT_", "PYTHON"))}


class Environment:
    """A virtual environment with the wheel in it, and an empty folder to call it from."""

    def __init__(self, place: Path, wheel: Path) -> None:
        venv.create(place / "env", with_pip=False)
        self.python, self.folder = place / "env" / "bin" / "python", place / "away"
        self.folder.mkdir()
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "-q", "--no-deps", "--no-index"]
        subprocess.run([*pip, str(wheel)], env=clean(), check=True)
        # Folders named in a .pth file come after the environment's own, so that its dpot is the one that is found.
        site = self.run("-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").stdout.strip()
        (Path(site) / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call the environment's Python in the empty folder; what fails is shown."""
        command = [str(self.python), *arguments]
        done = subprocess.run(command, cwd=self.folder, env=clean(), capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"try_wheel: {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def dpot(self, words: str) -> tuple[dict[str, Any], str]:
        """The answer of a dpot command as JSON, and what it said on stderr."""
        print(f"dpot {words}", flush=True)
        done = self.run(str(self.python.parent / "dpot"), *words.split(), "output=json")
        return json.loads(done.stdout), done.stderr


def contents_are_complete(wheel: Path) -> None:
    """Every tracked file of the package and of the packed folders is in the wheel."""
    listed = subprocess.run(
        ["git", "-C", str(REPOSITORY), "ls-files", "-z", "--", "dpot", *PACKED], capture_output=True, check=True
    ).stdout.decode()
    names = [name for name in listed.split("\0") if name and (REPOSITORY / name).exists()]
    expected = {next((new + n.removeprefix(old) for old, new in PACKED.items() if n.startswith(old)), n) for n in names}
    missing = expected - set(zipfile.ZipFile(wheel).namelist())
    if missing:
        sys.exit(f"try_wheel: not in the wheel: {', '.join(sorted(missing))}")
    print(f"{wheel.name}: {len(expected)} files, all there")


def people(path: Path) -> None:
    """A small table of made-up people, where older ones earn more."""
    draw = random.Random(0)
    lines = ["age,pay,income"]
    for _ in range(300):
        age = draw.randint(18, 80)
        pay = min(max(age * 500 + draw.gauss(0, 3000), 0), 100_000)
        lines.append(f"{age},{pay:.0f},{'high' if pay > 25_000 else 'low'}")
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Build the environment, run the commands, check their answers."""
    wheel = next(Path(sys.argv[1]).resolve().glob("dpot-*.whl"))
    contents_are_complete(wheel)
    with tempfile.TemporaryDirectory() as place:
        environment = Environment(Path(place), wheel)
        where = environment.run("-c", "import dpot; from dpot import Synthesizer; print(dpot.__file__)").stdout.strip()
        assert Path(where).is_relative_to(place), where
        answer, _ = environment.dpot(CALIBRATE)
        assert answer["sigma"] > 0, answer
        people(environment.folder / "people.csv")
        answer, _ = environment.dpot(f"{SYNTHESIZE} dataset.bounds={{age:[0,100],pay:[0,1e5]}}")
        assert all((environment.folder / file).is_file() for file in answer["files"].values()), answer["files"]
        assert (answer["provenance"]["commit"], answer["privacy"]["epsilon"] <= 1) == (None, True), answer
        answer, _ = environment.dpot("task=reproduce paper=dp_swd table=2 task.dry_run=true profile=smoke")
        assert answer["runs"], answer
        answer, said = environment.dpot("task=compare paper=dp_swd table=2")
        assert answer["cells"], answer
        assert "no committed results here" in said, said
        own = environment.folder / "settings" / "local" / "default.yaml"
        own.parent.mkdir(parents=True)
        own.write_text("# @package _global_\nseed: 3\n")
        command = str(environment.python.parent / "dpot")
        shown = environment.run(command, "--config-dir", "settings", "task=data", "--cfg", "job").stdout
        assert "seed: 3" in shown.splitlines(), shown
        answer, _ = environment.dpot("task=report")
        assert (environment.folder / answer["folder"] / "index.html").is_file(), answer
    print("the wheel works by itself")


if __name__ == "__main__":
    main()
