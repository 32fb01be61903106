"""A link is measured on real workers, and what is measured is the link that is there."""

import pytest

from labkit.collectives import measure_link, ring
from labkit.collectives.measure import _fit
from labkit.comm import Emulated, emulated
from labkit.network import Link, Sample, fit

WHY = emulated.unavailable()


@pytest.mark.parametrize(("name", "settings"), [
    ("K", {"K": 1}), ("K", {"K": True}), ("K", {"K": 2.0}), ("rounds", {"rounds": 0}), ("repeats", {"repeats": 0}),
    *(("sizes", {"sizes": sizes}) for sizes in [(), (64,), (64, 64, 4000), (2, 64, 4000)]),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_by_name_before_any_worker_starts(name, settings):
    with pytest.raises(ValueError, match=f"^{name} must "):
        measure_link(**settings)


@pytest.mark.processes
@pytest.mark.skipif(WHY is not None, reason=f"no network namespaces: {WHY}")
def test_a_port_of_20_megabytes_a_second_is_measured_as_such_whatever_the_machine_does():
    sizes = (64, 400_000, 800_000)  # long ones take 20 and 40 ms, far more than a late scheduler
    measured = measure_link(3, sizes, rounds=2, repeats=2, world=Emulated(rate=2e7))
    assert {s.nbytes for s in measured.message.samples} == set(sizes)
    assert {s.K for s in measured.allreduce.samples} == {measured.K} == {3}
    # the kernel does not let a port be faster (but for its burst), and disturbance only makes a time longer
    for found in (measured.message, measured.allreduce):
        assert all(s.seconds > 0.9 * (s.terms[1] - 5e4) / 2e7 for s in found.samples)
        assert 5e6 < found.link.beta < 1e8
    assert "emulated ports of 20 MB/s" in measured.where and "emulated" in str(measured)


def test_where_most_times_are_disturbed_the_least_disturbed_of_each_size_count():
    sizes, link, off = (4, 1e6, 4e6), Link(1e-3, 1e7), (9, 1, 1, 1, 1, 30, 20, 8, 1.02)
    samples = [Sample(ring, 3, n, ring.time(3, n, link) * c) for n, c in zip(3 * sizes, off, strict=True)]
    with pytest.raises(ValueError, match="must determine"):
        fit(samples)
    found = _fit(samples).link
    assert found.alpha == pytest.approx(1e-3, rel=0.1) and found.beta == pytest.approx(1e7, rel=0.1)
