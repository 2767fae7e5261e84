"""Profiles: what is left to the machine is settled, what the user said stays."""

import pytest

from dpot.composing import compose_config
from dpot.errors import UsageError
from dpot.profiles import settle


def test_auto_is_quick_without_cuda_and_keeps_what_was_said():
    cfg = compose_config(["device=cpu", "profile.steps=7"])
    settle(cfg)
    assert (cfg.profile.name, cfg.profile.steps, cfg.profile.fid) == ("quick", 7, False)
    assert cfg.profile.samples == compose_config(["profile=quick"]).profile.samples


def test_a_named_profile_is_left_alone():
    cfg = compose_config(["device=cpu", "profile=paper"])
    settle(cfg)
    assert cfg.profile.name == "paper"


def test_a_missing_device_is_said():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(UsageError, match="device=cpu"):
        settle(compose_config(["device=cuda"]))
