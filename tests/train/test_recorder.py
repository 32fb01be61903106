"""The straggler recorder names the slow rank, several, nobody, or the link; and costs next to nothing."""

import time
from contextlib import closing, contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labkit import launch, machine  # noqa: E402
from labkit.machine import Clock  # noqa: E402
from labkit.timing import Kind, ShiftedExponential, draw  # noqa: E402
from labkit.train import recorder as recorder_module  # noqa: E402
from labkit.train.recorder import Recording, StragglerRecorder  # noqa: E402
from labkit_book.why import measure, probe  # noqa: E402


def job(comm, T, slow, wrap, width=8, work_s=0.004):
    """A training loop like anybody's; ``slow`` maps ranks to extra seconds a step, spent after the forward pass."""
    from torch.nn.parallel import DistributedDataParallel

    from labkit.train.ddp import DDP

    torch.manual_seed(comm.rank)
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    recorder = StragglerRecorder(model)
    if wrap == "torch":
        model = DistributedDataParallel(model)
    elif wrap == "labkit":
        model = DDP(comm, model, check_even=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(T):
        optimizer.zero_grad()
        loss = model(torch.randn(4, width)).square().mean()
        time.sleep(work_s + slow.get(comm.rank, 0.0))
        loss.backward()
        if not wrap:
            for p in model.parameters():
                torch.distributed.all_reduce(p.grad)
                p.grad /= comm.K
        optimizer.step()
    return recorder.report()


@pytest.mark.alone
@pytest.mark.processes
@pytest.mark.parametrize("wrap", ["torch", "labkit", ""])
def test_an_injected_slow_rank_is_named_with_what_it_costs(wrap):
    run = launch(job, 3, 25, {1: 0.03}, wrap, world="processes")
    for recording in run.results:
        assert recording.ranks.stragglers == (1,)
        assert recording.timeline.T == 24 and recording.timeline.measured
        arrived = recording.timeline.arrivals_s
        assert 0.015 < (arrived[1] - arrived[[0, 2]].max(axis=0)).mean() < 0.045
        waited = recording.timeline.totals()[:, Kind.WAIT]
        assert waited[1] < 0.2 * waited[0] and waited[0] > 24 * 0.015
        assert recording.verdict.startswith("Rank 1 is a persistent straggler")
        assert str(recording).endswith(recording.verdict)
    assert np.array_equal(run.results[0].timeline.arrivals_s, run.results[2].timeline.arrivals_s)


def test_a_slow_link_is_not_blamed_on_a_rank():
    work = draw(ShiftedExponential(0.010, 0.002), 4, 50, 1)
    recording = Recording.of(work, work.max(axis=0) - work + 0.2, "test")
    assert recording.ranks.stragglers == ()
    assert "No rank is persistently slow" in recording.verdict and "link" in recording.verdict
    assert recording.shares[2] > 0.8 and sum(recording.shares) == pytest.approx(1)


def test_what_a_late_rank_costs_is_told():
    work = np.array([[1.0], [1.0], [1.5]]) + 1e-6 * np.random.default_rng(0).random((3, 20))
    verdict = Recording.of(work, work.max(axis=0) - work + 0.1, "test").verdict
    assert verdict.startswith("Rank 2") and "It costs everybody 500.0 ms of a 1600.0 ms step." in verdict


def test_the_times_of_a_step_add_up():
    work = np.array([[1.0, 2.0], [3.0, 1.0]])
    stay = np.array([[2.5, 0.5], [0.5, 1.5]])
    recording = Recording.of(work, stay, "test")
    assert recording.timeline.elapsed_s == 3.5 + 2.5 and recording.step_s == 3.0
    assert recording.timeline.totals().tolist() == [[3.0, 2.0, 1.0], [4.0, 1.0, 1.0]]


def test_gradient_accumulation_counts_the_last_backward_and_alone_nobody_waits():
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    other = torch.nn.Linear(3, 1)
    foreign = torch.optim.SGD(other.parameters(), lr=0.1)
    with closing(StragglerRecorder(model)) as recorder:
        for _ in range(4):
            for _ in range(3):
                model(torch.randn(2, 3)).sum().backward()
            other(torch.randn(2, 3)).sum().backward()
            foreign.step()
            optimizer.step()
        recording = recorder.report()
    assert recording.timeline.T == 3
    assert recording.verdict == "One worker waits for nobody."
    model(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    assert recorder.report().timeline.T == 3  # closed: nothing more is recorded


def test_a_backward_pass_within_the_step_is_left_when_the_step_ends():
    """A closure: fetching data before the next step is computing, not a stay in this one's synchronisation."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with closing(StragglerRecorder(model)) as recorder:
        for _ in range(6):
            time.sleep(0.01)
            optimizer.step(lambda: model(torch.randn(2, 3)).sum().backward())
        recording = recorder.report()
    assert recording.timeline.T == 5
    assert recording.timeline.totals()[0, Kind.COMPUTE] > 5 * 0.0095


def test_a_loop_without_an_optimizer_marks_its_synchronisations_itself():
    model = torch.nn.Linear(3, 1)
    with closing(StragglerRecorder(model)) as recorder:
        for _ in range(4):
            model(torch.randn(2, 3)).sum().backward()
            with recorder.synchronising():
                time.sleep(0.01)
        recording = recorder.report()
    assert recording.timeline.T == 3
    assert recording.timeline.totals()[0, Kind.COMMUNICATE] > 3 * 0.0095


def test_what_a_recomputed_segment_waits_for_is_not_computing():
    """The last gradient comes in a backward pass within the backward pass, and so does the wait for the others."""
    from torch.utils.checkpoint import checkpoint

    from labkit.train.buckets import run_at_end_of_backward

    first, last = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 1)
    model = torch.nn.Sequential(first, last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with closing(StragglerRecorder(model)) as recorder:
        when_summed = first.weight.register_post_accumulate_grad_hook
        when_summed(lambda _: run_at_end_of_backward(lambda: time.sleep(0.02)))
        for _ in range(5):
            x = torch.randn(2, 4, requires_grad=True)
            last(checkpoint(first, x, use_reentrant=True)).sum().backward()
            optimizer.step()
        marks = recorder.report().timeline
    assert marks.totals()[0, Kind.COMMUNICATE] > 4 * 0.0195


@pytest.mark.processes
def test_models_that_step_in_turn_are_recorded_together():
    """Rank 1 is slow for one of the two only; alone, the other's recorder would see everybody wait there alike."""

    def in_turn(comm, T):
        models = torch.nn.ModuleList([torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)])
        recorder = StragglerRecorder(models)
        nets = [torch.nn.parallel.DistributedDataParallel(m) for m in models]
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.01) for m in models]
        for _ in range(T):
            for i, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
                time.sleep(0.03 * (comm.rank == 1 and i == 1))
                net(torch.randn(2, 3)).sum().backward()
                optimizer.step()
        return recorder.report()

    recording = launch(in_turn, 3, 60, world="processes").results[0]
    assert recording.timeline.T == 119
    second = recording.timeline.arrivals_s[:, ::2]  # the first mark is the second model's first step
    assert (second.argmax(axis=0) == 1).mean() > 0.8
    assert 1 in recording.ranks.stragglers


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
def test_a_model_moved_to_the_gpu_afterwards_is_timed_there():
    model = torch.nn.Linear(3, 1)
    with closing(StragglerRecorder(model)) as recorder:
        model.cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.randn(2, 3, device="cuda")).sum().backward()
            torch.cuda._sleep(100_000_000)
            optimizer.step()
        assert recorder.report().timeline.totals()[0, Kind.COMMUNICATE] > 0.01


def test_times_are_taken_where_the_gradients_are():
    model = torch.nn.Linear(3, 1)
    with closing(StragglerRecorder(model)) as recorder:
        recorder.device = torch.device("meta")  # as if the model had been there when it was wrapped
        model(torch.ones(2, 3)).sum().backward()
        assert recorder.device == torch.device("cpu")


def test_the_probe_gets_a_batch_of_about_the_mean_length():
    model = torch.nn.Linear(3, 1)
    with closing(StragglerRecorder(model)) as recorder:
        for n in (9, 1, 5, 20):
            model(torch.ones(n, 3))
        examples, (inputs, _) = recorder.usual
        assert examples == 5 and inputs[0].shape == (5, 3)


def test_a_backward_that_fails_is_forgotten():
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = StragglerRecorder(model)
    for t in range(5):
        if t == 2:
            x = torch.randn(2, 3, requires_grad=True)
            copy = x.clone()
            copy.register_hook(lambda _: 1 / 0)  # half-way
            with pytest.raises(ZeroDivisionError):
                (model(copy).sum() + model(x).sum()).backward()
        model(torch.randn(2, 3)).sum().backward()
        optimizer.step()
    assert recorder.report().timeline.T == 4


@pytest.mark.parametrize(("make", "said"), [
    (lambda: StragglerRecorder(torch.nn.ReLU()), "model must have a parameter"),
    (lambda: StragglerRecorder().report(), "at least two steps on every rank, but rank 0 recorded none"),
])  # fmt: skip
def test_bad_input_is_refused_in_one_sentence(make, said):
    with pytest.raises(ValueError, match=said):
        make()


HOT = Clock(1140, 1980, ("heat, by the driver",), True)
IDLE = Clock(600, 1980, ("nothing to do",), False)


class OtherGPU:
    """A stand-in for torch.cuda: the model is on one device, and the current one is another."""

    def __init__(self):
        self.current, self.asked = "another", set()

    @contextmanager
    def device(self, device):
        self.current, before = device, self.current
        yield
        self.current = before

    def current_stream(self, device=None):
        self.asked.add(device or self.current)
        return device or self.current

    synchronize = current_stream

    def Event(self, enable_timing):
        assert enable_timing
        event = SimpleNamespace(synchronize=lambda: None)

        def record(stream=None):
            event.stream, event.at = stream or self.current_stream(), time.perf_counter()

        def elapsed_time(later):
            assert event.stream == later.stream, "events of two devices"
            return 1e3 * (later.at - event.at)

        event.record, event.elapsed_time = record, elapsed_time
        return event


@pytest.fixture
def other_gpu(monkeypatch):
    gpu = OtherGPU()
    monkeypatch.setattr(machine, "ACCELERATOR", "meta")
    monkeypatch.setattr(machine, "gpus", lambda: ["a GPU"])
    monkeypatch.setattr(torch, "get_device_module", lambda device: gpu)
    return gpu


def on_meta(T):
    """The recorder of a job that names its model's device and never the current one."""
    model = torch.nn.Linear(3, 1, device="meta")
    recorder = StragglerRecorder(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(T):
        model(torch.ones(2, 3, device="meta")).sum().backward()
        optimizer.step()
    return recorder


def test_a_job_that_never_sets_the_current_device_is_recorded_and_probed_on_its_model_s(
    other_gpu, monkeypatch
):
    mine, sent = torch.device("meta"), set()

    def all_gather_object(everyone, value, group):
        assert other_gpu.current == mine, "nccl would send from another rank's GPU"
        everyone[:] = [value] * len(everyone)

    def barrier(group):
        assert other_gpu.current == mine, "nccl would wait on another rank's GPU"

    def all_reduce(x, group, async_op):
        sent.add(x.device)
        return SimpleNamespace(wait=lambda: None)

    recorder = on_meta(6)
    said = {"is_available": lambda: True, "is_initialized": lambda: True, "get_rank": lambda group: 0}
    said |= {"get_world_size": lambda group: 2, "all_reduce": all_reduce, "barrier": barrier}
    stand_in = SimpleNamespace(**said, all_gather_object=all_gather_object, group=torch.distributed.group)
    for module in (recorder_module, probe):
        monkeypatch.setattr(module, "dist", stand_in)
    steps = measure(recorder)
    assert steps.T == 5 and steps.alone_s.size and steps.prices.size
    assert sent == other_gpu.asked == {mine}


def test_a_gpu_s_clock_is_read_while_it_works_and_not_when_the_report_is_asked_for(other_gpu, monkeypatch):
    now = [HOT]
    monkeypatch.setattr(machine, "clock_of", lambda device: lambda: now[0])
    for pause, often in ((0.0, 5), (1e9, 1)):
        monkeypatch.setattr("labkit.train.recorder.SAMPLE_S", pause)
        now[0] = HOT
        recorder = on_meta(6)
        now[0] = IDLE
        assert recorder.report().clocks == ([HOT] * often,)


def test_a_driver_that_fails_does_not_end_the_job(other_gpu, monkeypatch):
    monkeypatch.setattr(machine, "clock_of", lambda device: lambda: 1 // 0)
    assert on_meta(4).report().clocks == ([],)


def test_a_slow_rank_whose_gpu_is_held_down_is_named_with_what_was_seen_of_its_clock():
    full, idle, hot = Clock(1980, 1980, (), False), IDLE, HOT
    work, stay = np.full((3, 30), 0.01), np.full((3, 30), 0.001)
    work[1] += 0.02
    stay[[0, 2]] += 0.02

    def verdict(*clocks):
        return Recording.of(work, stay, "here", clocks=clocks).verdict

    assert verdict([full] * 4, [idle, hot, full, hot], [full] * 4).endswith(
        " Rank 1's GPU was slowed 2 of the 4 times its clock was read, "
        "at worst to 1140 of 1980 MHz, held down by heat, by the driver."
    )
    unseen = verdict() + verdict([], [], []) + verdict([hot], [full], [hot]) + verdict([full], [idle], [full])
    assert "GPU" not in unseen
    assert "GPU" not in Recording.of(stay, stay, "here", clocks=([hot],) * 3).verdict, "no rank is slow"
