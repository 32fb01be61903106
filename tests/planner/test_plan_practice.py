"""What practice takes off: buckets of so many bytes, sums that slow computing, a data sheet's rates, a measured step."""

import math
from dataclasses import replace

import pytest

from labkit.collectives import ring
from labkit.network import Link
from labkit_book.planner import Case, Row, parse_method
from labkit_book.planner.case import TCP_MOST, USUAL
from labkit_book.planner.row import AS_RUN, CLOCKED, LOST_RANGE, MEASURED_RANGE
from labkit_book.planner.units import steps

CASE = Case(
    parameters=25_000_000, example_s=4e-3, b_examples=32, alpha_s=20e-6, beta_bytes_per_s=3.125e9, allreduce="ring",
    total_examples=1e6, K_workers=16,
)  # fmt: skip


def seconds(method, K=16, **changes):
    return Row(replace(CASE, **changes), parse_method(method), K).step.seconds


def by_hand(case, L, K):
    """One bucket after the other: each may start when it is ready and the channel is free."""
    link, pass_s = Link(case.alpha_s, case.beta_bytes_per_s), case.compute_s(case.b_examples)
    bucket, free = ring.time(K, case.nbytes / L, link), 0.0
    for j in range(1, L + 1):
        free = max(free, pass_s * (1 - case.backward_share * (1 - j / L))) + bucket
    return free


@pytest.mark.parametrize("size,L", [("25MB", 4), ("40MB", 3), ("100MB", 1), ("1GB", 1), ("99999kB", 2)])
def test_buckets_by_their_bytes_are_as_many_as_it_takes(size, L):
    assert parse_method(f"overlapped:{size}").name == f"overlapped:{size}"
    whole = 0.128 + ring.time(16, CASE.nbytes, Link(20e-6, 3.125e9))
    assert seconds(f"overlapped:{size}") == pytest.approx(min(by_hand(CASE, L, 16), whole))


@pytest.mark.parametrize(
    "text", ["overlapped:25mb", "overlapped:0MB", "overlapped:MB", "overlapped:2.5MB", "overlapped:0"]
)
def test_other_sizes_are_refused(text):
    with pytest.raises(ValueError, match="must be"):
        parse_method(text)


@pytest.mark.parametrize("K", [2, 64, 768, 4096])
def test_a_framework_that_chooses_is_never_worse_than_one_sum_after_computing(K):
    slow = {"alpha_s": 2e-3}
    assert seconds(AS_RUN, K, **slow) <= seconds("sync", K, **slow) * (1 + 1e-12)
    assert seconds("overlapped:8", 4096, **slow) > seconds("sync", 4096, **slow)  # one that is told to can be


def test_a_hidden_sum_slows_the_computation_that_hides_it():
    L, a = 4, ring.time(16, CASE.nbytes / 4, Link(20e-6, 3.125e9))
    span = CASE.backward_share * (1 - 1 / L) * 0.128
    hidden = min((L - 1) * a, span)
    assert seconds(AS_RUN, sending_slows=0.2) - seconds(AS_RUN) == pytest.approx(0.2 * hidden)
    less = seconds(AS_RUN, hidden_share=0.25)
    assert less == pytest.approx(0.128 + a + (L - 1) * a - min((L - 1) * a, 0.25 * span))


def test_a_sum_gets_its_share_of_the_rate():
    assert seconds("sync", rate_share=0.5) == pytest.approx(seconds("sync", beta_bytes_per_s=1.5625e9))


@pytest.mark.parametrize("transport", ["rdma", "tcp"])
def test_a_data_sheet_s_silence_is_filled_and_what_is_said_stays(transport):
    bare = {"parameters": 1000, "example_s": 1.0, "b_examples": 1, "total_examples": 1, "K_workers": 2}
    filled = Case(**bare, beta_bytes_per_s=1e9, transport=transport)
    for name, value in USUAL[transport].items():
        assert getattr(filled, name) == (pytest.approx(value) if name != "law" else filled.law)
    said = Case(**bare, beta_bytes_per_s=1e9, transport=transport, rate_share=0.5, law="none", overhead_s=0.0)
    assert (said.rate_share, said.overhead_s) == (0.5, 0.0) and said.law.mean == 1
    plain = Case(**bare, beta_bytes_per_s=1e9)
    assert (plain.rate_share, plain.hidden_share, plain.alpha_s, plain.overhead_s) == (1, 1, 0, 0)
    with pytest.raises(ValueError, match="transport must be one of measured, rdma, tcp, got 'smoke'"):
        Case(**bare, beta_bytes_per_s=1e9, transport="smoke")


def test_the_kernel_s_tcp_has_a_limit_whatever_the_port():
    fast = {"transport": "tcp", "beta_bytes_per_s": 12.5e9}
    assert replace(CASE, **fast).network.link.beta == TCP_MOST
    assert replace(CASE, **fast | {"transport": "rdma"}).network.link.beta == 12.5e9


def test_a_measured_step_is_what_the_plan_then_says_and_one_worker_stays():
    measured = 1.3 * seconds(AS_RUN)
    fed = replace(CASE, measured=[(16, measured)])
    assert Row(fed, parse_method(AS_RUN), 16).step.seconds == pytest.approx(measured)
    for K, power in ((1, 0.0), (4, 0.5), (16, 1.0), (256, 1.0)):
        row = Row(fed, parse_method("sync"), K)
        assert row.step.seconds == pytest.approx(1.3**power * seconds("sync", K))
        assert sum(row.shares.values()) == pytest.approx(1)
    both = replace(CASE, measured=[(16, measured), (64, seconds(AS_RUN, 64) / 1.3)])
    for K, ratio in ((16, 1.3), (30, 1.3), (34, 1 / 1.3 ** (math.log(34) / math.log(64))), (256, 1 / 1.3)):
        assert Row(both, parse_method("sync"), K).step.seconds == pytest.approx(ratio * seconds("sync", K))


def test_ranges():
    assert Row(CASE, parse_method("sync"), 16).range_s is None
    sheet = Row(replace(CASE, transport="rdma"), parse_method("sync"), 16)
    lost = sheet.step.seconds - sheet.step.compute_s
    low, high = (sheet.step.compute_s + share * lost for share in LOST_RANGE)
    assert sheet.range_s == pytest.approx([(1 - CLOCKED) * low, (1 + CLOCKED) * high])
    fed = Row(replace(CASE, measured=[(16, 0.2)]), parse_method(AS_RUN), 64)
    assert fed.range_s == pytest.approx([times * fed.step.seconds for times in MEASURED_RANGE])


def test_measured_steps_as_people_write_them():
    assert steps("K=16:220ms, 64:0.25s") == [(16, 0.22), (64, 0.25)]
    for text in ("16", "K=16", "220ms", "K=16:220", "K=a:2ms,", ""):
        if text == "K=16:220":
            assert steps(text) == [(16, 220.0)]
            continue
        with pytest.raises(ValueError, match="K=16:220ms"):
            steps(text)
    with pytest.raises(ValueError, match="measured, workers must be"):
        replace(CASE, measured=[(1, 0.2)])
    with pytest.raises(ValueError, match="measured, seconds must be"):
        replace(CASE, measured=[(2, math.inf)])
