"""Lab 10.6 by other routes: eigenvalues of one period, SSP as a plain loop, exact moments of delayed SGD, capacities."""

from __future__ import annotations

import heapq

import numpy as np

K = 8


# -- stability: no path is run, a period's matrix is multiplied out -----------------------------------------------------


def radius(delays: list[int], eta: float) -> float:
    """Spectral radius of one period of w_{u+1} = w_u - eta w_{u - delay} on the last n versions."""
    n = max(delays) + 1
    period = np.eye(n)
    for delay in delays:
        step = np.eye(n, k=-1)
        step[0, 0] = 1.0
        step[0, delay] -= eta
        period = step @ period
    return float(np.abs(np.linalg.eigvals(period)).max())


def first_unstable(delays: list[int]) -> float:
    """By going up: beyond the first there may be steps that are stable again."""
    return float(next(eta for eta in np.arange(0.001, 2.1, 0.001) if radius(delays, eta) > 1 + 1e-9))


def asynchronous_delays(rng: np.random.Generator, U: int, heavy: bool) -> list[int]:
    """Delays of U updates of K workers without a barrier, event by event."""

    def time():
        return 0.005 * (1 + rng.pareto(2.0)) if heavy else 0.008 + rng.exponential(0.002)

    due = [(time(), k) for k in range(K)]
    heapq.heapify(due)
    read, delays = [0] * K, []
    for u in range(U):
        now, k = heapq.heappop(due)
        delays.append(u - read[k])
        read[k] = u + 1
        heapq.heappush(due, (now + time(), k))
    return delays


def last_size(delays: list[int], eta: float) -> float:
    w = [1.0]
    for u, delay in enumerate(delays):
        w.append(w[u] - eta * w[u - delay])
    return max(map(abs, w[-len(delays) // 4 :]))


def test_10_6_oldest(verdict, seed):
    """The mean fails on both sides, and the maximum too: wandering delays bear more, one schedule of at most 7 less."""
    constant_7, constant_4 = first_unstable([7]), first_unstable([4])
    assert abs(constant_7 - 2 * np.sin(np.pi / 30)) < 2e-3
    rounds = first_unstable(list(range(K)))  # mean 3.5
    adversary = first_unstable([*range(K), 7, 7, 7, 7])  # never more than 7
    rng = np.random.default_rng(seed)
    wander = [last_size(asynchronous_delays(rng, 4000, heavy), 1.03 * constant_7) for heavy in (False, True)]
    mean_decides = max(wander) > 1 and rounds > constant_4
    oldest_is_safe = adversary >= constant_7
    oldest_is_needed = wander[1] > 1
    word = "true" if mean_decides or (oldest_is_safe and oldest_is_needed) else "false"
    assert abs(rounds - 2 / K) < 2e-3 and abs(adversary - 0.2) < 2e-3
    assert verdict == word


# -- SSP: a loop over events, without the recurrence -------------------------------------------------------------------


def oldest_under_ssp(times, s: int) -> int:
    """Largest staleness where worker k's t-th gradient takes times(k, t) seconds and nobody leads by more than s steps."""
    finished, running, waiting = [0] * K, [], set(range(K))
    version, now, most, T = 0, 0.0, 0, 2 * s + 2
    while True:
        for k in sorted(waiting):
            if finished[k] < T and finished[k] <= min(finished) + s:
                heapq.heappush(running, (now + times(k, finished[k]), k, version))
                waiting.remove(k)
        if not running:
            return most
        now, k, read = heapq.heappop(running)
        most, version = max(most, version - read), version + 1
        finished[k] += 1
        waiting.add(k)


def test_10_6_slack(verdict, seed):
    """Staleness passes the slack, and passes (K - 1)(2s + 1) never; that much is reached."""
    rng = np.random.default_rng(seed)
    excess = []
    for s in (0, 1, 2, 5):
        bound = (K - 1) * (2 * s + 1)

        def late(k, t, s=s):
            return 1.0 if (k, t) == (0, s) else 0.1 + k * 1e-6 if k and t == 0 else 1e-5 + k * 1e-9

        reached = oldest_under_ssp(late, s)
        chance = [oldest_under_ssp(lambda k, t: rng.pareto(1.5) + 0.01, s) for _ in range(50)]
        assert max(chance) <= bound == reached
        excess.append(max(chance) - s)
    assert verdict == ("false" if min(excess) > 0 else "true")


# -- delayed SGD with additive noise: exact first and second moments ----------------------------------------------------

CURVATURES = 2 * np.logspace(0, -1.4, 10)
NOISE = (
    0.043 * CURVATURES
)  # variance of a gradient of 4 examples: label noise of 0.3 through the same features
START = np.sqrt(10 / CURVATURES)


def gradients(tau: int, batch: int, target: float, noise: bool = True, U: int = 16000) -> float:
    """Fewest gradients to an expected loss of ``target`` above the least, over a fine grid of steps.

    w_u = h_u w_0 - eta sum_j h_{u-1-j} xi_j, with h the answer to a unit push.
    """
    etas = 2.0 ** np.arange(-9, 1.01, 0.125)[:, None] / CURVATURES.max()
    U = U // batch
    s = NOISE / batch * noise
    mean = np.ones((tau + 1, len(etas), len(CURVATURES)))  # the last tau + 1 values, newest first
    push = np.zeros_like(mean)
    push[0] = 1.0
    spread = np.zeros_like(mean[0])
    arrived = np.full(len(etas), np.inf)
    with np.errstate(all="ignore"):
        for u in range(U):
            spread += push[u % (tau + 1)] ** 2
            new = u + 1  # position of the oldest, to be overwritten
            for x in (mean, push):
                x[new % (tau + 1)] = x[u % (tau + 1)] - etas * CURVATURES * x[new % (tau + 1)]
            moment = (START * mean[new % (tau + 1)]) ** 2 + etas**2 * s * spread
            below = (CURVATURES * moment).sum(axis=1) / 2 <= target
            arrived = np.where(below, np.minimum(arrived, new), np.inf)
    return float(arrived.min()) * batch


def test_10_6_noise(verdict):
    """Tuned at each target, a delay multiplies the gradients far from the least loss, and hardly near it."""
    far, near = 0.1, 0.001
    times = {tau: [gradients(tau, 1, t) / gradients(0, 1, t) for t in (far, near)] for tau in (7, 31)}
    costs = [max(t[i] for t in times.values()) for i in (0, 1)]
    falls = all(t[1] < 0.5 * t[0] for t in times.values())
    word = "true" if max(costs) < 1.3 else "true if" if falls and times[7][1] < 1.3 else "false"
    assert times[31][1] > times[7][1], "a longer delay meets the noise nearer to the least loss"
    assert verdict == word


def test_10_6_per_second(verdict, seed):
    """Gradients needed (exact moments) over gradients a second (capacities): does the barrier ever win, or lose?"""
    rng = np.random.default_rng(seed)
    X = 0.008 + rng.exponential(0.002, (K, 20000))
    ring_s, port_s = 2 * (K - 1) / K * 0.010, 0.010
    slow = X * np.where(np.arange(K) == 0, 4, 1)[:, None]
    a_second = {  # barrier, asynchronous
        "one slow, free server": (K / slow.max(axis=0).mean(), (1 / slow.mean(axis=1)).sum()),
        "one server's queue": (
            K / (X.max(axis=0).mean() + ring_s),
            min(1 / port_s, K / (0.010 + 2 * port_s)),
        ),
        "equal and noiseless": (K / 0.010, K / 0.010),
    }
    sooner = {}
    for name, (barrier, free) in a_second.items():
        noise = "noiseless" not in name
        need = [gradients(0, K, 0.02, noise, U=4000), gradients(K - 1, 1, 0.02, noise, U=4000)]
        sooner[name] = (need[0] / barrier) / (need[1] / free)
    assert sooner["one slow, free server"] > 2
    word = "true" if min(sooner.values()) > 1 else "false"
    assert sooner["one server's queue"] < 0.6 and sooner["equal and noiseless"] < 0.95
    assert verdict == word
