"""The figure of the ring shows what labkit's ring does: who has whose share, bytes, seconds, in every round."""

from typing import Any

import numpy as np
import pytest

from labkit import Link, Simulated, launch
from labkit.collectives import naive, ring

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
LINK = Link(alpha=3e-4, beta=2e6)
CASES = [(K, n) for K in range(2, 9) for n in (K // 2, 7, 40)]


class Noting:
    """A Comm that also notes what each sendrecv sent, and when it was over."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.sent, self.over = comm, [], []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)

    def sendrecv(self, data: Any, to: int, into: Any, source: int) -> Any:
        self.sent.append((to, data.copy()))
        self.comm.sendrecv(data, to, into, source)
        self.over.append(self.comm.now())
        return into


def around_the_ring(comm: Any, x: np.ndarray) -> np.ndarray:
    """The ring as one would say it: in each round a chunk leaves to the right and one comes from the left."""
    K, right, left = comm.K, (comm.rank + 1) % comm.K, (comm.rank - 1) % comm.K
    total = x.copy()
    part = [total[i * len(x) // K : (i + 1) * len(x) // K] for i in range(K)]
    for j in range(2 * (K - 1)):
        mine = part[(comm.rank - j - 1) % K]
        inbox = comm.sendrecv(part[(comm.rank - j) % K], right, np.empty_like(mine), left)
        mine[:] = mine + inbox if j < K - 1 else inbox
    return total


def noted(comm: Any, n: int) -> Any:
    """Every element says whose it is (a bit) and in which chunk (a count from bit 20 on, once for each share)."""
    chunk = np.searchsorted(np.arange(1, comm.K + 1) * n // comm.K, np.arange(n), side="right")
    watch = Noting(comm)
    total = around_the_ring(watch, (1 << comm.rank) + (chunk << 20))
    return watch.sent, watch.over, total


def shares(data: Any) -> tuple[set[int], int]:
    """Whose shares a message holds, and of which chunk."""
    bits, chunks = int(data[0]) & ((1 << 20) - 1), int(data[0]) >> 20
    who = {k for k in range(8) if bits >> k & 1}
    return who, chunks // len(who)


def after(there: Any, sent: list[tuple[set[int], int]], K: int, j: int) -> Any:
    """(worker, chunk, k): whose shares are where after round j, from those before it and what each worker sent."""
    now = there.copy()
    for k, (who, chunk) in enumerate(sent):
        keeps = there[(k + 1) % K, chunk] if j < K else np.zeros(K, bool)
        now[(k + 1) % K, chunk] = keeps | np.isin(np.arange(K), list(who))
    return now


def test_every_message_of_every_round_is_the_rings(figure_page: Any) -> None:
    state = {"itemsize": 8, "alpha": LINK.alpha, "beta": LINK.beta}
    asked = [{**state, "K": K, "n": n, "round": j} for K, n in CASES for j in range(2 * K - 1)]
    with figure_page("ring") as page:
        shown = iter(page.evaluate("all => all.map((s) => lab.compute(s))", asked))
    for K, n in CASES:
        run = launch(noted, K, n, world=Simulated(LINK))
        size = np.diff(np.arange(K + 1) * n // K)
        out = np.zeros(K, int)
        expected = np.repeat(np.eye(K, dtype=bool)[:, None, :], K, axis=1)
        for j in range(2 * K - 1):
            seen = next(shown)
            there = np.array([[[k in cell for k in range(K)] for cell in row] for row in seen["holds"]])
            if j and n >= K:
                expected = after(expected, [shares(run.results[k][0][j - 1][1]) for k in range(K)], K, j)
            assert n < K or (there == expected).all()
            if j:
                for move in seen["moves"]:
                    to, data = run.results[move["from"]][0][j - 1]
                    assert to == move["to"] and len(data) == size[move["chunk"]]
                    if len(data):
                        assert shares(data) == (set(move["carried"]), move["chunk"])
                    out[move["from"]] += 8 * len(data)
                over = max(r[1][j - 1] for r in run.results)
                assert seen["elapsed_s"] == pytest.approx(over, rel=1e-12)
            assert seen["sent"] == out.tolist() and seen["busiest"] == out.max()
        assert seen["sent"] == ring.bytes(K, n, 8).tolist() == run.bytes_sent.tolist()
        assert seen["messages"] == ring.messages(K, n).tolist()  # empty chunks are not sent
        assert seen["total_s"] == seen["elapsed_s"] == pytest.approx(run.elapsed_s, rel=1e-12)
        assert seen["server_s"] == pytest.approx(naive.time(K, 8 * n, LINK), rel=1e-12)
        assert seen["server_bytes"] == naive.bytes(K, n, 8).max()
