"""When the kernels are used, and that they compute what their twins do (interpreted, in a process of its own)."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dpot.transport import kernels


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_agree_with_their_twins_in_tritons_interpreter():
    suite = Path(__file__).with_name("interpreted_kernels.py")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(suite)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    assert " passed" in run.stdout


def test_importing_the_kernels_does_not_import_triton():
    code = "import sys, dpot.transport; sys.exit('triton' in sys.modules or 'ot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_cpu_and_double_precision_take_the_twins():
    x = torch.zeros(1, 8, 3)
    assert not kernels.fits_sinkhorn(x, x)
    assert not kernels.fits_sort(x, x)
