import contextlib
import gc
from unittest.mock import Mock

import pytest
import torch

from dpot.graphs import recording


class Looped:
    """Garbage that only the collector finds, holding something."""

    def __init__(self, held):
        self.held, self.itself = held, self


@pytest.mark.parametrize("collects", [True, False])
def test_nothing_is_collected_during_a_recording_and_all_is_as_before_it(monkeypatch, collects):
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **options: contextlib.nullcontext())
    (gc.enable if collects else gc.disable)()
    try:
        with contextlib.suppress(RuntimeError), recording(Mock()):
            assert not gc.isenabled()
            raise RuntimeError("a recording that fails")
        assert gc.isenabled() == collects
    finally:
        gc.enable()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_old_graph_that_becomes_garbage_does_not_spoil_a_recording():
    x = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    old, new = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with recording(old):
        x.add_(1)
    Looped(old)
    del old
    with recording(new):
        rubbish = [Looped(i) for i in range(200_000)]  # far more than a collector that is on lets pass
        del rubbish
        x.add_(1)
    new.replay()
    assert x == 1
