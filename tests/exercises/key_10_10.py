"""Key of problem set 10.10: solutions, and the mistakes that students make."""

from __future__ import annotations

import numpy as np

from labkit.collectives import ring
from labkit.exercises.sets.s10_10 import _agree_case, _flip_case, _overlapped_case
from labkit.learn import Hyperbola
from labkit.network import Link

# -- 1 --------------------------------------------------------------------------------------------------------------


def bill(K, b, S_min, B_crit, compute_s, comm_s, price_per_hour):
    time_s = Hyperbola(S_min, B_crit).steps(K * b) * (compute_s + comm_s)
    return time_s, K * time_s / 3600 * price_per_hour, compute_s / (compute_s + comm_s)


def bill_own_batch(K, b, S_min, B_crit, compute_s, comm_s, price_per_hour):
    return bill(1, b, S_min, B_crit, compute_s, comm_s, K * price_per_hour)


def bill_one_worker(K, b, S_min, B_crit, compute_s, comm_s, price_per_hour):
    return bill(K, b, S_min, B_crit, compute_s, comm_s, price_per_hour / K)


def bill_per_second(K, b, S_min, B_crit, compute_s, comm_s, price_per_hour):
    return bill(K, b, S_min, B_crit, compute_s, comm_s, 3600 * price_per_hour)


def bill_speedup(K, b, S_min, B_crit, compute_s, comm_s, price_per_hour):
    time_s, price, efficiency = bill(K, b, S_min, B_crit, compute_s, comm_s, price_per_hour)
    return time_s, price, K * efficiency


def bill_share_of_comm(K, b, S_min, B_crit, compute_s, comm_s, price_per_hour):
    time_s, price, efficiency = bill(K, b, S_min, B_crit, compute_s, comm_s, price_per_hour)
    return time_s, price, 1 - efficiency


# -- 2 --------------------------------------------------------------------------------------------------------------


def choose(b, compute_s, S_min, B_crit, nbytes, alpha, beta, Ks, power=2, batch=True, comm=True):
    times = []
    for K in Ks:
        step = compute_s + comm * ring.time(K, nbytes, Link(alpha, beta))
        times.append(Hyperbola(S_min, B_crit).steps(K * b if batch else b) * step)
    times, Ks = np.array(times), np.array(Ks)
    return tuple(int(Ks[np.argmin(s)]) for s in (times, Ks * times, Ks * times**power))


def choose_K(b, compute_s, S_min, B_crit, nbytes, alpha, beta, Ks):
    return choose(b, compute_s, S_min, B_crit, nbytes, alpha, beta, Ks)


def choose_free_network(b, compute_s, S_min, B_crit, nbytes, alpha, beta, Ks):
    return choose(b, compute_s, S_min, B_crit, nbytes, alpha, beta, Ks, comm=False)


def choose_constant_steps(b, compute_s, S_min, B_crit, nbytes, alpha, beta, Ks):
    return choose(b, compute_s, S_min, B_crit, nbytes, alpha, beta, Ks, batch=False)


def choose_critical_batch(b, compute_s, S_min, B_crit, nbytes, alpha, beta, Ks):
    fastest, cheapest, _ = choose(b, compute_s, S_min, B_crit, nbytes, alpha, beta, Ks)
    return fastest, cheapest, min(Ks, key=lambda K: abs(K * b - B_crit))


def choose_no_latency(b, compute_s, S_min, B_crit, nbytes, alpha, beta, Ks):
    return choose(b, compute_s, S_min, B_crit, nbytes, 0.0, beta, Ks)


def choose_swapped(b, compute_s, S_min, B_crit, nbytes, alpha, beta, Ks):
    fastest, cheapest, knee = choose(b, compute_s, S_min, B_crit, nbytes, alpha, beta, Ks)
    return cheapest, fastest, knee


# -- 3 --------------------------------------------------------------------------------------------------------------


def overlapped_step(forward_s, layers_s, nbytes, K, alpha, beta):
    backward_s = float(np.sum(layers_s))
    sums = [float(ring.time(K, n, Link(alpha, beta))) for n in nbytes]
    channel_free = 0.0
    for ready, seconds in zip(np.cumsum(layers_s), sums, strict=True):
        channel_free = max(channel_free, ready) + seconds
    return forward_s + max(channel_free, backward_s)


def overlapped_serial(forward_s, layers_s, nbytes, K, alpha, beta):
    return forward_s + sum(layers_s) + sum(ring.time(K, n, Link(alpha, beta)) for n in nbytes)


def overlapped_last_only(forward_s, layers_s, nbytes, K, alpha, beta):
    return forward_s + sum(layers_s) + ring.time(K, nbytes[-1], Link(alpha, beta))


def overlapped_larger(forward_s, layers_s, nbytes, K, alpha, beta):
    return forward_s + max(sum(layers_s), sum(ring.time(K, n, Link(alpha, beta)) for n in nbytes))


def overlapped_never_idle(forward_s, layers_s, nbytes, K, alpha, beta):
    sums = [ring.time(K, n, Link(alpha, beta)) for n in nbytes]
    return forward_s + max(sum(layers_s) + sums[-1], layers_s[0] + sum(sums))


def overlapped_all_at_once(forward_s, layers_s, nbytes, K, alpha, beta):
    ready = forward_s + np.cumsum(layers_s)
    return max(r + ring.time(K, n, Link(alpha, beta)) for r, n in zip(ready, nbytes, strict=True))


def overlapped_from_zero(forward_s, layers_s, nbytes, K, alpha, beta):
    return overlapped_step(0.0, layers_s, nbytes, K, alpha, beta)


# -- 4 --------------------------------------------------------------------------------------------------------------


def flip(compute_s, alpha, a, c):
    (ma, na, ca, fa), (mc, nc, cc, fc) = a, c
    more_fixed = fc * (compute_s + mc * alpha + cc) - fa * (compute_s + ma * alpha + ca)
    fewer_bytes = fa * na - fc * nc
    return fewer_bytes / more_fixed if more_fixed * fewer_bytes > 0 else "never"


def flip_no_steps(compute_s, alpha, a, c):
    return flip(compute_s, alpha, (*a[:3], 1.0), (*c[:3], 1.0))


def flip_no_messages(compute_s, alpha, a, c):
    return flip(compute_s, 0.0, a, c)


def flip_no_compute(compute_s, alpha, a, c):
    return flip(0.0, alpha, a, c)


def flip_negative(compute_s, alpha, a, c):
    (ma, na, ca, fa), (mc, nc, cc, fc) = a, c
    return (fa * na - fc * nc) / (
        fc * (compute_s + mc * alpha + cc) - fa * (compute_s + ma * alpha + ca) or 1
    )


def flip_always(compute_s, alpha, a, c):
    found = flip(compute_s, alpha, a, c)
    return 1e9 if found == "never" else found


def flip_inverse(compute_s, alpha, a, c):
    found = flip(compute_s, alpha, a, c)
    return found if found == "never" else 1 / found


# -- 5 --------------------------------------------------------------------------------------------------------------


def account(loaded, ready, left, middle=np.median, among_all=False, summed=True):
    begun = np.append(0.0, left[:-1])
    load, work, sums = loaded - begun, ready - loaded, left - ready.max(axis=0)
    rank = int(np.bincount(ready.argmax(axis=0)).argmax())

    def cured(part):
        part = part.copy()
        part[rank] = middle(part if among_all else np.delete(part, rank, axis=0), axis=0)
        return part

    def seconds(a, c):
        return float(((a + c).max(axis=0) + summed * sums).sum())

    return (rank, seconds(load, work), seconds(cured(load), work), seconds(load, cured(work)),
            seconds(cured(load), cured(work)))  # fmt: skip


def account_without_sum(loaded, ready, left):
    return account(loaded, ready, left, summed=False)


def account_among_all(loaded, ready, left):
    return account(loaded, ready, left, among_all=True)


def account_mean(loaded, ready, left):
    return account(loaded, ready, left, middle=np.mean)


def account_swapped(loaded, ready, left):
    rank, now, loader, clock, both = account(loaded, ready, left)
    return rank, now, clock, loader, both


def account_lateness(loaded, ready, left):
    """Takes off how late the rank was, though somebody else is then the last."""
    rank, now, *_ = account(loaded, ready, left)
    begun = np.append(0.0, left[:-1])
    load, work = loaded - begun, ready - loaded
    saved = [(p[rank] - np.median(np.delete(p, rank, axis=0), axis=0)).sum() for p in (load, work)]
    return rank, now, now - saved[0], now - saved[1], now - sum(saved)


def account_drops_the_rank(loaded, ready, left):
    rank, *_ = account(loaded, ready, left)
    gone = account(np.delete(loaded, rank, axis=0), np.delete(ready, rank, axis=0), left)
    return (rank, *gone[1:])


# -- 6 --------------------------------------------------------------------------------------------------------------


def agree(comm, seconds):
    mine = np.zeros(comm.K)
    mine[comm.rank] = seconds
    found = ring.allreduce(comm, mine)
    return int(found.argmax()), float(found.max() / np.median(found))


def agree_mean(comm, seconds):
    mine = np.zeros(comm.K)
    mine[comm.rank] = seconds
    found = ring.allreduce(comm, mine)
    return int(found.argmax()), float(found.max() / found.mean())


def agree_alone(comm, seconds):
    return comm.rank, 1.0


def agree_last_rank(comm, seconds):
    return comm.K - 1, agree(comm, seconds)[1]


def agree_fastest(comm, seconds):
    mine = np.zeros(comm.K)
    mine[comm.rank] = seconds
    found = ring.allreduce(comm, mine)
    return int(found.argmax()), float(found.max() / found.min())


def agree_own_factor(comm, seconds):
    mine = np.zeros(comm.K)
    mine[comm.rank] = seconds
    found = ring.allreduce(comm, mine)
    return int(found.argmax()), float(seconds / np.median(found))


def agree_shouts(comm, seconds):
    """Sends a thousand copies, to be sure."""
    mine = np.zeros((1000, comm.K))
    mine[:, comm.rank] = seconds
    found = ring.allreduce(comm, mine.ravel())[: comm.K]
    return int(found.argmax()), float(found.max() / np.median(found))


SOLUTIONS = {
    "10.10-1": bill,
    "10.10-2": choose_K,
    "10.10-3": overlapped_step,
    "10.10-4": flip,
    "10.10-5": account,
    "10.10-6": agree,
}
MUTANTS = {
    "10.10-1": [bill_own_batch, bill_one_worker, bill_per_second, bill_speedup, bill_share_of_comm],
    "10.10-2": [
        choose_free_network, choose_constant_steps, choose_critical_batch, choose_no_latency, choose_swapped,
    ],
    "10.10-3": [
        overlapped_serial, overlapped_last_only, overlapped_larger, overlapped_never_idle, overlapped_all_at_once,
        overlapped_from_zero,
    ],
    "10.10-4": [flip_no_steps, flip_no_messages, flip_no_compute, flip_negative, flip_always, flip_inverse],
    "10.10-5": [
        account_without_sum, account_among_all, account_mean, account_swapped, account_lateness, account_drops_the_rank,
    ],
    "10.10-6": [agree_mean, agree_alone, agree_last_rank, agree_fastest, agree_own_factor, agree_shouts],
}  # fmt: skip


def hidden_overlapped(rng):
    yield _overlapped_case(
        0.0, [0.001] * 20, [1e8] + [1e3] * 19, 16, 1e-6, 1e9, "a first bucket that holds up all"
    )


def hidden_flip(rng):
    yield _flip_case(0.2, 1e-3, (14.0, 7e6, 0.0, 1.0), (14.0, 5e6, 0.0, 1.0), "equal but for the bytes")


def hidden_agree(rng):
    yield _agree_case(rng.uniform(0.01, 0.02, size=9))


HIDDEN = {"10.10-3": hidden_overlapped, "10.10-4": hidden_flip, "10.10-6": hidden_agree}
