"""What all tests share."""

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest
import torch
from hypothesis import settings

from dpot.kernels import has_triton

# A change must not fail to land by a chance find in code it did not touch; people's own runs go on searching.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

REPOSITORY = Path(__file__).resolve().parents[1]
NUMBERS = itertools.count()


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Workers run side by side: one thread each is faster than two that fight."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path_factory, monkeypatch):
    """What a test decodes and releases is known to no other test, nor to the account of somebody's data."""
    monkeypatch.setenv("DPOT_CACHE", str(tmp_path_factory.getbasetemp() / f"cache-{next(NUMBERS)}"))


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
    """Run the command line as a user does: a new process, its own output folder, no data unless asked for.

    `dpot(...)` waits for its end, `dpot.start(...)` does not.
    """
    said = (tmp_path / "stdout", tmp_path / "stderr")

    def start(*arguments, data=None, cwd=None):
        environment = {k: v for k, v in os.environ.items() if k not in ("DPOT_DATA", "DPOT_OUTPUT")}
        environment |= {"DPOT_OUTPUT": str(tmp_path / "outputs"), "OMP_NUM_THREADS": "1"}
        environment |= {"DPOT_DATA": str(data)} if data else {}
        return forked.start(["-m", "dpot", *arguments], *said, environment, cwd or REPOSITORY)

    def run(*arguments, data=None, check=False, timeout=120, cwd=None):
        process = start(*arguments, data=data, cwd=cwd)
        process.join(timeout)
        if process.is_alive():
            forked.kill(process)
            pytest.fail(f"dpot {' '.join(map(str, arguments))} did not end within {timeout} s")
        out, err = (path.read_text() for path in said)
        if check and process.exitcode:
            pytest.fail(f"dpot {' '.join(map(str, arguments))} gave {process.exitcode}:\n{err[-3000:]}")
        return subprocess.CompletedProcess(arguments, process.exitcode, out, err)

    run.start = start
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
