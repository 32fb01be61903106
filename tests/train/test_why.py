"""Why isn't it faster? The account adds up whatever was recorded, planted causes are named, and asking changes nothing."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labkit import launch  # noqa: E402
from labkit.__main__ import main  # noqa: E402
from labkit.comm.emulated import unavailable  # noqa: E402
from labkit.train.account import account  # noqa: E402
from labkit.train.prices import Prices  # noqa: E402
from labkit.train.recorder import Recording, StragglerRecorder  # noqa: E402
from labkit.train.steps import Phase, Steps  # noqa: E402

ROOT = Path(__file__).parents[2]


def recorded(K=4, T=160, seed=0, stay=0.001, noise=0.0005, **changes):
    """Steps of a healthy job: 1 ms between steps, 10 forward, 20 backward, 1 in the optimizer, and its measured prices.

    The sums take ``stay`` seconds, and prices agree."""
    rng = np.random.default_rng(seed)
    seconds = np.zeros((K, T, len(Phase)))
    for phase, mean in (
        (Phase.OPTIMIZER, 1e-3),
        (Phase.BETWEEN, 1e-3),
        (Phase.FORWARD, 0.01),
        (Phase.BACKWARD, 0.02),
    ):
        seconds[..., phase] = mean
    seconds[..., Phase.BACKWARD] += rng.exponential(noise, (K, T))
    calls = np.zeros((K, T, len(Phase)))
    calls[..., Phase.BACKWARD] = 1
    steps = Steps(
        seconds, calls, np.full((K, T), 8.0), "here",
        alone_s=np.full((1, K), 0.03 + noise), together_s=np.full((1, K), 0.03 + noise),
        messages=np.array([4e5]), ready=np.ones(1), sizes=np.array([64.0, 4e5]), prices=np.array([[2e-4, 1e-3]]),
        burst_s=np.array([1e-3]), sending_s=np.zeros(1),
    )  # fmt: skip
    return joined(replace(steps, **changes), stay)


def joined(steps, stay):
    """All wait for the slowest, and then ``stay`` seconds more."""
    seconds = steps.seconds.copy()
    work = seconds[..., : Phase.STAY].sum(axis=-1)
    seconds[..., Phase.STAY] = work.max(axis=0) - work + stay
    return replace(steps, seconds=seconds)


def with_phase(steps, phase, change, stay=0.001):
    seconds = steps.seconds.copy()
    change(seconds[..., phase])
    return joined(replace(steps, seconds=seconds), stay)


def total(why):
    return sum(row.seconds for row in why.rows)


@pytest.mark.parametrize("seed", range(20))
def test_the_rows_sum_to_the_step_whatever_was_recorded(seed):
    rng = np.random.default_rng(seed)
    K, T, L = int(rng.integers(1, 6)), int(rng.integers(1, 70)), int(rng.integers(0, 5))
    seconds = rng.exponential(0.01, (K, T, len(Phase))) * rng.uniform(0.5, 3, (K, 1, 1))
    steps = Steps(
        seconds,
        rng.integers(0, 3, (K, T, len(Phase))),
        rng.integers(0, 9, (K, T)),
        alone_s=rng.uniform(0, 0.03, (1, K)) if seed % 3 else np.empty(0),
        together_s=rng.uniform(0, 0.03, (1, K)) if seed % 3 else np.empty(0),
        half_s=rng.uniform(0, 0.03, (1, K)) if seed % 3 == 1 else np.empty(0),
        messages=rng.uniform(1, 1e6, L),
        ready=np.sort(rng.uniform(0, 1, L)),
        sizes=np.array([64.0, 1e6]) if seed % 2 else np.empty(0),
        prices=np.sort(rng.exponential(0.01, (1, 2))) if seed % 2 else np.empty(0),
        burst_s=rng.exponential(0.02, 1),
        sending_s=rng.exponential(0.001, 1),
    )
    why = account(steps)
    assert why.step_s == pytest.approx(seconds.sum(axis=-1).mean(), rel=1e-12)
    assert abs(total(why) - why.step_s) < 1e-9
    assert str(why).endswith(why.verdict)


def test_each_cause_is_named_and_its_cure_is_the_step_without_it():
    healthy = recorded()
    rng = np.random.default_rng(5)
    step_s = account(healthy).step_s
    examples = rng.integers(2, 15, (4, 160)).astype(float)
    sick = {
        "rank": with_phase(healthy, Phase.FORWARD, lambda s: s.__setitem__(2, 0.022)),
        "loading": with_phase(healthy, Phase.BETWEEN, lambda s: s.__iadd__(0.012)),
        "data": with_phase(
            replace(healthy, examples=examples),
            Phase.BACKWARD,
            lambda s: s.__iadd__((examples - examples.mean(axis=0)) * 0.002),
        ),
        "bandwidth": joined(replace(healthy, prices=np.array([[2e-4, 0.02]]), burst_s=np.array([0.02])), 0.02),
        "latency": joined(replace(healthy, prices=np.array([[0.01, 0.0105]]), burst_s=np.array([0.0105])), 0.0105),
        "messages": joined(
            replace(healthy, messages=np.full(50, 8e3), ready=np.ones(50), burst_s=np.array([0.0105])),
            0.0105,
        ),
        "sharing": with_phase(
            replace(healthy, together_s=np.full((1, 4), 0.045), inside=4, cores=2),
            Phase.BACKWARD,
            lambda s: s.__iadd__(0.015),
        ),
    }  # fmt: skip
    for cause, steps in sick.items():
        why = account(steps)
        assert why.cause == cause, why
        assert abs(total(why) - why.step_s) < 1e-9
        cure = why.cure(cause)
        assert cure is not None and cure.low <= cure.seconds * 1.01 and cure.seconds <= cure.high * 1.01, why
        if cause in ("rank", "data", "messages", "sharing"):  # cured altogether
            assert cure.seconds == pytest.approx(step_s, rel=0.05), why
    assert account(sick["loading"]).cure("loading").seconds == pytest.approx(step_s - 1e-3, rel=0.01)
    assert account(sick["bandwidth"]).cure("bandwidth").seconds == pytest.approx(step_s + 0.0091, rel=0.01)
    assert account(sick["rank"]).stragglers == (2,)
    assert account(healthy).cause == "healthy" and account(healthy).enough == 4


def test_a_larger_batch_is_promised_what_its_passes_and_its_sums_cost():
    """Half the examples take 0.7 of all: twice as many take 1.6. So is the loss longer, the loader twice as long."""
    steps = recorded(stay=0.012, noise=0.0, half_s=np.full((1, 4), 0.7 * 0.03))
    steps = with_phase(steps, Phase.LOSS, lambda s: s.__iadd__(0.002), stay=0.012)
    what = {cure.what: cure for cure in account(steps).cures}
    twice = what["batches twice as large"]
    assert twice.seconds == pytest.approx((1.6 * (0.030 + 0.002) + 2 * 0.001 + 0.001 + 0.012) / 2)
    assert "batches twice as large" not in {c.what for c in account(replace(steps, half_s=np.empty(0))).cures}
    # a message that may leave in the middle has 1.6 times as long to hide: 10 ms behind 10 become 10 behind 16
    early = replace(steps, ready=np.array([0.5]), prices=np.array([[0.02, 0.02]]), burst_s=np.array([0.02]))
    why = account(joined(early, 0.010))
    twice = {cure.what: cure for cure in why.cures}["batches twice as large"]
    assert twice.seconds == pytest.approx((1.6 * (0.030 + 0.002) + 2 * 0.001 + 0.001 + 0.004) / 2)


def test_calls_that_synchronise_are_charged_for_their_messages_and_their_waiting_is_not():
    """Rank 1 is slow in the forward pass, and the others wait for it in the loss: the rank's fault, not the call's."""
    steps = recorded(noise=0.0)
    seconds, calls = steps.seconds.copy(), steps.calls.copy()
    seconds[1, :, Phase.FORWARD] += 0.02
    seconds[..., Phase.LOSS] += 0.001 + 0.02 * (np.arange(4) != 1)[:, None]
    calls[..., Phase.LOSS] = 5
    why = account(joined(replace(steps, seconds=seconds, calls=calls), 0.001))
    rows = {row.cause: row.seconds for row in why.rows}
    assert rows["rank"] == pytest.approx(0.02) and rows["calls"] == pytest.approx(5 * 2e-4)
    assert why.stragglers == (1,) and why.cause == "rank"


def seconds_of(why):
    return {row.cause: row.seconds for row in why.rows}


def test_sums_that_take_longer_than_clocked_are_latency_and_not_unexplained():
    """Within a step a message takes four times what it took when nothing else was asked for."""
    why = account(recorded(stay=0.012, prices=np.array([[0.003, 0.00301]]), burst_s=np.array([0.00301])))
    rows = seconds_of(why)
    assert why.cause == "latency" and rows["latency"] == pytest.approx(0.012, rel=0.01)
    assert abs(rows["rest"]) < 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_what_stands_out_is_what_the_schedule_says_and_a_fit_promises_what_was_seen(seed):
    """Message after message, none before it is ready; held against a loop."""
    rng = np.random.default_rng(seed)
    L = int(rng.integers(1, 9))
    ready = np.sort(rng.uniform(0, 1, L))
    steps = recorded(
        messages=rng.uniform(1e3, 4e5, L), ready=ready, burst_s=np.array([rng.uniform(1e-3, 0.02)])
    )
    prices, backward = Prices.of(steps), steps.seconds[..., Phase.BACKWARD].mean()

    def free(prices):
        at = -1.0
        for n, share in zip(steps.messages, ready, strict=True):
            each = prices.shortest if L == 1 else prices.pipelined_s
            beyond = np.interp(n, prices.sizes, prices.prices) - prices.shortest
            at = max(at, -(1 - share) * backward) + each + beyond
        return max(at, 0.0)

    assert prices.exposed() == pytest.approx(free(prices), rel=1e-9)
    for seen in (0.5, 1.0, 3.0):
        fitted = prices.fitted(seen * 0.01)
        assert free(fitted) == pytest.approx(seen * 0.01, rel=1e-9)
        assert fitted.exposed(len(ready)) == pytest.approx(fitted.exposed(), rel=1e-9)


def test_a_cause_is_named_only_where_it_surely_matters_and_rivals_are_named_with_it():
    rng = np.random.default_rng(3)
    bursts = 0.3 * (rng.random((1, 40)) < 1 / 40)
    unsure = account(with_phase(recorded(T=40), Phase.BETWEEN, lambda s: s.__iadd__(bursts)))
    assert unsure.rows[0].seconds > 0.1 * unsure.step_s > unsure.rows[0].low
    assert unsure.cause == "healthy" and unsure.rivals == ("loading",) and "More steps" in unsure.verdict

    noise = 0.02 * rng.exponential(size=(1, 40))
    steps = with_phase(recorded(T=40), Phase.BETWEEN, lambda s: s.__iadd__(noise))
    even = account(
        joined(replace(steps, prices=np.array([[0.0205, 0.021]]), burst_s=np.array([0.021])), 0.021)
    )
    assert {even.cause, *even.rivals} == {"loading", "latency"} and "cannot tell" in even.verdict
    for row in even.rows:
        assert row.low <= row.seconds <= row.high


def test_intervals_hold_the_error_of_the_prices():
    """One and the same mean price, from rounds that agree and from rounds that do not."""
    sure = {"prices": np.full((6, 2), [0.005, 0.01]), "burst_s": np.full(6, 0.01), "sending_s": np.zeros(6)}
    scattered = sure["prices"] + np.array([[-0.004], [0.004], [0], [-0.002], [0.002], [0]]) * [1, 0]
    widths = []
    for prices in (sure["prices"], scattered):
        why = account(recorded(stay=0.01, **sure | {"prices": prices}))
        row, cure = next(r for r in why.rows if r.cause == "bandwidth"), why.cure("bandwidth")
        widths.append((row.high - row.low, cure.high - cure.low))
    assert widths[1][0] > 10 * widths[0][0] and widths[1][1] > 1.5 * widths[0][1]


def test_a_cause_at_the_limit_is_named_about_as_often_as_stated():
    """Loading takes exactly a tenth: 40 steps that are alike name it in about 5 % of jobs; 17 or more of 100 would have
    probability 1e-5, and with 10 % still 2 %."""
    named = 0
    for seed in range(100):
        noise = np.random.default_rng(seed).standard_normal(60)
        for t in range(1, 60):
            noise[t] = 0.5 * noise[t - 1] + np.sqrt(0.75) * noise[t]
        steps = recorded(T=40, noise=0.0)
        loading = 0.032 / 9 - 1e-3 + 9e-4 * noise[20:]
        named += (
            account(with_phase(steps, Phase.BETWEEN, lambda s, more=loading: s.__iadd__(more))).cause
            == "loading"
        )
    assert named < 17


def test_healthy_jobs_are_rarely_called_sick_also_where_steps_are_correlated():
    """100 jobs each; a false alarm of 1 % is allowed to the test of ranks: 6 or more of 100 have probability 5e-4."""
    for rho in (0.0, 0.5):
        alarms = 0
        for seed in range(100):
            rng = np.random.default_rng(seed)
            noise = rng.standard_normal((4, 160))
            for t in range(1, 160):
                noise[:, t] = rho * noise[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
            steps = with_phase(
                recorded(noise=0.0), Phase.FORWARD, lambda s, noise=noise: s.__iadd__(5e-4 * noise)
            )
            why = account(steps)
            alarms += why.cause != "healthy" or bool(why.stragglers)
        assert alarms <= 5


def test_fewer_workers_are_enough_where_latency_is_all_there_is():
    steps = recorded(stay=0.1)
    why = account(replace(steps, prices=np.array([[0.1, 0.1]]), burst_s=np.array([0.1])))
    assert why.enough == 1 and why.speedup[0] == pytest.approx(1) and why.speedup[-1] < 1.2


def test_a_recording_is_kept_and_read_again_and_the_command_says_the_same(tmp_path, capsys):
    path = tmp_path / "job.npz"
    recording = Recording.from_steps(recorded())
    recording.save(path)
    again = Recording.load(path)
    assert str(again.why()) == str(recording.why()) and str(again) == str(recording)
    assert main(["why", str(path)]) == 0
    assert capsys.readouterr().out == f"{recording.why()}\n"


@pytest.mark.parametrize("what", ["text", "empty", "cut", "other", "negative", "none"])
def test_a_bad_file_is_refused_in_a_sentence(tmp_path, capsys, what):
    path = tmp_path / "job.npz"
    Recording.from_steps(recorded()).save(path)
    if what in ("text", "empty"):
        path.write_text("steps" if what == "text" else "")
    elif what == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif what == "other":
        np.savez(path, x=np.ones(3))
    elif what == "negative":
        with np.load(path) as file:
            kept = dict(file)
        np.savez(path, **kept | {"seconds": -kept["seconds"]})
    else:
        path.unlink()
    assert main(["why", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(path) in said


def test_times_alone_have_no_account():
    with pytest.raises(ValueError, match="steps must be there"):
        Recording.of(np.ones((2, 9)), np.ones((2, 9)), "here").why()


@pytest.mark.processes
@pytest.mark.parametrize("wrap", ["torch", "labkit"])
def test_asking_changes_nothing_and_training_goes_on(wrap):
    def job(comm, wrap):
        from labkit.train.ddp import DDP

        torch.manual_seed(comm.rank)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(), torch.nn.Linear(8, 1)
        )
        recorder = StragglerRecorder(model)
        around = DDP(comm, model) if wrap == "labkit" else torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def steps(T):
            for _ in range(T):
                around(torch.randn(4, 8)).square().mean().backward()
                optimizer.step()

        def state():
            tensors = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters())]
            return [*(x.clone() for x in tensors), torch.get_rng_state()]

        steps(6)
        before = state()
        why = recorder.why()
        same = all(torch.equal(a, b) for a, b in zip(before, state(), strict=True))
        steps(6)
        return same, abs(total(why) - why.step_s), str(why), recorder.report().timeline.T

    results = launch(job, 2, wrap, world="processes").results
    for same, off, _, T in results:
        assert same and off < 1e-9 and T == 11
    assert results[0][2] == results[1][2]


def test_asking_compiles_nothing_anew():
    compiled = []

    def backend(graph, examples):
        compiled.append(len(examples))
        return graph.forward

    model = torch.nn.Linear(8, 1)
    model.compile(backend=backend)
    with StragglerRecorder(model) as recorder:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(6):
            model(torch.randn(8, 8)).square().mean().backward()
            optimizer.step()
        before = len(compiled)
        assert before and recorder.measured().steps.alone_s.size
        assert len(compiled) == before


@pytest.mark.processes
def test_what_is_done_between_the_sums_and_the_step_is_no_communication():
    def job(comm):
        import time

        model = torch.nn.Linear(8, 1)
        recorder = StragglerRecorder(model)
        net = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(40):
            net(torch.randn(4, 8)).sum().backward()
            time.sleep(0.02 + 0.05 * comm.rank)  # where others clip
            optimizer.step()
        return recorder.why(), recorder.report()

    why, report = launch(job, 2, world="processes").results[0]
    rows = seconds_of(why)
    assert why.cause == "rank" and why.stragglers == (1,) and report.ranks.stragglers == (1,), why
    assert rows["after"] == pytest.approx(0.02, rel=0.3) and rows["rest"] < 0.003


def planted(name):
    """A cause of the benchmark: its training loop, the job with the cause, and how the cause is called."""
    import cloudpickle

    spec = importlib.util.spec_from_file_location("why_bench", ROOT / "tests" / "bench" / "why.py")
    sys.path.insert(0, str(ROOT / "tests" / "bench"))
    try:
        bench = importlib.util.module_from_spec(spec)
        sys.modules["why_bench"] = bench
        spec.loader.exec_module(bench)
        cloudpickle.register_pickle_by_value(bench)  # the workers can't import it
    finally:
        sys.path.remove(str(ROOT / "tests" / "bench"))
    job, cause, _ = bench.PLANTS[name]
    return bench.train, job, cause


@pytest.mark.alone
@pytest.mark.processes
@pytest.mark.skipif(unavailable() is not None, reason=f"no emulated network here: {unavailable()}")
@pytest.mark.parametrize("name", ["slow rank", "slow loader", "uneven batches", "slow link", "healthy"])
def test_a_planted_cause_is_named(name):
    from labkit import Emulated

    train, job, cause = planted(name)
    why, _ = launch(train, 2, job, 30, 0, world=Emulated(rate=job.rate)).results[0]
    assert why.cause == cause, why
    assert abs(total(why) - why.step_s) < 1e-9
    assert cause == "healthy" or why.cure(cause) is not None


@pytest.mark.processes
def test_two_lines_are_enough_under_torchrun(under_torchrun, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import time, torch, torch.distributed as dist\n"
        "from labkit.train.recorder import StragglerRecorder\n"
        "dist.init_process_group('gloo')\n"
        "model = torch.nn.Linear(4, 1)\n"
        "recorder = StragglerRecorder(model)\n"
        "net = torch.nn.parallel.DistributedDataParallel(model)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(20):\n"
        "    time.sleep(0.03)\n"
        "    net(torch.randn(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
        "why, kept = recorder.why(), recorder.measured()\n"
        "if dist.get_rank() == 0:\n"
        "    print(why)\n"
        "    kept.save('job.npz')\n"
        "dist.destroy_process_group()\n"
    )
    done = under_torchrun(script, timeout=200, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Mostly between steps, loading data" in done.stdout, done.stdout
    assert main(["why", str(tmp_path / "job.npz")]) == 0
