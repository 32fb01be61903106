"""A link is measured on real workers, and what is measured is the link that is there."""

from __future__ import annotations

import pytest

from labkit.collectives import Measured, measure_link, ring
from labkit.collectives.measure import SIZES, UP_TO_FLAT, _fit, _one_message
from labkit.comm import Emulated, emulated
from labkit.network import Link, Sample, fit

WHY = emulated.unavailable()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("K", {"K": 1}), ("K", {"K": True}), ("K", {"K": 2.0}), ("rounds", {"rounds": 0}), ("repeats", {"repeats": 0}),
        *(("sizes", {"sizes": sizes}) for sizes in [(), (64,), (64, 64, 4000), (2, 64, 4000)]),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_name_before_any_worker_starts(name, settings):
    with pytest.raises(ValueError, match=f"^{name} must "):
        measure_link(**settings)


def test_half_a_ping_pong_is_one_message_for_any_number_of_workers():
    link = Link(1e-3, 1e6)
    assert _one_message(2, 1000, link) == _one_message(9, 1000, link) == 2e-3
    assert ring.time(2, 1000, link) == pytest.approx(3e-3)  # which is why the two have fits of their own


@pytest.mark.processes
@pytest.mark.skipif(WHY is not None, reason=f"no network namespaces: {WHY}")
def test_a_port_of_20_megabytes_a_second_is_measured_as_such_whatever_the_machine_does():
    sizes = (64, 400_000, 800_000)  # long ones take 20 and 40 ms, far more than a late scheduler
    measured = measure_link(2, sizes, rounds=2, repeats=2, world=Emulated(rate=2e7))
    assert isinstance(measured, Measured) and measured.K == 2 and len(measured.allreduce.samples) == 6
    assert {s.nbytes for s in measured.message.samples} == set(sizes)
    # the kernel does not let a port be faster (but for its burst), and disturbance only makes it slower
    for found in (measured.message, measured.allreduce):
        assert 5e6 < found.link.beta < 2.5e7
    assert "emulated ports of 20 MB/s" in measured.where and "emulated" in str(measured)


def samples(*off: float) -> list[Sample]:
    """Three sizes on a known link, as often as there are triples of (measured over true)."""
    sizes, link = (4, 1e6, 4e6), Link(1e-3, 1e7)
    return [
        Sample(ring.time, 3, sizes[i % 3], ring.time(3, sizes[i % 3], link) * c) for i, c in enumerate(off)
    ]


def test_where_most_times_are_disturbed_the_least_disturbed_of_each_size_count():
    found = samples(9, 1, 1, 1, 1, 30, 20, 8, 1.02)
    with pytest.raises(ValueError, match="must determine"):
        fit(found)
    link = _fit(found).link
    assert link.alpha == pytest.approx(1e-3, rel=0.1) and link.beta == pytest.approx(1e7, rel=0.1)


def test_where_long_messages_hide_the_latency_the_shortest_ones_give_it():
    found = samples(1, 1.5, 0.8)
    with pytest.raises(ValueError, match="must determine alpha"):
        fit(found)
    assert _fit(found).link.alpha == pytest.approx(found[0].seconds / 4)  # 2 (K - 1) messages
    assert 0.4 < _fit(found).link.beta / 1e7 < 2.5


def test_the_sizes_span_latency_and_bandwidth():
    assert min(SIZES) < 100 and max(SIZES) > 1e6


def test_the_doctor_s_sizes_go_to_where_the_curve_is_flat():
    assert UP_TO_FLAT[: len(SIZES)] == SIZES and UP_TO_FLAT[-1] == 64_000_000
