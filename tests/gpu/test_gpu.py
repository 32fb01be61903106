"""What only a GPU can show: the same functions on tensors that live there, also with several processes on one GPU."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from labkit import Processes, launch, machine  # noqa: E402
from labkit.collectives import doubling, halving, naive, ring, tree  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.processes,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine"),
]
WAYS = [naive, tree, ring, doubling, halving]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("K", [2, 3])
def test_every_all_reduce_gives_the_sum_on_the_gpu_where_its_input_was(way, K):
    def f(comm):
        x = torch.arange(101.0, device=comm.device) * (comm.rank + 1)
        total = way.allreduce(comm, x)
        assert total.device == x.device
        return total.cpu()

    for total in launch(f, K, world=Processes(device="cuda")).results:
        assert torch.equal(total, torch.arange(101.0) * (K * (K + 1) // 2))


def test_whoever_comes_first_may_send_gpu_tensors_through_gloo():
    def f(comm):
        x = torch.full((5,), float(comm.rank), device=comm.device)
        if comm.rank:
            comm.send(x, 0)
            return None
        came = [(comm.recv_any(x), x.sum().item()) for _ in range(comm.K - 1)]
        return sorted(came)

    assert launch(f, 3, world=Processes("gloo", "cuda")).results[0] == [(1, 5.0), (2, 10.0)]


def test_the_recorder_names_the_rank_whose_gpu_is_late():
    def f(comm):
        from torch.nn.parallel import DistributedDataParallel

        from labkit.train.recorder import StragglerRecorder

        model = DistributedDataParallel(torch.nn.Linear(64, 64).to(comm.device))
        recorder = StragglerRecorder(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(25):
            time.sleep(0.03 * (comm.rank == 1))
            model(torch.ones(8, 64, device=comm.device)).sum().backward()
            optimizer.step()
        return recorder.report()

    for recording in launch(f, 2, world=Processes(device="cuda")).results:
        assert recording.ranks.stragglers == (1,)


def test_a_compressed_gradient_goes_through_ddp_on_the_gpu_and_all_ranks_agree():
    def f(comm):
        from labkit.compress import ErrorFeedback, TopK
        from labkit.train.hooks import Compression, compression_hook

        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8).to(comm.device))
        model.register_comm_hook(Compression(ErrorFeedback(TopK(0.1))), compression_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        torch.manual_seed(comm.rank)
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(16, 64, device=comm.device)).square().mean().backward()
            optimizer.step()
        return torch.nn.utils.parameters_to_vector(model.parameters()).detach().cpu()

    a, b = launch(f, 2, world=Processes(device="cuda")).results
    assert torch.equal(a, b)


def test_the_gpu_of_this_process_has_a_clock():
    pytest.importorskip("pynvml", reason="no nvidia-ml-py: pip install 'labkit[gpu]'")
    clock = machine.clock_of(machine.device())()
    assert machine.device() == "cuda" and clock.mhz > 0 and clock.most > 0
    assert clock.most in {other.most for other in machine.clocks()}
