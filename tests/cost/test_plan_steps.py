"""The seconds of a step of every method: against the closed forms, the recurrences and the simulated world."""

import math

import numpy as np
import pytest

from labkit.collectives import hierarchical_allreduce, ring_allreduce, server_allreduce
from labkit.comm import Simulated, launch
from labkit.compress import QSGD, ErrorFeedback, PowerSGD, RandomK, Sign, TopK, compressed_mean, exchange_time
from labkit.cost import (
    Link,
    best,
    hierarchical_time,
    local_time,
    ring_time,
    server_time,
    tree_time,
)
from labkit.cost.plan import (
    SSP,
    Async,
    Backup,
    Cluster,
    Compressed,
    Job,
    LocalSGD,
    Overlapped,
    Sync,
    TwoLevel,
    defaults,
)
from labkit.cost.plan import network as nets
from labkit.cost.plan.pace import pace
from labkit.timing import (
    Constant,
    LogNormal,
    OneStraggler,
    ShiftedExponential,
    Trace,
    asynchronous,
    backup_ends,
    bsp_ends,
    buckets_ends,
    draw,
    expected_max,
    local_ends,
    overlap,
    ssp_ends,
)

LINK = Link(20e-6, 3.125e9)
JOB = Job(P=1_000_000, example_s=1e-3, b=4, overhead_s=2e-3)
HOSTS = TwoLevel(Link(5e-6, 10e9), LINK, 4)


def with_law(law, **more):
    return Job(P=1_000_000, example_s=1e-3, b=4, overhead_s=2e-3, law=law, **more)


# -- the network ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 3, 8, 13, 64])
@pytest.mark.parametrize("nbytes", [100, 4e6])
def test_the_best_all_reduce_is_the_one_that_choose_picks_and_costs_what_it_says(K, nbytes):
    wire = nets.allreduce(LINK, K, nbytes)
    assert wire.algorithm == best(K, nbytes, LINK, nets.FLAT)
    for name, form in nets.FLAT.items():
        named = nets.allreduce(LINK, K, nbytes, name)
        assert named.seconds == pytest.approx(form(K, nbytes, LINK), rel=1e-12)
        assert named.latency_s == pytest.approx(form(K, nbytes, Link(LINK.alpha, math.inf)), rel=1e-12)
        assert wire.seconds <= named.seconds * (1 + 1e-12)


@pytest.mark.parametrize("algorithm,f", [("ring", ring_allreduce), ("hierarchical", hierarchical_allreduce)])
@pytest.mark.parametrize("hosts", [1, 2, 3])
@pytest.mark.parametrize(
    "links", [((1e-5, 4e9), (1e-4, 1e8)), ((1e-5, 1e8), (1e-4, 4e9)), ((1e-3, 1e8), (1e-4, 1e9))]
)
def test_two_levels_cost_what_the_simulated_world_of_hosts_takes(algorithm, f, links, hosts):
    each, n = 3, 7200
    net = TwoLevel(Link(*links[0]), Link(*links[1]), each)
    K = hosts * each
    world = Simulated(link=net.across, inside=net.inside, hosts=tuple(k // each for k in range(K)))
    run = launch(lambda comm: f(comm, np.full(n, comm.rank + 1.0)), K, world=world)
    assert nets.allreduce(net, K, 8 * n, algorithm).seconds == pytest.approx(run.elapsed_s, rel=1e-9)


def test_two_levels_reduce_to_the_flat_forms_at_both_ends():
    assert nets.allreduce(HOSTS, 4, 1e6, "ring").seconds == pytest.approx(ring_time(4, 1e6, HOSTS.inside))
    assert nets.allreduce(HOSTS, 4, 1e6, "hierarchical").seconds == pytest.approx(
        tree_time(4, 1e6, HOSTS.inside)
    )
    flat = TwoLevel(HOSTS.inside, LINK, 1)
    for K in (1, 2, 5):
        assert nets.allreduce(flat, K, 1e6, "ring").seconds == pytest.approx(ring_time(K, 1e6, LINK))
        assert nets.push_pull(flat, K, 1e6).seconds == pytest.approx(server_time(K, 1e6, LINK, servers=K))
    both = nets.allreduce(HOSTS, 16, 1e6, "hierarchical").seconds
    assert both == pytest.approx(hierarchical_time(16, 1e6, LINK, HOSTS.inside, 4))


@pytest.mark.parametrize("K", [1, 2, 4, 5])
def test_a_push_and_pull_is_what_sharded_servers_take_in_the_simulated_world(K):
    n = 60 * K
    run = launch(
        lambda comm: server_allreduce(comm, np.full(n, 1.0 + comm.rank), servers=K), K, world=Simulated(LINK)
    )
    assert nets.push_pull(LINK, K, 8 * n).seconds == pytest.approx(run.elapsed_s, rel=1e-9)


def test_workers_that_share_a_port_push_through_it():
    shared, own = nets.push_pull(HOSTS, 16, 1e8), nets.push_pull(LINK, 16, 1e8)
    # 4 workers' vectors, less the quarter that stays on the host: 4 * 12/16 of n, against 15/16 of it
    assert shared.bandwidth_s / own.bandwidth_s == pytest.approx(4 * 12 / 15)


# -- the methods, where no time varies: exact -------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 2, 3, 8])
def test_where_nobody_varies_every_method_is_its_closed_form(K):
    cluster, t = Cluster(LINK, allreduce="ring"), JOB.compute_s(4)
    ring, pull = ring_time(K, JOB.nbytes, LINK), server_time(K, JOB.nbytes, LINK, servers=K)
    said = {
        Sync(): t + ring,
        Overlapped(1): t + ring,
        SSP(2): t + pull,
        Async(): t + pull,
        LocalSGD(5): local_time(5, 5, t, ring) / 5,
    }
    for method, seconds in said.items():
        step = method.step(JOB, cluster, K)
        assert step.seconds == pytest.approx(seconds, rel=1e-9), method.name
        assert step.wait_s == pytest.approx(0, abs=1e-12) and step.error_s == 0
        assert step.compute_s == pytest.approx(t)


@pytest.mark.parametrize("L", [1, 2, 8, 30])
@pytest.mark.parametrize("beta", [1e8, 1e9, 1e10])
def test_overlap_is_the_recurrence_of_the_buckets(L, beta):
    link, K = Link(20e-6, beta), 6
    step = Overlapped(L).step(JOB, Cluster(link, allreduce="ring"), K)
    t, bucket = JOB.compute_s(4), ring_time(K, JOB.nbytes / L, link)
    backward = overlap(t * JOB.backward_share, L * bucket, L)
    assert step.seconds == pytest.approx(t / 3 + backward.total_s, rel=1e-9)
    assert step.latency_s + step.bandwidth_s == pytest.approx(backward.exposed_s, rel=1e-9)


@pytest.mark.parametrize(
    "how", [QSGD(7, 512), TopK(0.01), ErrorFeedback(Sign()), RandomK(0.1), PowerSGD(((1000, 1000),), 2)]
)
@pytest.mark.parametrize("K", [2, 5, 8])
def test_compressed_costs_what_the_compressors_room_says(how, K):
    step = Compressed(how, coding_s=0.004).step(JOB, Cluster(LINK, allreduce="ring"), K)
    assert step.comm_s == pytest.approx(exchange_time(how, K, JOB.P, 4, LINK, 0.004), rel=1e-9)
    assert step.coding_s == 0.004


@pytest.mark.parametrize("method", [*defaults(), Async()], ids=lambda m: m.name)
def test_one_worker_alone_neither_waits_nor_communicates(method):
    job = with_law(LogNormal(1.0, 0.2))
    if method.refusal(1) is not None:
        return
    step = method.step(job, Cluster(HOSTS), 1)
    assert step.comm_s == step.wait_s == 0
    assert step.seconds == pytest.approx(job.compute_s(4) * LogNormal(1.0, 0.2).mean)


def test_a_steady_straggler_holds_up_those_that_wait_for_it_and_no_others():
    job, cluster, K = with_law(OneStraggler(Constant(1.0), 3.0)), Cluster(LINK, allreduce="ring"), 4
    t, ring = job.compute_s(4), ring_time(K, job.nbytes, LINK)
    assert Sync().step(job, cluster, K).seconds == pytest.approx(3 * t + ring, rel=1e-9)
    assert SSP(3).step(job, cluster, K).seconds == pytest.approx(3 * t + ring, rel=1e-9)
    assert LocalSGD(4).step(job, cluster, K).seconds == pytest.approx(3 * t + ring / 4, rel=1e-9)
    assert Backup(1).step(job, cluster, K).seconds == pytest.approx(t + ring, rel=1e-2)
    for method in (Sync(), SSP(3), LocalSGD(4), Backup(1), Async()):
        step = method.step(job, cluster, K)
        assert step.wait_s >= 0 and 0 < step.compute_s <= 1.5 * t * (1 + 1e-12), method.name
    rate = 3 / (t + ring) + 1 / (3 * t + ring)
    assert Async().step(job, cluster, K).seconds == pytest.approx(4 / rate, rel=1e-9)


@pytest.mark.parametrize("K", [1, 2, 5])
def test_sync_local_and_compressed_take_as_long_in_the_simulated_world(K):
    """Steady workers, one of them 1.5 times slower, a real sum in every step; no formula is known there."""
    T, n, link = 6, 1200, Link(1e-3, 1e7)
    slow = OneStraggler(Constant(1.0), 1.5)
    job = Job(P=n, example_s=0.01, b=4, itemsize=8, law=slow, overhead_s=0.002)
    how = TopK(0.05)

    def work(comm, H, compressed):
        for t in comm.steps(T):
            comm.compute(seconds=job.compute_s(4) * slow.worker(comm.rank).mean)
            x = np.sin(np.arange(n) * (comm.rank + 1.0))
            if compressed:
                compressed_mean(comm, x, how)
            elif (t + 1) % H == 0:
                ring_allreduce(comm, x)

    cluster = Cluster(link, allreduce="ring")
    for method, H, compressed in ((Sync(), 1, False), (LocalSGD(3), 3, False), (Compressed(how), 1, True)):
        run = launch(work, K, H, compressed, world=Simulated(link))
        assert T * method.step(job, cluster, K).seconds == pytest.approx(run.elapsed_s, rel=1e-9), method.name


# -- where times vary -------------------------------------------------------------------------------------------------

VARYING = [LogNormal(1.0, 0.3), ShiftedExponential(1.0, 0.5), OneStraggler(LogNormal(1.0, 0.1), 1.5)]


@pytest.mark.parametrize("law", VARYING, ids=str)
def test_sync_waits_for_the_expected_maximum(law):
    job, K = with_law(law), 6
    step = Sync().step(job, Cluster(LINK), K)
    mean = sum(law.worker(k).mean for k in range(K)) / K
    assert step.compute_s == pytest.approx(job.compute_s(4) * mean)
    assert step.compute_s + step.wait_s == pytest.approx(job.compute_s(4) * expected_max(law, K))


@pytest.mark.parametrize("law", VARYING, ids=str)
def test_every_other_method_is_within_chance_of_its_recurrence_on_other_draws(law):
    """Another seed, another number of steps. 6 standard errors of both: of these 15 checks, at a fixed seed, one fails by
    chance with a probability below 1e-6 for normal errors, and with few replicas (t of 31 degrees) below 1e-4."""
    job, cluster, K, T = with_law(law), Cluster(LINK, allreduce="ring"), 6, 400
    t = job.compute_s(4)
    ring, bucket = ring_time(K, job.nbytes, LINK), ring_time(K, job.nbytes / 8, LINK)
    X = t * np.stack([draw(law, K, T, 100 + r) for r in range(32)], axis=2)
    shares = 1 / 3 + 2 / 3 * np.arange(1, 9) / 8
    said = {
        Sync(): bsp_ends(X, ring),
        Overlapped(8): buckets_ends(X, shares, np.full(8, bucket)),
        Backup(2): backup_ends(X, 2, ring),
        SSP(3): ssp_ends(X, 3, ring),
        LocalSGD(4): local_ends(X, 4, ring),
    }
    for method, ends in said.items():
        slopes = (ends[-1] - ends[99]) / (T - 100)
        step = method.step(job, cluster, K)
        error = math.hypot(slopes.std(ddof=1) / math.sqrt(32), step.error_s)
        assert abs(step.seconds - slopes.mean()) < 6 * error, method.name


def test_the_start_is_forgotten_and_whole_rounds_are_averaged():
    def slow_at_first(first, every):
        """Steps of 5 s before step ``first``, then rounds of ``every`` steps of which the last takes 1 s more."""

        def ends(X):
            t = np.arange(X.shape[1])
            return np.cumsum(np.where(t < first, 5.0, 1.0 + (t % every == every - 1)))[:, None] + 0 * X[0]

        return ends

    for every, memory in ((1, 0), (7, 0), (1, 25), (100, 0)):
        found = pace(Constant(1.0), 4, slow_at_first(32 + 16 * memory, every), every, memory)
        assert found.mean == pytest.approx(1 + 1 / every, rel=1e-12) and found.error == 0
    for K in (2, 3000):  # whatever the slack, the draws fit into memory
        seen = []
        pace(
            Constant(1.0), K, lambda X, seen=seen: seen.append(X.size) or slow_at_first(0, 1)(X), memory=10**6
        )
        assert seen[0] <= 2**23


def test_async_is_the_throughput_of_the_timeline():
    law, K, T = LogNormal(1.0, 0.3), 5, 4000
    job = with_law(law)
    step = Async().step(job, Cluster(LINK), K)
    comm = nets.push_pull(LINK, K, job.nbytes).seconds
    line = asynchronous(job.compute_s(4) * draw(law, K, T, 5), comm)
    ends = [line.end_s[line.rank == k].max() for k in range(K)]
    rate = sum(T / end for end in ends)  # steps of single workers a second
    # a mean of 20,000 times, 31 % each: 0.2 %; 5 of these
    assert step.seconds == pytest.approx(K / rate, rel=0.011)


@pytest.mark.parametrize("law", [*VARYING, OneStraggler(Constant(1.0), 3.0)], ids=str)
@pytest.mark.parametrize("net", [LINK, HOSTS], ids=["flat", "hosts"])
def test_no_step_is_shorter_than_its_floor(law, net):
    job, cluster = with_law(law), Cluster(net)
    for method in (*defaults(), Async(), SSP(0), SSP(40), LocalSGD(64), Backup(4), Backup(7)):
        step = method.step(job, cluster, 8)
        floor = method.floor_s(job, cluster, 8)
        assert floor <= step.seconds + 6 * step.error_s + 1e-12, method.name
        assert method.simulated == (floor > 0) and floor < 3.5 * step.seconds


def test_no_slack_no_backups_and_every_step_are_bsp_on_the_same_draws():
    job, cluster = with_law(LogNormal(1.0, 0.3)), Cluster(LINK, allreduce="ring")
    alike = [m.step(job, cluster, 7) for m in (SSP(0), Backup(0), LocalSGD(1))]
    assert alike[0].seconds == pytest.approx(alike[1].seconds) == pytest.approx(alike[2].seconds)
    assert abs(alike[0].seconds - Sync().step(job, cluster, 7).seconds) < 6 * alike[0].error_s


def test_more_slack_more_local_steps_and_more_backups_never_take_longer():
    job, cluster = with_law(LogNormal(1.0, 0.4)), Cluster(LINK)
    for family in (
        [SSP(s) for s in (0, 1, 4)],
        [Backup(b) for b in (0, 1, 4)],
        [LocalSGD(H) for H in (1, 2, 8)],
    ):
        seconds = [m.step(job, cluster, 12).seconds for m in family]
        assert seconds[0] > seconds[1] > seconds[2]


def test_a_recorded_trace_is_averaged_from_its_first_step_on():
    times = draw(LogNormal(1.0, 0.3), 3, 50, 1)
    job = with_law(Trace(times))
    t, ring = job.compute_s(4), ring_time(3, job.nbytes, LINK)
    cluster = Cluster(LINK, allreduce="ring")
    assert Sync().step(job, cluster, 3).seconds == pytest.approx(bsp_ends(t * times, ring)[-1] / 50)
    assert SSP(2).step(job, cluster, 3).seconds == pytest.approx(ssp_ends(t * times, 2, ring)[-1] / 50)
    assert LocalSGD(8).step(job, cluster, 3).seconds == pytest.approx(
        local_ends(t * times[:, :48], 8, ring)[-1] / 48
    )
    with pytest.raises(ValueError, match="K must leave at most 8388608 steps to simulate in all, got K = 8"):
        LocalSGD(10**6).step(JOB, cluster, 8)
    with pytest.raises(ValueError, match="law must be a trace of 3 workers and 60 steps at least"):
        LocalSGD(60).step(job, cluster, 3)


# -- steps ------------------------------------------------------------------------------------------------------------


def test_an_unbiased_compressor_has_the_noise_scale_that_compressed_gradients_have():
    """Gradients g_k = g + noise / sqrt(b), compressed; the variance of their mean, drawn, against the plan's steps."""
    from labkit.learn import Hyperbola

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
        job = Job(P=d, example_s=1.0, b=b)
        steps = Compressed(how, omega=omega).steps(job, Hyperbola(1.0, plain), K)
        assert (steps - 1) * K * b == pytest.approx(noise_scale, rel=0.08)  # 200 draws: 1.5 %; 5 of these


def test_what_scales_the_steps():
    from labkit.learn import Hyperbola

    job, target = Job(P=100, example_s=1.0, b=8), Hyperbola(100, 64)
    assert Sync().steps(job, target, 4) == target.steps(32)
    assert Backup(1).steps(job, target, 4) == target.steps(24)
    assert LocalSGD(8, steps_factor=1.5).steps(job, target, 4) == 1.5 * target.steps(32)
    everyone = Compressed(RandomK(0.25, unbiased=True), omega=3.0)
    assert everyone.steps(job, target, 4) == pytest.approx(4 * target.steps(32))
    assert everyone.steps(job, target, 1) == target.steps(8)  # alone there is nothing to compress for
