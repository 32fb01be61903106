"""The figure of the ring shows what labkit's ring does: who has whose share, bytes, seconds, in every round."""

from __future__ import annotations

import re
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


def test_the_mouse_steps_forward_and_back_and_the_bytes_follow(figure_page: Any) -> None:
    with figure_page("ring", K=3, n=12, options={"reduced_motion": "reduce"}) as page:
        press = lambda name: page.get_by_role("button", name=name).click()  # noqa: E731
        number = page.locator("[data-key=busiest]")
        for _ in range(4):
            press("Step")
        expect(number).to_have_attribute("data-value", str(ring.bytes(3, 12, 4).max()))
        expect(number).to_have_text("64 B")
        page.get_by_role("button", name="Step").click(force=True)  # there is no fifth round
        press("Back")
        expect(number).to_have_attribute("data-value", "48")
        press("Start")
        expect(number).to_have_attribute("data-value", "0")
        assert page.evaluate("lab.model.get('round')") == 0


def test_the_keyboard_chooses_k_and_goes_through_the_rounds(figure_page: Any) -> None:
    with figure_page("ring", K=4, n=1000) as page:
        workers, rounds = (page.get_by_role("slider", name=name) for name in ("workers K", "round"))
        for _ in range(3):
            workers.press("ArrowRight")
        expect(workers).to_have_attribute("aria-valuetext", "7")
        rounds.press("End")
        expect(rounds).to_have_attribute("aria-valuetext", re.compile("^12 of 12"))
        expect(page.locator(".lk-svg")).to_have_attribute("aria-label", re.compile("whole sum"))
        most = str(ring.bytes(7, 1000, 4).max())
        expect(page.locator("[data-key=busiest]")).to_have_attribute("data-value", most)
        workers.press("Home")  # K = 2 has two rounds only
        expect(rounds).to_have_attribute("aria-valuetext", re.compile("^2 of 2"))
        assert page.evaluate("lab.model.get('round')") == 2


def test_it_plays_to_the_end_and_stops(figure_page: Any) -> None:
    with figure_page("ring", K=2, stopped=True) as page:
        page.get_by_role("button", name="Play").click()
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        page.clock.run_for(10_000)
        assert page.evaluate("lab.model.get('round')") == 2
        expect(page.get_by_role("button", name="Play")).to_be_visible()
