"""Releases on the disk: whatever is killed when, what lies there is never more than what the data set is charged."""

import os
import stat
import threading

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpot.errors import DataError
from dpot.methods import gate
from dpot.methods.gate import Gate
from dpot.methods.kept import Kept
from dpot.methods.sealed import read_sealed, seal
from dpot.privacy.budget import Budget
from dpot.privacy.events import Gaussian
from dpot.privacy.gaussian import gaussian_epsilon
from dpot.privacy.ledger import Ledger
from dpot.privacy.noise import NoiseSource
from dpot.privacy.spending import Spending

OPERATIONS = ("open", "replace", "unlink", "fsync", "chmod", "mkdir")
Z = 3.0


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """These files need not survive a power cut, nor name a commit."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(gate, "name_of_code", lambda: "a test")


class Killed(BaseException):
    """No handler of errors sees it."""


class Mortal:
    """A process that dies at its n-th file operation; a dead process cleans up nothing."""

    def __init__(self, monkeypatch, at, torn):
        self.left, self.torn, self.dead = at, torn, False
        for name in OPERATIONS:
            monkeypatch.setattr(os, name, self.mortal(name, getattr(os, name)))

    def mortal(self, name, real):
        def operation(*arguments, **more):
            self.left -= 1
            if self.dead or self.left < 0:
                if name == "fsync" and self.torn and not self.dead:
                    os.ftruncate(arguments[0], os.fstat(arguments[0]).st_size // 2)
                self.dead = True
                raise Killed(name)
            return real(*arguments, **more)

        return operation


def release(root, fresh=False):
    """What a run does."""
    account = Spending.of(root / "spending", "these data").account("owner", fresh)
    kept = Kept(root / "kept", "owner", account)
    if fresh:
        kept.forget()
    own = Gate(ledger=Ledger(1e-5), noise=NoiseSource(), kept=kept)
    opened = own.release(Gaussian(Z))
    return own.keep_release("x", [opened], lambda: {"y": opened(torch.zeros(50), 1.0)})["y"]


def on_disk(root):
    """Every noisy value that somebody who looks at the disk can read, in temporary files too."""
    found = set()
    for path in (root / "kept").glob("*"):
        content = path.read_bytes()
        if len(content) > 400:  # numbers begin after the header
            found.add(content[-400:])
        if path.suffix != ".lock":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return found


def counted(root):
    return Spending.of(root / "spending", "these data").releases()


def killed(root, at, torn, fresh=False):
    """Whether the run died before it was done."""
    with pytest.MonkeyPatch.context() as patched:
        Mortal(patched, at, torn)
        try:
            release(root, fresh)
        except Killed:
            return True
    return False


@pytest.mark.parametrize("torn", [False, True])
def test_killed_at_every_file_operation(tmp_path, torn):
    for at in range(60):
        root = tmp_path / str(at)
        died = killed(root, at, torn)
        seen = on_disk(root)
        assert len(seen) <= counted(root)
        value = release(root)
        seen |= on_disk(root)
        assert len(seen) <= counted(root) <= 2
        assert torch.equal(value, release(root))
        assert [path.suffix for path in sorted((root / "kept").iterdir())] == [".lock", ".safetensors"]
        if not died:
            assert counted(root) == 1
            return
        release(root, fresh=True)  # writes to the account again
        assert not [path for path in (root / "spending").iterdir() if path.suffix == ".tmp"]
    pytest.fail("a release takes more file operations than were tried")


steps = st.lists(st.tuples(st.integers(0, 25), st.booleans(), st.sampled_from(["again", "fresh", "lost"])), max_size=5)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_no_sequence_of_kills_and_reruns_releases_more_than_is_counted(tmp_path_factory, sequence):
    root, seen = tmp_path_factory.mktemp("data"), set()
    for at, torn, what in sequence:
        if what == "lost":  # somebody deletes the release, which may have been copied before
            for path in (root / "kept").glob("*.safetensors"):
                path.unlink()
        killed(root, at, torn, fresh=what == "fresh")
        seen |= on_disk(root)
        assert len(seen) <= counted(root)
    release(root)
    seen |= on_disk(root)
    assert 1 <= len(seen) <= counted(root)


def test_a_whole_temporary_release_is_adopted_and_a_part_is_deleted(tmp_path):
    value = release(tmp_path)
    (path,) = (tmp_path / "kept").glob("*.safetensors")
    begun = path.with_suffix(".safetensors.tmp")
    path.rename(begun)
    assert torch.equal(release(tmp_path), value)
    assert not begun.exists()
    path.rename(begun)
    begun.write_bytes(begun.read_bytes()[:-1])
    assert not torch.equal(release(tmp_path), value)
    assert counted(tmp_path) == 2  # the first may have been read


def test_the_charge_is_on_the_disk_before_noise_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(NoiseSource, "normal", lambda *_: pytest.fail("drawn") if not counted(tmp_path) else _stop())
    with pytest.raises(Killed):
        release(tmp_path)
    assert counted(tmp_path) == 1
    monkeypatch.undo()
    release(tmp_path)
    assert counted(tmp_path) == 1  # nothing was left of the first


def _stop():
    raise Killed


def test_two_processes_that_want_the_same_release_share_one(tmp_path):
    found = []
    workers = [threading.Thread(target=lambda: found.append(release(tmp_path))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 4
    assert all(torch.equal(found[0], other) for other in found)
    assert counted(tmp_path) == 1


def test_releases_of_one_data_set_add_up(tmp_path):
    for seed in range(3):
        account = Spending(tmp_path / "s.json").account(f"seed {seed}")
        own = Gate(ledger=Ledger(1e-5), noise=NoiseSource(), account=account)
        own.release(Gaussian(Z))(torch.zeros(2), 1.0)
    total = Spending(tmp_path / "s.json").total(Budget(None, 1e-5))
    assert total.releases == 3
    assert total.epsilons == {"replace-one": pytest.approx(gaussian_epsilon(Z / 3**0.5, 1e-5), rel=1e-9)}
    assert total.sentence() == (
        f"This data set has released ε = {gaussian_epsilon(Z / 3**0.5, 1e-5):.4g} at δ = 1e-05 in 3 releases."
    )
    assert stat.S_IMODE((tmp_path / "s.json").stat().st_mode) == 0o600


def test_a_damaged_spending_file_is_refused_and_not_begun_anew(tmp_path):
    release(tmp_path)
    (path,) = (tmp_path / "spending").glob("*.json")
    whole = path.read_bytes()
    for damaged in (
        whole[:-20],
        whole.replace(b'"times": 1', b'"times": 0'),
        b"",
        b"[]",
        whole.replace(b"3.0", b"9.0"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="damaged") as refused:
            release(tmp_path, fresh=True)
        assert "\n" not in str(refused.value)
        assert path.read_bytes() == damaged


def test_every_byte_of_a_sealed_file_is_covered(tmp_path):
    path = tmp_path / "a.safetensors"
    whole = seal({"b": torch.arange(3), "a": torch.ones(2)}, {"x": [1, "é"]})
    path.write_bytes(whole)
    tensors, facts, digest = read_sealed(path)
    assert facts == {"x": [1, "é"]}
    assert torch.equal(tensors["b"], torch.arange(3))
    assert len(digest) == 64
    for at in range(0, len(whole), 2):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DataError):
            read_sealed(path)
    for other in (whole + b"\0", whole[:-1], b"", whole[:8], b"\xff" * 40):
        path.write_bytes(other)
        with pytest.raises(DataError):
            read_sealed(path)
