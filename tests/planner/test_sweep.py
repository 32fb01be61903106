"""What benchmarks print is read as it stands, and what can't be read is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labkit.network import goodput
from labkit_book.planner import Sweep, read_sweep

LAYOUTS = Path(__file__).with_name("layouts")
READ = {  # file: K, hosts, rows, the last row's bytes and seconds, as one reads them with one's eyes
    "nccl-tests": (16, 2, 6, 1 << 30, 10e-3),
    "nccl-tests-old": (16, 2, 6, 1 << 30, 10e-3),
    "rccl-tests": (8, 1, 6, 1 << 30, 10e-3),
    "gloo": (4, None, 6, 20_000_000, 22e-3),
    "gloo-old": (4, None, 6, 20_000_000, 22e-3),
}


def text(name):
    return (LAYOUTS / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", READ)
def test_every_layout_is_read_by_its_headings(name):
    K, hosts, rows, nbytes, seconds = READ[name]
    found = read_sweep(text(name))
    assert found.Ks == (K,) and len(found.points) == rows
    assert dict(found.hosts).get(K) == hosts
    assert found.points[-1] == (K, nbytes, pytest.approx(seconds))


def test_of_two_columns_of_times_out_of_place_is_taken():
    line = "           8             2     float     sum      -1    20.00    0.00    0.00       0    20.00"
    other = text("nccl-tests").replace(line, line[:-5] + "30.00")
    assert other != text("nccl-tests") and read_sweep(other).points[0][2] == pytest.approx(20e-6)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("", "empty"),
        (text("nccl-tests").replace("all_reduce_perf", "all_gather_perf"), "but it is of all_gather_perf"),
        (text("nccl-tests").replace(" sum ", "none "), "redop is none"),
        ("hello\nworld", "the heading of none"),
        (text("gloo") + text("nccl-tests"), "nccl-tests and gloo"),
        (text("gloo").replace("processes", ""), "it says none"),
        ("\n".join(line for line in text("nccl-tests").splitlines() if "#" in line), "at least one row of times"),
        (text("nccl-tests").replace("    20.00  ", "   -20.00  ", 1), "times > 0 us, got '-20.00'"),
        (text("nccl-tests").replace("0.00       0 ", "0.00       7 ", 1), "of 8 bytes 7 are #wrong"),
        (text("gloo") + "processes=72", "it says 4, 72"),
        ('{"measured": null}', "measured.allreduce.points"),
        ('{"measured": ', "must be labkit doctor"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_is_refused_in_a_sentence(given, match):
    with pytest.raises(ValueError, match=match) as info:
        read_sweep(given)
    assert "\n" not in str(info.value)


def test_another_K_than_the_text_s_is_refused_and_a_given_one_used_where_it_has_none():
    with pytest.raises(ValueError, match="it says 16, K = 8"):
        read_sweep(text("nccl-tests"), K=8)
    assert read_sweep(text("gloo").replace("processes", ""), K=8, hosts=2).hosts == ((8, 2),)


def test_the_doctor_s_json_and_several_files_make_one_sweep():
    said = {"measured": {"K": 2, "allreduce": {"points": [[2, 64, 1e-4], [2, 4000, 2e-4]]}}}
    both = read_sweep(json.dumps(said)) + read_sweep(text("nccl-tests"))
    assert both.Ks == (2, 16) and both.hosts == ((16, 2),) and len(both.points) == 8


@pytest.mark.parametrize("bad", [[], [[2, 1e6]], [[1, 1e6, 1.0]], [[2, -1, 1.0]], [[2, 1, 0.0]], 3])
def test_points_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match="points"):
        Sweep(bad)


def test_goodput_is_what_is_left_of_a_frame():
    # IEEE 802.3 by hand: 7 + 1 preamble, 14 header, 1500, 4 checksum, 12 gap; IP 20, TCP 20 + 12
    assert goodput(1538.0) == pytest.approx(1500 - 52)
    assert 0.05 < 1 - goodput(1.0) < 0.06 and 1 - goodput(1.0, mtu=9000) < 0.011
    with pytest.raises(ValueError, match="rate must be"):
        goodput(0)
    with pytest.raises(ValueError, match="mtu must be"):
        goodput(1e9, mtu=52)
