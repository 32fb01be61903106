"""Many runs for one figure: all policies on the same times, for every seed.

Symbols: K workers, T steps, P policies, S seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from labkit import machine
from labkit.checks import FloatArray, integer, number
from labkit.timing.draws import MANY, Streams, compiled, draw
from labkit.timing.laws import Fleet
from labkit.timing.policy import Asynchronous, Policy, StaleSynchronous, Synchronous


def sweep(
    policies: Sequence[Policy], law: Fleet, K: int, T: int, seeds: Sequence[int], comm_s: float = 0.0
) -> FloatArray:
    """(P, S, T) seconds at which the slowest of K workers has finished each step: of every policy, from every seed.

    ``[p, s]`` is ``policies[p].ends(draw(law, K, T, seeds[s]), comm_s)``, but times are drawn once for all policies, and all
    cores are used. Where numba is installed, rounds, slack and no barrier advance with the steps as they are drawn, and no
    matrix of times is held; backups and local steps want it whole. ValueError as from ``draw`` and ``ends``.

    >>> law = ShiftedExponential(shift=0.01, scale=0.02)
    >>> ends = sweep([StaleSynchronous(s) for s in (0, 4)], law, K=8, T=100, seeds=range(5))
    >>> ends.shape, bool((ends[1] <= ends[0]).all())
    ((2, 5, 100), True)
    """
    if not len(policies) or not len(seeds):
        raise ValueError(f"policies and seeds must not be empty, got {len(policies)} and {len(seeds)}")
    integer("T", T, least=1)
    number("comm_s", comm_s, least=0)
    law.groups(K)  # refuses a K that the law does not fit
    slacks = [_slack(policy, T) for policy in policies]
    work = (
        len(seeds) * T * (K + 100 * len(policies))
    )  # to call numpy once more costs as much as a hundred draws
    quick = work >= MANY and None not in slacks and compiled()
    out = np.empty((len(policies), len(seeds), T))

    def run(s: int) -> None:
        if not (quick and _in_blocks(slacks, Streams(law, K, seeds[s]), K, comm_s, out[:, s])):
            X = draw(law, K, T, seeds[s])
            for p, policy in enumerate(policies):
                out[p, s] = policy.ends(X, comm_s)

    # numpy's way holds Python's lock too often for threads to help
    with ThreadPoolExecutor(min(machine.cores(), len(seeds)) if quick else 1) as pool:
        list(pool.map(run, range(len(seeds))))
    return out


def _slack(policy: Policy, T: int) -> int | None:
    """The slack that means the same, or None."""
    match policy:
        case Synchronous(backups=0):
            return 0
        case StaleSynchronous(slack=slack):
            return min(slack, T)
        case Asynchronous():
            return T
    return None


def _in_blocks(slacks: Sequence[int | None], streams: Streams, K: int, comm_s: float, M: FloatArray) -> bool:
    """Fills M (P, T), a few steps of everybody at a time; False if some time was not finite, or negative."""
    n, T = streams.steps, M.shape[1]
    block, F, ends = np.empty((min(n, T), K)), np.zeros((len(M), K)), np.empty_like(M)
    advance, worst = compiled().stale_synchronous_inplace, compiled().LARGEST
    with ThreadPoolExecutor(machine.cores()) as pool:
        for first in range(0, T, n):
            X = block[: T - first]
            streams.fill(X, pool.map)
            if max(advance(X, F[p], ends[p], first, s, comm_s) for p, s in enumerate(slacks)) > worst:
                return False
    M[:] = ends
    return bool(np.isfinite(ends).all())
