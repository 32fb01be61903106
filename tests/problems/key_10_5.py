"""Instructor's key of problem set 10.5."""

import json

import numpy as np


def edges(K, n):
    return [i * n // K for i in range(K + 1)]


# -- 1 ----------------------------------------------------------------------------------------------------------------


def reduce_scatter(comm, x, order, shift=1, add=True, equal=False, numbered=True):
    K, p = comm.K, order.index(comm.rank)
    total, e = x.copy(), edges(K, len(x))
    if equal:
        e = [i * (len(x) // K) for i in range(K + 1)]
    chunk = [total[e[i] : e[i + 1]] for i in range(K)]
    part = [chunk[i] for i in order] if numbered else chunk  # by place in the order
    right, left = order[(p + 1) % K], order[(p - 1) % K]
    for j in range(K - 1):
        out, into = part[(p - j - shift) % K], part[(p - j - shift - 1) % K]
        inbox = np.empty_like(into)
        comm.sendrecv(out, right, inbox, left)
        into[:] = into + inbox if add else inbox
    return part[p]


def rs_inplace(comm, x, order):
    got = reduce_scatter(comm, x, order)
    x[: len(got)] = got
    return got


def rs_whole_vectors(comm, x, order):
    total, passing, p = x.copy(), x.copy(), order.index(comm.rank)
    for _ in range(comm.K - 1):
        inbox = np.empty_like(x)
        comm.sendrecv(passing, order[(p + 1) % comm.K], inbox, order[p - 1])
        passing = inbox
        total += passing
    e = edges(comm.K, len(x))
    return total[e[comm.rank] : e[comm.rank + 1]]


def rs_send_then_recv(comm, x, order):
    total, e, K, p = x.copy(), edges(comm.K, len(x)), comm.K, order.index(comm.rank)
    for j in range(K - 1):
        out, into = order[(p - j - 1) % K], order[(p - j - 2) % K]
        comm.send(total[e[out] : e[out + 1]], order[(p + 1) % K])
        total[e[into] : e[into + 1]] += comm.recv(np.empty(e[into + 1] - e[into]), order[p - 1])
    return total[e[comm.rank] : e[comm.rank + 1]]


def rs_as_in_the_lab(comm, x, order):
    """Finishes the next one's chunk, and returns it."""
    K, p, e, total = comm.K, order.index(comm.rank), edges(comm.K, len(x)), x.copy()
    part = [total[e[i] : e[i + 1]] for i in order]
    for j in range(K - 1):
        into = part[(p - j - 1) % K]
        into += comm.sendrecv(part[(p - j) % K], order[(p + 1) % K], np.empty_like(into), order[p - 1])
    return part[(p + 1) % K]


# -- 3 ----------------------------------------------------------------------------------------------------------------


def mended(K):
    """Two waves, to the right and then to the left; in each the even ranks send first."""
    plan = []
    for k in range(K if K > 1 else 0):
        right, left = (k + 1) % K, (k - 1) % K
        waves = [("send", right), ("recv", left)], [("send", left), ("recv", right)]
        plan.append([call for wave in waves for call in (wave if k % 2 == 0 else wave[::-1])])
    return plan or [[]]


def even_ranks_first(K):
    """As given."""
    plan = []
    for k in range(K):
        right, left = (k + 1) % K, (k - 1) % K
        sends, recvs = [("send", right), ("send", left)], [("recv", left), ("recv", right)]
        plan.append(sends + recvs if k % 2 == 0 else recvs + sends)
    return plan if K > 1 else [[]]


def rank_0_receives_first(K):
    """Cuts the circle in one place: right, and as slow as a chain."""
    plan = []
    for k in range(K if K > 1 else 0):
        right, left = (k + 1) % K, (k - 1) % K
        waves = [("send", right), ("recv", left)], [("send", left), ("recv", right)]
        plan.append([call for wave in waves for call in (wave if k else wave[::-1])])
    return plan or [[]]


# -- 4 ----------------------------------------------------------------------------------------------------------------

DATA = '{"machine": "Intel(R) Xeon(R) Processor, 2 cores, Linux, torch 2.13.0+cpu, 2026-11-22", "at": [1000, 20000, 50000, 100000, 200000, "ring"], "values": [[0.00013033049981459044, 0.000503637000292656, 8.099649858195335e-05, 9.758799933479168e-05, 0.0003326085006847279, 9.312799920735415e-05, 9.832649993768428e-05], [0.002044750999630196, 0.0026841755006898893, 0.0017619395002839155, 0.0025217459988198243, 0.0023050524996506283, 0.002586656999483239, 0.0009312594993389212], [0.003960680500313174, 0.003985036501035211, 0.003878160499880323, 0.0039798974994482705, 0.0039761585012456635, 0.003983590000643744, 0.003607044000091264], [0.007862131498768576, 0.007853470000554807, 0.007983596000485704, 0.007997833999979775, 0.007982747500136611, 0.007961879498907365, 0.007982402501511388], [0.0160317860008945, 0.016321283501383732, 0.016753517500546877, 0.017958181499125203, 0.016579033001107746, 0.016355006000594585, 0.017203801498908433], [0.09455626600174583, 0.08962141099982546, 0.08445152799686184, 0.1042858469991188, 0.09661601700281608, 0.09657151499777683, 0.09387895499821752]], "span_s": 4.093187004000356, "seal": "e3859004b7fa"}'  # noqa: E501


def foretold(line=None, **change):
    data = json.loads(DATA)
    values, sizes = np.array(data["values"]), np.array(data["at"][:5], float)
    m, ran = np.median(values[:5], axis=1), values[5]
    alpha, slope = np.linalg.lstsq(np.column_stack([1 / m, sizes / m]), np.ones(5), rcond=None)[0]
    if line is not None:
        slope, alpha = line(sizes, m)
    answer = {
        "data": DATA, "alpha": alpha, "beta": 1 / slope, "predicted": 6 * (alpha + slope * 150_000),
        "low": ran.min(), "high": ran.max(), "chance": 1 - 2 / 2 ** len(ran), "prediction": "too short",
    }  # fmt: skip
    return answer | {key: f(answer) for key, f in change.items()}


# -- 5 ----------------------------------------------------------------------------------------------------------------


def exchanged(*hops):
    """Everybody sends all it has to the seat ``hop`` away, and so on."""
    has, rounds = [[k] for k in range(8)], []
    for hop in hops:
        rounds.append([(k, k ^ hop, has[k]) for k in range(8)])
        has = [has[k] + has[k ^ hop] for k in range(8)]
    return rounds


SOLUTIONS = {"10.5-1": reduce_scatter, "10.5-3": mended, "10.5-4": foretold(), "10.5-2": exchanged(4, 1, 2)}

MUTANTS = {
    "10.5-1": [
        lambda comm, x, order: reduce_scatter(comm, x, list(range(comm.K))),  # the order is not looked at
        lambda comm, x, order: reduce_scatter(comm, x, order, shift=0),
        lambda comm, x, order: reduce_scatter(comm, x, order, numbered=False),
        lambda comm, x, order: reduce_scatter(comm, x, order, equal=True),
        lambda comm, x, order: reduce_scatter(comm, x, order, add=False),  # only the last share is left
        rs_as_in_the_lab,
        rs_inplace,
        rs_whole_vectors,
        rs_send_then_recv,
    ],
    "10.5-3": [
        even_ranks_first,
        lambda K: [calls[::-1] if k == 0 else calls for k, calls in enumerate(mended(K))],
        rank_0_receives_first,
        lambda K: mended(K) if K > 1 else [[("send", 0), ("recv", 0)]],
        lambda K: [calls[:2] for calls in mended(K)],  # to the right only
    ],
    "10.5-4": [
        foretold(line=lambda sizes, m: np.polyfit(sizes, m, 1)),  # the long messages decide
        foretold(line=lambda sizes, m: (m[-1] / sizes[-1], 0.0)),  # through the last size
        foretold(beta=lambda a: 1 / a["beta"]),
        foretold(predicted=lambda a: a["alpha"] + 600_000 / a["beta"]),
        foretold(predicted=lambda a: 6 * (a["alpha"] + 600_000 / a["beta"])),
        foretold(chance=lambda a: 1 - 1 / 2**7),
        foretold(prediction=lambda a: "inside"),
        foretold(data=lambda a: DATA.replace("200000", "250000")),
    ],
    "10.5-2": [
        exchanged(1, 2, 4),
        [[(k, (k + 1) % 8, (k - j) % 8) for k in range(8)] for j in range(7)],
        exchanged(4, 1),
        [[(k, (k + 1) % 8, 0) for k in range(8)]],
        [[(0, 4, 0), (0, 5, 0)]],
    ],
}
