"""When the kernels are used, and that they compute what their twins do (interpreted, in a process of its own)."""

import subprocess
import sys
from pathlib import Path

import torch

from dpot.transport import kernels


def test_kernels_agree_with_their_twins_in_tritons_interpreter(interpreted):
    interpreted(Path(__file__).with_name("interpreted_kernels.py"))


def test_importing_the_kernels_does_not_import_triton():
    code = "import sys, dpot.transport; sys.exit('triton' in sys.modules or 'ot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_cpu_and_double_precision_take_the_twins():
    x = torch.zeros(1, 8, 3)
    assert not kernels.fits_sinkhorn(x, x)
    assert not kernels.fits_sort(x, x)
