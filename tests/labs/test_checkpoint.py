"""A checkpoint is whole or refused, whatever happened to the one who wrote it."""

import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labkit_book.labs import checkpoint  # noqa: E402

STATE = {"w": torch.arange(1000.0), "step": 3, "names": ["a", "b"], "rng": torch.get_rng_state()}


def same(a, b):
    return torch.equal(a["w"], b["w"]) and a["step"] == b["step"] and torch.equal(a["rng"], b["rng"])


def test_what_was_saved_comes_back_bit_for_bit_and_the_one_before_is_kept(tmp_path):
    assert checkpoint.latest(tmp_path) is None
    for step in (1, 5, 12):
        checkpoint.save(tmp_path / "new", step, {**STATE, "step": step})
    names = [p.name for p in checkpoint.saved(tmp_path / "new")]
    assert names == ["step-000000000005.ckpt", "step-000000000012.ckpt"]
    step, state = checkpoint.latest(tmp_path / "new")
    assert step == 12 and same(state, {**STATE, "step": 12})


DAMAGE = {
    "cut short": lambda raw: raw[: len(raw) // 2],
    "empty": lambda raw: b"",
    "one bit flipped": lambda raw: raw[:-100] + bytes([raw[-100] ^ 1]) + raw[-99:],
    "grown": lambda raw: raw + b"x",
    "another file": lambda raw: b"hello, world\n",
    "only a first line": lambda raw: raw.split(b"\n")[0],
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_used(tmp_path, how):
    checkpoint.save(tmp_path, 1, {**STATE, "step": 1})
    newest = checkpoint.save(tmp_path, 2, {**STATE, "step": 2})
    newest.write_bytes(DAMAGE[how](newest.read_bytes()))
    with pytest.raises(checkpoint.CorruptCheckpoint, match="step-000000000002"):
        checkpoint.load(newest)
    with pytest.warns(UserWarning, match=r"step-000000000002.* the checkpoint before it is used"):
        step, state = checkpoint.latest(tmp_path)
    assert step == 1 and state["step"] == 1


def test_a_job_that_went_back_behind_damaged_checkpoints_keeps_what_it_saves(tmp_path):
    for step in (10, 15, 20, 25):
        checkpoint.save(tmp_path, step, {"step": step})
    for path in checkpoint.saved(tmp_path)[-2:]:
        path.write_bytes(b"")
    path = checkpoint.save(tmp_path, 16, {"step": 16})
    assert path.exists()
    with pytest.warns(UserWarning):
        assert checkpoint.latest(tmp_path) == (16, {"step": 16})


class Trap:
    def __reduce__(self):
        return pytest.fail, ("to load it ran code",)


@pytest.mark.parametrize("state", [{"loss": np.float64(0.5)}, [np.arange(3)], {"f": os.mkdir}, {"w": Trap()}])
def test_a_state_that_could_not_be_loaded_again_is_refused_when_it_is_saved(tmp_path, state):
    with pytest.raises(pickle.UnpicklingError):
        checkpoint.save(tmp_path, 1, state)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_everything_as_it_was(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, STATE)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(tmp_path, 2, STATE)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_job_killed_while_it_writes_leaves_whole_checkpoints_only(started, tmp_path):
    """Killed at many moments: whatever is found afterwards under a good name is whole."""
    code = (
        "import sys, torch\nfrom labkit_book.labs import checkpoint\nw = torch.arange(300_000.0)\n"
        "print('ready', flush=True)\nfor step in range(10**6):\n"
        "    checkpoint.save(sys.argv[1], step, {'w': w + step})\n    print(step, flush=True)\n"
    )
    for lines in (3, 6):
        with started([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE) as job:
            told = [job.stdout.readline() for _ in range(lines)]
            job.send_signal(signal.SIGKILL)
            job.wait()
        step, state = checkpoint.latest(tmp_path)
        assert step >= int(told[-1]), "what was reported as saved is there"
        assert torch.equal(state["w"], torch.arange(300_000.0) + step)
        for path in checkpoint.saved(tmp_path):
            checkpoint.load(path)
            path.unlink()
