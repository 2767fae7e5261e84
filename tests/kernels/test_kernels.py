"""When the kernels are used, and that they compute what their twins do (interpreted, in processes of their own).

The files interpreted_*.py run with TRITON_INTERPRET=1, a switch that must be set before Triton loads.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dpot import kernels
from dpot.models.layers import NarrowConv2d
from dpot.transport import sinkhorn, sliced

HERE = Path(__file__).parent


@pytest.mark.parametrize("half", [0, 1])  # in two processes: each loads torch and Triton once
def test_kernels_agree_with_plain_torch_in_tritons_interpreter(interpreted, half):
    interpreted(*(HERE / f"interpreted_{name}.py" for name in [*kernels.__all__, "dp_sinkhorn"][half::2]))


def test_every_kernel_is_behind_the_door():
    files = {path.stem for path in Path(kernels.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(kernels.__all__)


def test_triton_is_imported_at_the_first_launch_and_not_before():
    rooms = "dpot.transport, dpot.training, dpot.models.sketch_dcgan, dpot.evaluation.classifiers"
    code = f"import sys, {rooms}; sys.exit('triton' in sys.modules or 'ot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_tensors_of_a_cpu_take_the_twins():
    x = torch.zeros(1, 8, 3)
    assert not kernels.run_on(x)
    assert not sinkhorn.fits_kernel(x, x)
    assert not sliced.fits_kernel(x, x)
    assert not NarrowConv2d(8, 1, 3)._takes(x)


def test_what_is_no_kernel_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'sampler'"):
        _ = kernels.sampler
