"""Our schemes inside torch's DistributedDataParallel; torch's own PowerSGD hook is the oracle for ours."""

import numpy as np
import pytest

from labkit import launch
from labkit.compress import QSGD, ErrorFeedback, Identity, PowerSGD, Sign, TopK, rngs

pytest.importorskip("torch")
pytestmark = pytest.mark.processes

STEPS = 25


def train(comm, how, dtype="float64", warm_qs=None):
    """STEPS of DDP on this rank's own data. Returns (parameters, losses, hook's state)."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as torchs

    from labkit.train.hooks import Compression, compression_hook

    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    net = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 9)).to(kind)
    model = torch.nn.parallel.DistributedDataParallel(net)
    state = None
    if how == "torch":
        state = torchs.PowerSGDState(None, 2, start_powerSGD_iter=2, min_compression_rate=1)
        model.register_comm_hook(state, torchs.powerSGD_hook)
    elif how is not None:
        state = Compression(how)
        model.register_comm_hook(state, compression_hook)
    data = torch.Generator().manual_seed(1 + comm.rank)
    x, y = torch.randn(5, 8, 12, generator=data, dtype=kind), torch.randn(5, 8, 9, generator=data, dtype=kind)
    optimiser, losses = torch.optim.SGD(model.parameters(), lr=0.3), []
    for t in range(STEPS):
        if t == 2 and warm_qs is not None:  # torch goes on from the Q that it finds here
            state.q_memory_dict[0] = torch.from_numpy(np.concatenate([Q.reshape(-1) for Q in warm_qs]))
            state.p_memory_dict[0] = torch.empty(2 * (9 + 16), dtype=kind)
        optimiser.zero_grad()
        loss = ((model(x[t % 5]) - y[t % 5]) ** 2).mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy(), losses, state


def everything(comm):
    """All of the training below in one launch."""
    out = {}
    for name, how in {
        "ddp": None, "identity": Identity(), "top-k": ErrorFeedback(TopK(0.05)), "sign": ErrorFeedback(Sign()),
        "qsgd": QSGD(15), "ours": lambda shapes: PowerSGD(shapes, r=2),
    }.items():  # fmt: skip
        w, losses, state = train(comm, how)
        out[name] = w, losses, getattr(state, "nbytes", None)
    scheme, _ = state._kept[0]
    qs = scheme.start(len(state.memories[0].error), np.float64, rngs(0, comm.rank)).Qs
    out["shapes"] = scheme.shapes, [Q.shape for Q in qs]
    out["torch"] = train(comm, "torch", warm_qs=qs)[0]
    out["torch, its own start"] = train(comm, "torch")[0]
    w, _, _ = train(comm, ErrorFeedback(TopK(0.05)), dtype="float32")
    out["float32"] = w
    return out


@pytest.fixture(scope="module")
def results():
    return launch(everything, 2, world="processes", timeout_s=120).results


def test_with_the_identity_ddp_is_ddp(results):
    for result in results:
        np.testing.assert_allclose(result["identity"][0], result["ddp"][0], rtol=1e-12)


@pytest.mark.parametrize("name", ["ddp", "identity", "top-k", "sign", "qsgd", "ours"])
def test_ranks_with_different_data_end_with_the_same_bits_and_learn(results, name):
    (a, losses, _), (b, others, _) = results[0][name], results[1][name]
    assert a.tobytes() == b.tobytes()
    assert losses != others
    assert sum(losses[-5:]) + sum(others[-5:]) < 0.9 * (sum(losses[:5]) + sum(others[:5]))


def test_compressed_training_is_not_the_plain_one(results):
    for name in ("top-k", "sign", "qsgd", "ours"):
        assert not np.allclose(results[0][name][0], results[0]["ddp"][0], rtol=1e-6)


def test_our_powersgd_is_torchs_from_the_same_start(results):
    """23 compressed steps with error feedback and warm start. They differ in rounding only: torch orthogonalises Q as
    well, which changes the basis and not the subspace, and keeps the mean's error where we keep each worker's own."""
    shapes, q_shapes = results[0]["shapes"]
    assert sorted(shapes) == sorted([(16, 12), (16,), (9, 16), (9,)]) and len(q_shapes) == 2
    ours, torchs = results[0]["ours"][0], results[0]["torch"]
    np.testing.assert_allclose(ours, torchs, rtol=0, atol=1e-10)
    assert np.abs(results[0]["torch, its own start"] - torchs).max() > 1e-4  # so the agreement says something


def test_the_bytes_are_those_of_two_plain_steps_and_of_messages(results):
    d = 16 * 12 + 16 + 9 * 16 + 9
    rest = STEPS - 2
    assert results[0]["identity"][2] == STEPS * 8 * d
    assert results[0]["sign"][2] == 2 * 8 * d + rest * Sign().nbytes(d, 8)
    assert results[0]["top-k"][2] == 2 * 8 * d + rest * TopK(0.05).nbytes(d, 8)
    assert results[0]["ours"][2] == 2 * 8 * d + rest * 8 * (2 * (16 + 12 + 9 + 16) + 16 + 9)


def test_float32_models_train_too(results):
    assert results[0]["float32"].dtype == np.float32
    assert results[0]["float32"].tobytes() == results[1]["float32"].tobytes()


def test_fewer_than_two_plain_steps_are_refused():
    from labkit.train.hooks import Compression

    for plain_steps in (0, 1, True, 2.0):
        with pytest.raises(ValueError, match="plain_steps must be a whole number >= 2"):
            Compression(Sign(), plain_steps=plain_steps)
    with pytest.raises(TypeError, match="how must be a compressor or a scheme"):
        Compression("powersgd")
