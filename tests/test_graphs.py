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
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_graphs_that_were_recorded_on_one_stream_do_not_write_to_the_same_scratch_memory():
    """torch hands out a stream again after 32 others. Each product below sums over parts kept in scratch memory."""
    shared, other = torch.cuda.Stream(), torch.cuda.Stream()
    rows = [torch.randn(64, 60_000, device="cuda") for _ in range(2)]
    products = [torch.empty(64, 64, device="cuda") for _ in range(2)]
    graphs = [torch.cuda.CUDAGraph() for _ in range(2)]

    def twenty(number):
        for _ in range(20):
            torch.mm(rows[number], rows[number].T, out=products[number])

    for number in range(2):
        with torch.cuda.stream(shared):
            twenty(number)  # as a warm-up does
        torch.cuda.synchronize()
        with recording(graphs[number], stream=shared):
            twenty(number)
    wanted = [(x.double() @ x.T.double()).float() for x in rows]
    for _ in range(20):
        for graph, stream in zip(graphs, (shared, other), strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        for found, right in zip(products, wanted, strict=True):
            torch.testing.assert_close(found, right, rtol=1e-3, atol=1.0)
