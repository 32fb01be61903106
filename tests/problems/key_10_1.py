"""Key of problem set 10.1: solutions, and the mistakes that students make."""

import json

import numpy as np

from labkit.collectives import ring

# -- 1 ------------------------------------------------------------------------------------------------------

INPUTS = {  # four rows on two workers; three and one; two and one, all alike; two large sums that cancel
    "A": ([[(1, 1), (1, 3)], [(1, 2), (1, 4)]], 5.0, 10.0),
    "B": ([[(1, -1)] * 3, [(1, 2)]], 0.0, 0.0),
    "C": ([[(1, 1)] * 2, [(1, 1)] * 2, [(1, 1)]], 0.0, 0.0),
    "D": ([[(1e5, 1e5)], [(1e5, -1e5)]], 1e-10, 0.0),
}


def inputs(**other):
    return {**INPUTS, **other}


# -- 2 ------------------------------------------------------------------------------------------------------


def tilt(f, G, tau, sizes, **other):
    rows = np.exp(tau * f) / np.exp(tau * f).sum()
    owner = np.repeat(np.arange(len(sizes)), sizes)
    workers = np.bincount(owner, rows)
    return {"rows": rows, "gradient": rows @ G, "workers": workers, "slope": f.var() / 2} | {
        step: value(f, G, tau, np.array(sizes), owner) for step, value in other.items()
    }


def tilt_with(**other):
    return lambda *q: tilt(*q, **other)


# -- 3 ------------------------------------------------------------------------------------------------------


def tilted_gradient(comm, X, y, w, tau, top_of=np.max):
    residual = X @ w - y
    largest = np.zeros(comm.K)
    largest[comm.rank] = tau * np.max(residual**2, initial=0.0)
    top = top_of(ring.allreduce(comm, largest))
    weights = np.exp(tau * residual**2 - top)
    total = ring.allreduce(comm, np.append(2 * X.T @ (weights * residual), weights.sum()))
    return total[:-1] / total[-1]


def tilted_overflows(comm, X, y, w, tau):
    with np.errstate(over="ignore", invalid="ignore"):
        residual = X @ w - y
        weights = np.exp(tau * residual**2)
        total = ring.allreduce(comm, np.append(2 * X.T @ (weights * residual), weights.sum()))
        return total[:-1] / total[-1]


def tilted_own_shift(comm, X, y, w, tau):
    """Each worker subtracts its own largest: the weights of different workers no longer compare."""
    residual = X @ w - y
    weights = np.exp(tau * residual**2 - tau * np.max(residual**2, initial=0.0))
    total = ring.allreduce(comm, np.append(2 * X.T @ (weights * residual), weights.sum()))
    return total[:-1] / total[-1]


def tilted_mean_of_quotients(comm, X, y, w, tau):
    residual = X @ w - y
    weights = np.exp(tau * residual**2 - tau * np.max(residual**2, initial=0.0))
    mine = 2 * X.T @ (weights * residual) / max(weights.sum(), 1e-300)
    total = ring.allreduce(comm, np.append(len(y) * mine, len(y)))
    return total[:-1] / total[-1]


def tilted_over_N(comm, X, y, w, tau):
    residual = X @ w - y
    weights = np.exp(np.minimum(tau * residual**2, 700))
    total = ring.allreduce(comm, np.append(2 * X.T @ (weights * residual), len(y)))
    return total[:-1] / total[-1]


def tilted_not_at_all(comm, X, y, w, tau):
    total = ring.allreduce(comm, np.append(2 * X.T @ (X @ w - y), len(y)))
    return total[:-1] / total[-1]


def tilted_times_tau(comm, X, y, w, tau):
    return tau * tilted_gradient(comm, X, y, w, tau)


# -- 4 ------------------------------------------------------------------------------------------------------

# Taken by the notebook's cell, on four processes of a busy machine with two cores.
DATA = '{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": ["ship", "sum"], "values": [[0.06409698599964031, 0.015642115999071393, 0.027099762999569066, 0.01217994799662847, 0.040456809001625516, 0.00997555700087105, 0.02315597900087596, 0.011781403001805302, 0.011957475999224698], [0.009509190039971145, 0.011132554659998278, 0.01839411334003671, 0.015858566379974945, 0.0055675262000295335, 0.014238233539945213, 0.0150098039599834, 0.01274544052001147, 0.012357613700005458]], "span_s": 6.688575259999197, "seal": "4d2cd58f8b38"}'  # noqa: E501


def clock(**other):
    """The conclusions from DATA, some of them replaced by what ``other`` makes of (ship, sum)."""
    values = np.array(json.loads(DATA)["values"])
    ship, total = values
    q = np.sort(ship / total)
    share = 2 * 3 / 4 * 21 / (3 * 16_000 * 21) * np.median(ship) / np.median(total)
    right = {"data": DATA, "by_bytes": 8000, "steps": q[[1, -2]], "clock": "sooner", "share": share}
    return right | {name: f(ship, total, q) if callable(f) else f for name, f in other.items()}


SOLUTIONS = {"10.1-1": INPUTS, "10.1-2": tilt, "10.1-3": tilted_gradient, "10.1-4": clock()}

MUTANTS = {
    "10.1-1": [
        inputs(A=([[(1, 1), (1, 3)], [(1, 2), (1, 4)]], 0.0, 10.0)),  # at w = 0, where one checks by habit
        inputs(A=([[(1, 1)] * 3, [(1, 2)]], 5.0, 10.0)),  # B is off as well
        inputs(B=([[(1, 1)] * 3, [(1, 2)]], 0.0, 0.0)),  # off, but downhill
        inputs(B=([[(1, -1)] * 2, [(1, 1.5)]], 0.0, 0.0)),  # C is off as well
        inputs(A=([[(1, 1), (1, 3)], [(1, 2), (1, 4)]], 0.1, 0.1)),  # off, but by little
        inputs(C=([[(1, 1), (1, 2)], [(1, 5)]], 0.0, 0.0)),
        inputs(D=([[(1e5, 1e5)], [(1e5, 1e5)]], 1e-10, 0.0)),  # large sums that do not cancel
    ],
    "10.1-2": [
        tilt_with(rows=lambda f, G, tau, n, owner: np.exp(tau * f) / len(f)),
        tilt_with(gradient=lambda f, G, tau, n, owner: tau * tilt(f, G, tau, n)["gradient"]),
        tilt_with(workers=lambda f, G, tau, n, owner: n / n.sum()),
        tilt_with(workers=lambda f, G, tau, n, owner: np.full(len(n), 1 / len(n))),
        tilt_with(slope=lambda f, G, tau, n, owner: f.var()),
        tilt_with(slope=lambda f, G, tau, n, owner: tau * f.var() / 2),
        tilt_with(slope=lambda f, G, tau, n, owner: (f**2).mean() / 2),
    ],
    "10.1-3": [
        tilted_overflows,
        np.errstate(invalid="ignore")(lambda *q: tilted_gradient(*q, top_of=np.sum)),  # all become 0
        tilted_own_shift,
        tilted_mean_of_quotients,
        tilted_over_N,
        tilted_not_at_all,
        tilted_times_tau,
        lambda *q: tilted_gradient(*q) / 2,
    ],
    "10.1-4": [
        clock(by_bytes=2000),
        clock(steps=lambda ship, total, q: q[[0, -1]]),
        clock(steps=lambda ship, total, q: [np.sort(ship)[1] / np.sort(total)[-2], np.sort(ship)[-2] / np.sort(total)[1]]),
        clock(clock="not decided"),
        clock(share=lambda ship, total, q: 4 * clock()["share"]),
        clock(share=lambda ship, total, q: 4 / 3 * clock()["share"]),
        clock(data=DATA.replace("0.0", "0.1", 1)),
    ],
}  # fmt: skip
