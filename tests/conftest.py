"""What all tests share."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from dpot.kernels import has_triton

# A change must not fail to land by a chance find in code it did not touch; people's own runs go on searching.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Workers run side by side: one thread each is faster than two that fight."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def script():
    """The module of a file in scripts/, by its name."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, REPOSITORY / f"scripts/{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # a dataclass looks up its module there
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def dpot(tmp_path):
    """Run the command line as a user does: a new process, its own output folder, no data unless asked for."""

    def run(*arguments, data=None, check=False, timeout=300, cwd=None):
        environment = {k: v for k, v in os.environ.items() if k not in ("DPOT_DATA", "DPOT_OUTPUT")}
        environment |= {"DPOT_OUTPUT": str(tmp_path / "outputs"), "OMP_NUM_THREADS": "1"}
        environment |= {"DPOT_DATA": str(data)} if data else {}
        done = subprocess.run(
            [sys.executable, "-m", "dpot", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=cwd or REPOSITORY,
            env=environment,
            check=False,
        )
        if check and done.returncode:
            pytest.fail(f"dpot {' '.join(map(str, arguments))} gave {done.returncode}:\n{done.stderr[-3000:]}")
        return done

    return run


@pytest.fixture
def interpreted():
    """Run files of tests by Triton's interpreter, in a process of their own: the switch is read when Triton loads."""
    if not has_triton():
        pytest.skip("Triton is not installed")

    def run(*suites):
        environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, suites)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:]
        assert " passed" in done.stdout

    return run
