"""The layers' kernels compute what torch's own layers do (interpreted, in a process of their own)."""

from pathlib import Path


def test_kernels_agree_with_torchs_layers_in_tritons_interpreter(interpreted):
    interpreted(*sorted(Path(__file__).parent.glob("interpreted_*.py")))
