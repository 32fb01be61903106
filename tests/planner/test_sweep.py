"""What benchmarks print is read as it stands, and what is predicted from it is doubted where it may be off."""

import math
import tomllib
from pathlib import Path

import numpy as np
import pytest

from labkit.collectives import ring
from labkit.network import Link
from labkit_book.planner import Sweep, read_sweep

HERE = Path(__file__).parent
NCCL, RCCL = ((HERE / "layouts" / f"{name}-tests.txt").read_text() for name in ("nccl", "rccl"))
SIZES = [2.0**k for k in range(3, 31, 2)]


@pytest.mark.parametrize("text,K", [(NCCL, 16), (RCCL, 8)], ids=["nccl-tests", "rccl-tests"])
def test_a_layout_is_read_by_its_headings(text, K):
    """The first and the last row's bytes and seconds, as one reads them with one's eyes."""
    found = read_sweep(text).points
    assert len(found) == 6 and {each[0] for each in found} == {K}
    assert found[0] == (K, 8, pytest.approx(20e-6)) and found[-1] == (K, 1 << 30, pytest.approx(10e-3))


@pytest.mark.parametrize(("given", "match"), [
    ("", "got 0 ranks and 0 rows"),
    ("hello\nworld", "got 0 ranks and 0 rows"),
    (NCCL.replace("all_reduce_perf", "all_gather_perf"), "but it is of all_gather_perf"),
    ("\n".join(line for line in NCCL.splitlines() if "Rank" not in line), "with its head, .* got 0 ranks and 6"),
    ("\n".join(line for line in NCCL.splitlines() if "#" in line), "got 16 ranks and 0 rows"),
    (NCCL.replace("    20.00  ", "   -20.00  ", 1), "times > 0 us, got '-20.00'"),
    (NCCL.replace("0.00       0 ", "0.00       7 ", 1), "of 8 bytes 7 are #wrong"),
    ('{"measured": null}', "measured.allreduce.points"),
    ('{"measured": ', "must be labkit doctor"),
])  # fmt: skip
def test_what_can_not_be_read_is_refused_in_a_sentence(given, match):
    with pytest.raises(ValueError, match=match) as info:
        read_sweep(given)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("bad", [[], [[2, 1e6]], [[1, 1e6, 1.0]], [[2, 0, 1.0]], [[2, 1, 0.0]]])
def test_points_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match="points must"):
        Sweep(bad)


# -- what it predicts -------------------------------------------------------------------------------------------------


def sweep(truth, Ks=(8,), sizes=SIZES):
    return Sweep(tuple((K, n, truth(K, n)) for K in Ks for n in sizes))


def clean(K, n):
    return ring.time(K, n, Link(10e-6, 1e10))


def bent(K, n):
    return 40e-6 + n / 2e9 if n <= 2**19 else 150e-6 + n / 12e9


def test_between_sizes_it_is_the_line_in_the_logarithms_and_beyond_them_the_last_slope():
    made, (a, b) = sweep(bent), (2.0**13, 2.0**15)
    assert made.seconds(8, math.sqrt(a * b)) == pytest.approx(math.sqrt(bent(8, a) * bent(8, b)))
    assert made.seconds(8, 2.0**30) == pytest.approx(bent(8, 2.0**30))
    assert made.bandwidth == pytest.approx(2 * 7 / 8 * 2**29 / bent(8, 2**29))
    twice = Sweep([*made.points, *((K, n, 3 * s) for K, n, s in made.points)])
    assert twice.seconds(8, a) == pytest.approx(2 * bent(8, a))  # the median


def test_the_error_of_a_size_left_out_is_what_its_neighbours_say_of_it():
    errors, seconds = sweep(bent).errors, [bent(8, n) for n in SIZES]
    for i in range(1, len(SIZES) - 1):
        told = math.sqrt(seconds[i - 1] * seconds[i + 1])
        assert errors[i] == pytest.approx(max(told / seconds[i], seconds[i] / told) - 1)


def test_where_nothing_measured_speaks_for_it_it_says_so():
    made = sweep(bent, sizes=[2.0**k for k in range(3, 24)])  # up to 8 MiB
    assert "128 times the largest size measured" in made.doubt(8, 2.0**30)
    assert not made.doubt(8, 2.0**21 * 1.5)
    assert "0 sizes were measured with K = 16" in made.doubt(16, 1e6)
    assert "below the smallest" in sweep(clean, sizes=[2.0**k for k in range(20, 30)]).doubt(8, 64)
    assert "1 sizes were measured with K = 8" in sweep(clean, (2, 4, 8, 16), [1e6]).doubt(8, 2e6)
    rough = sweep(lambda K, n: bent(K, n) * (1 + 0.5 * (-1) ** SIZES.index(n)))
    assert "sizes left out with K = 8 are missed by" in rough.doubt(8, 1e6)


def test_published_sizes_that_are_not_doubted_are_told_well_from_all_others():
    """Each size of each published sweep is left out, and predicted, doubts included, from all others."""
    errors = []
    for source in tomllib.loads((HERE / "sweeps.toml").read_text())["sources"]:
        for each in source["sweeps"]:
            K, points = each["K"], [(each["K"], float(n), s) for n, s in each["points"] if n > 0]
            sizes = sorted({n for _, n, _ in points})
            for n in sizes[1:-1:3] if len(sizes) >= 6 else []:
                rest = Sweep([p for p in points if p[1] != n])
                seconds = np.median([s for _, size, s in points if size == n])
                if not rest.doubt(K, n):
                    errors.append(abs(rest.seconds(K, n) / seconds - 1))
    assert len(errors) > 300 and np.median(errors) < 0.06 and np.quantile(errors, 0.9) < 0.2
