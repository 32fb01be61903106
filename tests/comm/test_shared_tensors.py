"""Tensors in shared memory reach worker processes as the same memory, and nothing of it is left behind."""

import os

import pytest

from labkit.comm import Emulated, LaunchError, Processes, launch

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def world():
    processes = Processes(device="cpu")
    with processes.ready(2) as pool:
        yield Processes(device="cpu", pool=pool)


@pytest.fixture(autouse=True)
def leaves_no_name_in_the_file_system():
    yield
    if os.path.isdir("/dev/shm"):
        assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{os.getpid()}_")]


def write_own_row(comm, w):
    w[comm.rank] = comm.rank + 1.0
    comm.barrier()
    return w.sum().item()


@pytest.mark.parametrize("simulated", [True, False])
def test_what_a_worker_writes_the_launcher_and_the_others_read(world, simulated):
    w = torch.zeros(2, 3).share_memory_()
    run = launch(write_own_row, 2, w, world="simulated" if simulated else world)
    assert w.tolist() == [[1.0] * 3, [2.0] * 3]
    assert run.results == [9.0, 9.0]


def test_an_ordinary_tensor_still_travels_by_value(world):
    w = torch.zeros(2, 3)
    assert launch(write_own_row, 2, w, world=world).results == [3.0, 6.0]
    assert not w.any()


def test_views_arrive_with_their_offset_stride_and_dtype(world):
    base = torch.arange(24, dtype=torch.int32).share_memory_().reshape(4, 6)
    corner, column = base[2:, 3:], base.T[1]

    def f(comm, corner, column):
        said = corner.tolist(), corner.stride(), corner.dtype, column.tolist()
        comm.barrier()
        if comm.rank == 1:
            corner += 100
            column[0] = -1
        return said

    run = launch(f, 2, corner, column, world=world)
    assert run.results == [([[15, 16, 17], [21, 22, 23]], (6, 1), torch.int32, [1, 7, 13, 19])] * 2
    expected = torch.arange(24, dtype=torch.int32).reshape(4, 6)
    expected[2:, 3:] += 100
    expected[0, 1] = -1
    assert torch.equal(base, expected)


def test_a_shared_model_keyword_arguments_and_closures_are_shared(world):
    model = torch.nn.Linear(2, 1).share_memory()
    seen = torch.zeros(2, dtype=torch.int64).share_memory_()

    def f(comm, *, model):
        with torch.no_grad():
            model.bias.fill_(7.0) if comm.rank else model.weight.fill_(5.0)
        seen[comm.rank] = 1  # a closure's variable

    launch(f, 2, model=model, world=world)
    assert model.weight.tolist() == [[5.0, 5.0]] and model.bias.tolist() == [7.0]
    assert seen.tolist() == [1, 1]


def test_what_a_worker_returns_is_a_copy_of_its_own(world):
    w = torch.zeros(3).share_memory_()
    run = launch(lambda comm, w: w, 2, w, world=world)
    w += 1
    assert all(r.tolist() == [0.0] * 3 for r in run.results)


def test_many_launches_leave_no_file_open(world):
    w, here = torch.zeros(1000).share_memory_(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        there = launch(lambda comm, w: len(os.listdir("/proc/self/fd")), 2, w, world=world).results
    assert max(there) < 100 and len(os.listdir("/proc/self/fd")) < here + 10


def test_torchs_file_system_strategy_works_and_cleans_up(world):
    import torch.multiprocessing as mp

    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy("file_system")
    try:
        w = torch.zeros(2, 3).share_memory_()
        assert launch(write_own_row, 2, w, world=world).results == [9.0, 9.0]
        assert w.sum() == 9
        del w
    finally:
        mp.set_sharing_strategy(before)


def test_hosts_of_their_own_share_no_memory_and_the_argument_is_named():
    w, emulated = torch.zeros(2).share_memory_(), Emulated(1e8)
    try:
        launch(lambda comm: 0, 2, world=emulated)
    except LaunchError as why:
        pytest.skip(str(why))
    with pytest.raises(LaunchError, match=r"^argument 1 lies in shared memory.*w.clone\(\)"):
        launch(lambda comm, x, w: 0, 2, 3, w, world=emulated)
    with pytest.raises(LaunchError, match=r"^w lies in shared memory"):
        launch(lambda comm, w: 0, 2, w=w, world=emulated)
    with pytest.raises(LaunchError, match=r"^f lies in shared memory"):
        launch(lambda comm: w, 2, world=emulated)


def test_a_file_mapped_into_memory_is_refused_in_one_sentence(world, tmp_path):
    path = tmp_path / "w"
    path.write_bytes(bytes(8))
    w = torch.from_file(str(path), shared=True, size=2)
    with pytest.raises(TypeError, match=r"argument 0 \(Tensor\) cannot be sent to a worker process"):
        launch(write_own_row, 2, w, world=world)
