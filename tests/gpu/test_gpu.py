"""What labkit does with tensors on GPUs, workers having one each or sharing one.

On a machine without a GPU these tests skip, and test_pretended.py runs them on pretended devices, four of them and one.
"""

import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from labkit import Processes, launch, machine  # noqa: E402
from labkit.collectives import ALLREDUCES, shared  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.processes,
    pytest.mark.skipif(not machine.gpus(), reason="torch sees no GPU on this machine"),
]
ON_GPUS = Processes(device=machine.ACCELERATOR)
WORKERS = pytest.mark.parametrize("K", [2, 4])


def model(seed: int, device: str = "cpu") -> torch.nn.Module:
    torch.manual_seed(seed)
    layers = torch.nn.Linear(6, 13), torch.nn.Tanh(), torch.nn.Linear(13, 3)
    return torch.nn.Sequential(*layers).double().to(device)


def examples(rank: int, device: str = "cpu") -> torch.Tensor:
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(rank), dtype=torch.float64).to(device)


def train(net: torch.nn.Module, optimizer: Any, x: torch.Tensor, steps: int = 3) -> None:
    """Steps down the mean square of what the network makes of x."""
    for _ in range(steps):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()


def trained(K: int) -> torch.Tensor:
    """What one worker learns on the CPU from all K workers' examples: the parameters, in one vector."""
    net, together = model(0), torch.cat([examples(k) for k in range(K)])
    train(net, torch.optim.AdamW(net.parameters(), lr=0.05), together)
    return torch.nn.utils.parameters_to_vector(net.parameters()).detach()


def vector_of(net: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().cpu().reshape(-1) for p in net.parameters()])


@WORKERS
def test_workers_live_on_gpus_and_their_collectives_use_the_fast_backend_where_each_has_its_own(K):
    run = launch(lambda comm: comm.device, K, world=ON_GPUS)
    own = torch.distributed.Backend.default_device_backend_map[machine.ACCELERATOR]
    assert all(device.startswith(machine.ACCELERATOR) for device in run.results)
    assert f", {own if len(machine.gpus()) >= K else 'gloo'}, " in run.where
    assert len(set(run.results)) == min(K, len(machine.gpus()))


@WORKERS
def test_every_all_reduce_gives_the_sum_on_the_gpu_where_its_input_was(K):
    def f(comm):
        for name, way in {**ALLREDUCES, "shared": shared}.items():
            x = torch.arange(101.0, device=comm.device) * (comm.rank + 1)
            total = way.allreduce(comm, x)
            assert total.device == x.device, name
            assert torch.equal(total.cpu(), torch.arange(101.0) * (comm.K * (comm.K + 1) // 2)), name
        return True

    assert all(launch(f, K, world=ON_GPUS).results)


@WORKERS
def test_whoever_both_receive_first_or_both_send_first_is_served(K):
    def f(comm):
        x, into = (torch.full((1000,), float(comm.rank), device=comm.device) for _ in "ab")
        right, left = (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
        comm.sendrecv(x, right, into, left)
        first = into[0].item()
        sending = comm.isend(x, right)
        comm.recv(into, left)
        sending.wait()
        if comm.rank == 0:
            for _ in range(comm.K - 1):
                first += comm.recv_any(into)
        else:
            comm.send(x, 0)
        return first, into[0].item() if comm.rank else None

    found = launch(f, K, world=ON_GPUS).results
    assert found[0][0] == K - 1 + sum(range(1, K))
    assert found[1:] == [(float(k - 1), float(k - 1)) for k in range(1, K)]


def test_a_result_on_the_gpu_comes_back_on_the_cpu():
    def f(comm):
        return torch.ones(2, device=comm.device), torch.nn.Parameter(torch.ones(2, device=comm.device))

    for tensor, parameter in launch(f, 2, world=ON_GPUS).results:
        assert tensor.is_cpu and parameter.is_cpu


@WORKERS
def test_torchs_ddp_and_ours_and_the_three_stages_of_zero_take_the_steps_of_one_worker(K):
    def f(comm):
        from labkit.train.ddp import DDP
        from labkit_book.zero import Zero1, Zero2, Zero3

        found = []
        for wrap in torch.nn.parallel.DistributedDataParallel, lambda net: DDP(comm, net):
            net = model(comm.rank, comm.device)
            ddp, optimizer = wrap(net), torch.optim.AdamW(net.parameters(), lr=0.05)
            train(ddp, optimizer, examples(comm.rank, comm.device))
            found.append(vector_of(net))
        for stage in Zero1, Zero2, Zero3:
            net = model(comm.rank, comm.device)
            optimizer = stage(comm, net, torch.optim.AdamW, lr=0.05)
            train(net, optimizer, examples(comm.rank, comm.device))
            with optimizer.gathered():
                found.append(vector_of(net))
        return found

    for ways in launch(f, K, world=ON_GPUS).results:
        for vector in ways:
            torch.testing.assert_close(vector, trained(K))


def test_the_recorder_names_the_rank_whose_gpu_is_late():
    def f(comm):
        from labkit.train.recorder import StragglerRecorder

        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).to(comm.device))
        recorder = StragglerRecorder(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
        for _ in range(25):
            time.sleep(0.03 * (comm.rank == 1))
            net(torch.ones(8, 64, device=comm.device)).sum().backward()
            optimizer.step()
        return recorder.report()

    for recording in launch(f, 2, world=ON_GPUS).results:
        assert recording.ranks.stragglers == (1,)


@pytest.mark.skipif(machine.ACCELERATOR != "cuda", reason="a pretended device has no clock")
def test_the_gpu_of_this_process_has_a_clock():
    pytest.importorskip("pynvml", reason="pynvml is missing: pip install nvidia-ml-py")
    clock = machine.clock_of(machine.device())()
    assert clock.mhz > 0 and clock.most > 0
