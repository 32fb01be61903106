"""The seconds of a step of every method: against the closed forms, the recurrences and the simulated world."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from labkit.collectives import (
    Hierarchical,
    Server,
    Torus,
    best,
    hierarchical,
    ring,
    server,
    tree,
)
from labkit.comm import Simulated, launch
from labkit.compress import QSGD, ErrorFeedback, PowerSGD, RandomK, Sign, TopK, compressed_mean, wire_time
from labkit.network import Link
from labkit.network.linear import evaluate
from labkit.timing import (
    Asynchronous,
    Constant,
    LocalSteps,
    LogNormal,
    OneStraggler,
    PerWorker,
    ShiftedExponential,
    StaleSynchronous,
    Synchronous,
    Trace,
    draw,
    expected_max,
    overlap,
)
from labkit_book.planner import Case, Curve, Method, Row, Sweep, parse_method
from labkit_book.planner.estimate import estimate
from labkit_book.planner.lint import lint
from labkit_book.planner.method import DEFAULTS
from labkit_book.planner.network import ON_FLAT, Network

LINK = Link(20e-6, 3.125e9)
CASE = Case(
    parameters=1_000_000,
    example_s=1e-3,
    b_examples=4,
    overhead_s=2e-3,
    alpha_s=LINK.alpha,
    beta_bytes_per_s=LINK.beta,
    allreduce="ring",
    total_examples=1e6,
    K_workers=2,
)
FLAT = Network(LINK, LINK)
HOSTS = Network(LINK, Link(5e-6, 10e9), 4)
HOSTED = {"inside_alpha_s": 5e-6, "inside_beta_bytes_per_s": 10e9, "per_host_workers": 4}
ALL = (*DEFAULTS, "async")
BY_HYPERBOLA = replace(CASE, S_min_steps=1, B_crit_examples=1, total_examples=None)


def step(case, method, K):
    return Row(case, parse_method(method), K).step


# -- the network ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 3, 8, 13, 64])
@pytest.mark.parametrize("nbytes", [100, 4e6])
def test_the_best_all_reduce_is_the_one_that_choose_picks_and_costs_what_it_says(K, nbytes):
    sent = FLAT.allreduce(K, nbytes)
    assert sent.algorithm == best(K, nbytes, LINK, ON_FLAT)
    for name, form in ON_FLAT.items():
        named = FLAT.allreduce(K, nbytes, name)
        assert named.seconds == pytest.approx(evaluate(form, K, nbytes, LINK), rel=1e-12)
        endless = evaluate(form, K, nbytes, Link(LINK.alpha, math.inf))
        assert named.latency_s == pytest.approx(endless, rel=1e-12)
        assert sent.seconds <= named.seconds * (1 + 1e-12)


@pytest.mark.parametrize("algorithm,f", [("ring", ring.allreduce), ("hierarchical", hierarchical.allreduce)])
@pytest.mark.parametrize("hosts", [1, 2, 3])
@pytest.mark.parametrize(
    "links", [((1e-5, 4e9), (1e-4, 1e8)), ((1e-5, 1e8), (1e-4, 4e9)), ((1e-3, 1e8), (1e-4, 1e9))]
)
def test_two_levels_cost_what_the_simulated_world_of_hosts_takes(algorithm, f, links, hosts):
    each, n = 3, 7200
    net = Network(Link(*links[1]), Link(*links[0]), each)
    K = hosts * each
    world = Simulated(link=net.link, inside=net.inside, hosts=tuple(k // each for k in range(K)))
    run = launch(lambda comm: f(comm, np.full(n, comm.rank + 1.0)), K, world=world)
    assert net.allreduce(K, 8 * n, algorithm).seconds == pytest.approx(run.elapsed_s, rel=1e-9)


def test_two_levels_reduce_to_the_flat_forms_at_both_ends():
    assert HOSTS.allreduce(4, 1e6, "ring").seconds == pytest.approx(ring.time(4, 1e6, HOSTS.inside))
    assert HOSTS.allreduce(4, 1e6, "hierarchical").seconds == pytest.approx(tree.time(4, 1e6, HOSTS.inside))
    flat = Network(LINK, HOSTS.inside, 1)
    for K in (1, 2, 5):
        assert flat.allreduce(K, 1e6, "ring").seconds == pytest.approx(ring.time(K, 1e6, LINK))
        assert flat.push_pull(K, 1e6).seconds == pytest.approx(server.time(K, 1e6, LINK))
    both = HOSTS.allreduce(16, 1e6, "hierarchical").seconds
    assert both == pytest.approx(Hierarchical(4, HOSTS.inside).time(16, 1e6, LINK))


def test_the_best_on_hosts_is_the_least_of_three_and_on_hosts_that_are_not_full_of_two():
    long, ragged = HOSTS.allreduce(16, 1e6), HOSTS.allreduce(14, 1e6)
    assert long.algorithm == "torus"
    assert long.seconds == pytest.approx(Torus(4, HOSTS.inside).time(16, 1e6, LINK), rel=1e-12)
    assert long.seconds <= min(HOSTS.allreduce(16, 1e6, name).seconds for name in ("ring", "hierarchical"))
    assert ragged.algorithm in ("ring", "hierarchical")
    with pytest.raises(ValueError, match="cols must divide"):
        HOSTS.allreduce(14, 1e8, "torus")


def test_a_measured_all_reduce_costs_what_its_curve_predicts_and_everything_else_the_link(tmp_path):
    points = [
        [K, n, ring.time(K, n, Link(30e-6, 1e9)) * 1.1] for K in (2, 4, 8) for n in np.logspace(2, 9, 15)
    ]
    case = replace(CASE, allreduce="best", sweep=points, beta_bytes_per_s=None, K_workers=(2, 4, 6, 8))
    curve = Curve(Sweep(tuple(map(tuple, points))))
    for K in (2, 6, 8):
        sent = case.network.allreduce(K, 3e6)
        assert sent.algorithm == "measured" and sent.seconds == pytest.approx(curve.predict(K, 3e6).seconds)
        assert sent.seconds == pytest.approx(1.1 * ring.time(K, 3e6, Link(30e-6, 1e9)), rel=0.1)
    assert case.network.allreduce(1, 3e6).seconds == 0
    assert case.network.link.beta == pytest.approx(1e9 / 1.1, rel=0.01)
    assert case.network.allreduce(4, 3e6, "ring").algorithm == "ring"
    # the job file stands alone
    again = Case.from_json(json.dumps(case.to_dict()))
    assert again == case and again.network.allreduce(8, 1e7) == case.network.allreduce(8, 1e7)
    assert Row(case, parse_method("sync"), 8).step.algorithm == "measured"
    assert any("Alpha-beta is not contradicted" in said for said in lint(case))
    assert any("K = 64 is beyond" in said for said in lint(replace(case, K_workers=64)))
    with pytest.raises(ValueError, match="beta_bytes_per_s must be given, or sweep"):
        replace(CASE, beta_bytes_per_s=None)
    with pytest.raises(ValueError, match="at least four"):
        replace(CASE, sweep=points[:2])


@pytest.mark.parametrize("K", [1, 2, 4, 5])
def test_a_push_and_pull_is_what_sharded_servers_take_in_the_simulated_world(K):
    n = 60 * K
    run = launch(
        lambda comm: Server(K).allreduce(comm, np.full(n, 1.0 + comm.rank)), K, world=Simulated(LINK)
    )
    assert FLAT.push_pull(K, 8 * n).seconds == pytest.approx(run.elapsed_s, rel=1e-9)


def test_workers_that_share_a_port_push_through_it():
    shared, own = HOSTS.push_pull(16, 1e8), FLAT.push_pull(16, 1e8)
    # 4 workers' vectors, less the quarter that stays on the host: 4 * 12/16 of n, against 15/16 of it
    assert shared.bandwidth_s / own.bandwidth_s == pytest.approx(4 * 12 / 15)


# -- the methods, where no time varies: exact -------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 3, 8])
def test_where_nobody_varies_every_method_is_its_closed_form(K):
    t = CASE.compute_s(4)
    summed, pull = ring.time(K, CASE.nbytes, LINK), server.time(K, CASE.nbytes, LINK)
    said = {
        "sync": t + summed,
        "overlapped:1": t + summed,
        "ssp:2": t + pull,
        "async": t + pull,
        "local:5": t + summed / 5,
    }
    for method, seconds in said.items():
        took = step(CASE, method, K)
        assert took.seconds == pytest.approx(seconds, rel=1e-9), method
        assert took.wait_s == pytest.approx(0, abs=1e-12) and took.error_s == 0
        assert took.compute_s == pytest.approx(t)


@pytest.mark.parametrize("L", [1, 2, 8, 30])
@pytest.mark.parametrize("beta", [1e8, 1e9, 1e10])
def test_overlap_is_the_recurrence_of_the_buckets(L, beta):
    link, K = Link(20e-6, beta), 6
    took = step(replace(CASE, beta_bytes_per_s=beta), f"overlapped:{L}", K)
    t, bucket = CASE.compute_s(4), ring.time(K, CASE.nbytes / L, link)
    backward = overlap(t * CASE.backward_share, L * bucket, L)
    assert took.seconds == pytest.approx(t / 3 + backward.total_s, rel=1e-9)
    assert took.latency_s + took.bandwidth_s == pytest.approx(backward.exposed_s, rel=1e-9)


@pytest.mark.parametrize(
    "how", [QSGD(7, 512), TopK(0.01), ErrorFeedback(Sign()), RandomK(0.1), PowerSGD(((1000, 1000),), 2)]
)
@pytest.mark.parametrize("K", [2, 5, 8])
def test_compressed_costs_what_the_compressors_room_says(how, K):
    took = step(CASE, Method(how=how, coding_s=0.004), K)
    assert took.comm_s == pytest.approx(0.004 + wire_time(how, K, CASE.parameters, 4, LINK), rel=1e-9)
    assert took.coding_s == 0.004


def test_what_has_no_price_is_refused():
    for fields in ({"buckets": 8}, {"how": TopK(0.01)}):
        with pytest.raises(
            ValueError, match="policy must be sync where gradients are overlapped or compressed"
        ):
            Method(policy=StaleSynchronous(3), **fields)
    with pytest.raises(ValueError, match="and they can't be both"):
        Method(buckets=8, how=TopK(0.01))


@pytest.mark.parametrize("method", ALL)
def test_one_worker_alone_neither_waits_nor_communicates(method):
    law = LogNormal(1.0, 0.2)
    row = Row(replace(CASE, law=law, **HOSTED), parse_method(method), 1)
    if row.refusal is None:
        assert row.step.comm_s == row.step.wait_s == 0
        assert row.step.seconds == pytest.approx(CASE.compute_s(4) * law.mean)


def test_a_steady_straggler_holds_up_those_that_wait_for_it_and_no_others():
    case, K = replace(CASE, law="one:3"), 4
    t, summed = case.compute_s(4), ring.time(K, case.nbytes, LINK)
    took = {method: step(case, method, K) for method in ("sync", "ssp:3", "local:4", "backup:1", "async")}
    assert took["sync"].seconds == pytest.approx(3 * t + summed, rel=1e-9)
    assert took["ssp:3"].seconds == pytest.approx(3 * t + summed, rel=1e-9)
    assert took["local:4"].seconds == pytest.approx(3 * t + summed / 4, rel=1e-9)
    assert took["backup:1"].seconds == pytest.approx(t + summed, rel=1e-2)
    for method, each in took.items():
        assert each.wait_s >= 0 and 0 < each.compute_s <= 1.5 * t * (1 + 1e-12), method
    rate = 3 / (t + summed) + 1 / (3 * t + summed)
    assert took["async"].seconds == pytest.approx(4 / rate, rel=1e-9)


@pytest.mark.parametrize("K", [1, 2, 5])
def test_sync_local_and_compressed_take_as_long_in_the_simulated_world(K):
    """Steady workers, one of them 1.5 times slower, a real sum in every step; no formula is known there."""
    T, n, link, how = 6, 1200, Link(1e-3, 1e7), TopK(0.05)
    slow = OneStraggler(Constant(1.0), 1.5)
    case = replace(
        CASE, parameters=n, example_s=0.01, element_bytes=8, law=slow, alpha_s=link.alpha, beta_bytes_per_s=link.beta
    )  # fmt: skip

    def work(comm, H, compressed):
        for t in comm.steps(T):
            comm.compute(seconds=case.compute_s(4) * slow.worker(comm.rank).mean)
            x = np.sin(np.arange(n) * (comm.rank + 1.0))
            if compressed:
                compressed_mean(comm, x, how)
            elif (t + 1) % H == 0:
                ring.allreduce(comm, x)

    for method, H, compressed in (("sync", 1, False), ("local:3", 3, False), (Method(how=how), 1, True)):
        run = launch(work, K, H, compressed, world=Simulated(link))
        assert T * step(case, method, K).seconds == pytest.approx(run.elapsed_s, rel=1e-9), method


# -- where times vary -------------------------------------------------------------------------------------------------

VARYING = [LogNormal(1.0, 0.3), ShiftedExponential(1.0, 0.5), OneStraggler(LogNormal(1.0, 0.1), 1.5)]


@pytest.mark.parametrize("law", VARYING, ids=str)
def test_sync_waits_for_the_expected_maximum(law):
    took, t = step(replace(CASE, law=law), "sync", 6), CASE.compute_s(4)
    mean = sum(law.worker(k).mean for k in range(6)) / 6
    assert took.compute_s == pytest.approx(t * mean)
    assert took.compute_s + took.wait_s == pytest.approx(t * expected_max(law, 6))


@pytest.mark.parametrize("law", VARYING, ids=str)
def test_every_other_method_is_within_chance_of_its_recurrence_on_other_draws(law):
    """Another seed, another number of steps. 6 standard errors of both: of these 15 checks, at a fixed seed, one fails by
    chance with a probability below 1e-6 for normal errors, and with few replicas (t of 31 degrees) below 1e-4."""
    case, K, T, t = replace(CASE, law=law), 6, 400, CASE.compute_s(4)
    summed, bucket = ring.time(K, case.nbytes, LINK), ring.time(K, case.nbytes / 8, LINK)
    X = t * np.stack([draw(law, K, T, 100 + r) for r in range(32)], axis=2)
    shares = 1 / 3 + 2 / 3 * np.arange(1, 9) / 8
    through = [
        f * X.max(axis=0) + (8 - i) * bucket for i, f in enumerate(shares)
    ]  # if the channel rests no more
    said = {
        "sync": Synchronous().ends(X, summed),
        "overlapped:8": np.cumsum(np.max(through, axis=0), axis=0),
        "backup:2": Synchronous(2).ends(X, summed),
        "ssp:3": StaleSynchronous(3).ends(X, summed),
        "local:4": LocalSteps(4).ends(X, summed),
    }
    for method, ends in said.items():
        slopes = (ends[-1] - ends[99]) / (T - 100)
        took = step(case, method, K)
        error = math.hypot(slopes.std(ddof=1) / math.sqrt(32), took.error_s)
        assert abs(took.seconds - slopes.mean()) < 6 * error, method


def test_the_start_is_forgotten_and_whole_rounds_are_averaged():
    def slow_at_first(first, every):
        """Steps of 5 s before step ``first``, then rounds of ``every`` steps of which the last takes 1 s more."""

        def ends(X):
            t = np.arange(X.shape[1])
            return np.cumsum(np.where(t < first, 5.0, 1.0 + (t % every == every - 1)))[:, None] + 0 * X[0]

        return ends

    for every, memory in ((1, 0), (7, 0), (1, 25), (100, 0)):
        found = estimate(Constant(1.0), 4, slow_at_first(32 + 16 * memory, every), every, memory)
        assert found.mean == pytest.approx(1 + 1 / every, rel=1e-12) and found.error == 0
    for K in (2, 3000):  # whatever the slack, the draws fit into memory
        seen = []
        estimate(
            Constant(1.0), K, lambda X, seen=seen: seen.append(X.size) or slow_at_first(0, 1)(X), memory=10**6
        )
        assert seen[0] <= 2**23


@pytest.mark.parametrize(
    "policy", [Synchronous(1), Synchronous(3), StaleSynchronous(2), LocalSteps(4)], ids=str
)
def test_of_steady_workers_alike_a_few_stand_for_all(policy):
    """Eleven workers of three speeds, all simulated, against the few that the planner keeps."""
    times = [1.0] * 5 + [1.5] * 2 + [3.1] * 4
    backups = getattr(policy, "backups", 0)
    ends = policy.ends(np.array(times)[:, None] * np.ones(128), 0.25)
    law = PerWorker(tuple(Constant(t) for t in times))
    found = estimate(law, 11, lambda X: policy.ends(X, 0.25), 4, 0, backups)
    assert found.mean == pytest.approx((ends[-1] - ends[31]) / 96, rel=1e-12) and found.error == 0


def test_async_is_the_throughput_of_the_timeline():
    law, K, T = LogNormal(1.0, 0.3), 5, 4000
    comm = FLAT.push_pull(K, CASE.nbytes).seconds
    line = Asynchronous().timeline(CASE.compute_s(4) * draw(law, K, T, 5), comm)
    ends = [line.end_s[line.rank == k].max() for k in range(K)]
    rate = sum(T / end for end in ends)  # steps of single workers a second
    # a mean of 20,000 times, 31 % each: 0.2 %; 5 of these
    assert step(replace(CASE, law=law), "async", K).seconds == pytest.approx(K / rate, rel=0.011)


@pytest.mark.parametrize("law", [*VARYING, OneStraggler(Constant(1.0), 3.0)], ids=str)
@pytest.mark.parametrize("hosts", [{}, HOSTED], ids=["flat", "hosts"])
def test_no_step_is_shorter_than_its_floor(law, hosts):
    case = replace(CASE, law=law, allreduce="best", **hosts)
    for method in (*ALL, "ssp:0", "ssp:40", "local:64", "backup:4", "backup:7"):
        row = Row(case, parse_method(method), 8)
        assert row.floor_s <= row.step.seconds + 6 * row.step.error_s + 1e-12, method
        assert row.method.simulated == (row.floor_s > 0) and row.floor_s < 3.5 * row.step.seconds


def test_no_slack_and_every_step_are_bsp_on_the_same_draws():
    case = replace(CASE, law="lognormal:0.3")
    ssp, local, sync = (step(case, method, 7) for method in ("ssp:0", "local:1", "sync"))
    assert ssp.seconds == pytest.approx(local.seconds)
    assert abs(ssp.seconds - sync.seconds) < 6 * ssp.error_s


def test_more_slack_more_local_steps_and_more_backups_never_take_longer():
    case = replace(CASE, law="lognormal:0.4")
    for family in ("ssp:0 ssp:1 ssp:4", "sync backup:1 backup:4", "local:1 local:2 local:8"):
        seconds = [step(case, method, 12).seconds for method in family.split()]
        assert seconds[0] > seconds[1] > seconds[2]


def test_a_recorded_trace_is_averaged_from_its_first_step_on():
    times = draw(LogNormal(1.0, 0.3), 3, 50, 1)
    case, t, summed = replace(CASE, law=Trace(times)), CASE.compute_s(4), ring.time(3, CASE.nbytes, LINK)
    said = {
        "sync": Synchronous().ends(t * times, summed)[-1] / 50,
        "ssp:2": StaleSynchronous(2).ends(t * times, summed)[-1] / 50,
        "local:8": LocalSteps(8).ends(t * times[:, :48], summed)[-1] / 48,
    }
    for method, seconds in said.items():
        assert step(case, method, 3).seconds == pytest.approx(seconds)
    with pytest.raises(ValueError, match="K must leave at most 8388608 steps to simulate in all, got K = 8"):
        step(CASE, "local:1000000", 8)
    with pytest.raises(ValueError, match="law must be a trace of 3 workers and 60 steps at least"):
        step(case, "local:60", 3)


# -- steps ------------------------------------------------------------------------------------------------------------


def test_an_unbiased_compressor_has_the_noise_scale_that_compressed_gradients_have():
    """Gradients g_k = g + noise / sqrt(b), compressed; the variance of their mean, drawn, against the plan's steps."""
    rng, d, K, b, draws = np.random.default_rng(2), 64, 5, 3, 200
    g, sigma = rng.normal(size=d), 2.0
    for how, common in ((QSGD(1), False), (RandomK(0.25, unbiased=True), True)):
        # QSGD's omega depends on the vector: take what it has here. Random-k's is 3 for every vector.
        spread, added, size = 0.0, 0.0, 0.0
        for _ in range(draws):
            mine = g + sigma * rng.normal(size=(K, d)) / math.sqrt(b)
            seed = int(rng.integers(2**31))
            out = []
            for k in range(K):
                own = np.random.default_rng([seed, 0 if common else k])
                again = np.random.default_rng([seed, 0])
                out.append(how.decode(how.encode(mine[k], own), d, np.float64, again))
                added += np.sum((out[-1] - mine[k]) ** 2)
                size += np.sum(mine[k] ** 2)
            spread += np.sum((np.mean(out, axis=0) - g) ** 2)
        omega, signal = added / size, g @ g
        noise_scale = spread / draws * K * b / signal
        plain = sigma**2 * d / signal
        case = replace(BY_HYPERBOLA, b_examples=b, S_min_steps=1.0, B_crit_examples=plain)
        steps = Row(case, Method(how=how, omega=omega), K).steps
        assert (steps - 1) * K * b == pytest.approx(noise_scale, rel=0.08)  # 200 draws: 1.5 %; 5 of these


def test_what_scales_the_steps():
    case = replace(BY_HYPERBOLA, b_examples=8, S_min_steps=100, B_crit_examples=64)

    def steps(method, K=4):
        return Row(case, parse_method(method), K).steps

    assert case.steps(32) == 300
    assert steps("sync") == 300
    assert steps("backup:1") == pytest.approx(100 * (1 + 64 / 24))
    assert steps({"method": "local:8", "steps_factor": 1.5}) == 450
    assert steps("randomk:0.25") == pytest.approx(4 * 300)
    assert steps("randomk:0.25", K=1) == case.steps(8)  # alone there is nothing to compress for
