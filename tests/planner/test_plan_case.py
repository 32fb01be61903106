"""At the planner's door: cases, job files, methods and quantities mean what they say, or a sentence says otherwise."""

import json
import math
from dataclasses import replace

import pytest

from labkit.collectives import ring
from labkit.network import Link
from labkit.timing import Asynchronous, StaleSynchronous
from labkit_book.planner import Case, Method, parse_method, plan
from labkit_book.planner.case import TCP_MOST, USUAL, job_file
from labkit_book.planner.method import METHODS
from labkit_book.planner.units import read, workers, written

CASE = Case(
    parameters=25_600_000, example_s=4e-3, b_examples=32, alpha_s=20e-6, beta_bytes_per_s=3.125e9, S_min_steps=7000,
    B_crit_examples=4096, K_workers=8,
)  # fmt: skip


@pytest.mark.parametrize("changes,says", [
    ({"parameters": "25.6M"}, "^parameters must be a whole number >= 1, got '25.6M'"),
    ({"example_s": math.nan}, "^example_s must be a finite number > 0, got nan"),
    ({"alpha_s": -1.0}, "^alpha_s must be a finite number >= 0, got -1.0"),
    ({"backward_share": 2}, "^backward_share must be a finite number .* <= 1"),
    *(({f"{what}_share": 1.01}, f"^{what}_share must be a finite number .* <= 1,") for what in ("rate", "inside", "hidden")),
    ({"beta_bytes_per_s": None}, "^beta_bytes_per_s must be given, or sweep"),
    ({"allreduce": "torus"}, "^allreduce must be one of best, ring, halving"),
    ({"inside_beta_bytes_per_s": -0.5}, "^inside_beta_bytes_per_s must be a finite number > 0, got -0.5"),
    ({"inside_alpha_s": 0.0}, "together, got only inside_alpha_s"),
    ({"mtbf_s": 1e6, "checkpoint_s": 1.0}, "together, got only mtbf_s and checkpoint_s"),
    ({"K_workers": ()}, "K_workers must hold at least one number of workers, got none"),
    ({"S_min_steps": None, "B_crit_examples": None}, "or total_examples must be given, got neither"),
    ({"passes": 33}, "^passes must be at most b_examples = 32, got 33"),
    ({"measured": [(2, math.inf)]}, "^measured seconds must be"),
    ({"methods": ["ssp:3", "ssp:3"]}, "each with a name of its own"),
    ({"K_workers": [2, 0]}, "^K_workers must be a whole number >= 1, got 0"),
])  # fmt: skip
def test_bad_input_is_refused_in_one_sentence(changes, says):
    with pytest.raises(ValueError, match=says):
        replace(CASE, **changes)


@pytest.mark.parametrize("transport", ["rdma", "tcp"])
def test_a_data_sheet_s_silence_is_filled_and_what_is_said_stays(transport):
    bare = {"parameters": 1000, "example_s": 1.0, "b_examples": 1, "total_examples": 1, "K_workers": 2}
    filled = Case(**bare, beta_bytes_per_s=1e9, transport=transport)
    assert {name: getattr(filled, name) for name in USUAL[transport]} == USUAL[transport]
    said = Case(**bare, beta_bytes_per_s=1e9, transport=transport, rate_share=0.5, spread=0.0)
    assert (said.rate_share, said.law.mean) == (0.5, 1)
    plain = Case(**bare, beta_bytes_per_s=1e9)
    assert (plain.rate_share, plain.hidden_share, plain.alpha_s, plain.law.mean) == (1, 1, 0, 1)
    fast = replace(CASE, beta_bytes_per_s=12.5e9, rate_share=1.0, transport=transport).cluster.link
    assert fast.beta == (TCP_MOST if transport == "tcp" else 12.5e9)


# -- job files --------------------------------------------------------------------------------------------------------


def test_a_job_file_makes_the_case_that_its_fields_make():
    points = [[K, n, ring.time(K, n, Link(3e-5, 1e9))] for K in (2, 8) for n in (1e3, 1e6, 1e9)]
    file = {"parameters": 1000, "example_s": 0.1, "b_examples": 4, "K_workers": [2, 8], "sweep": points,
            "total_examples": 1e6, "methods": ["sync", {"method": "local:4", "steps_factor": 1.2}]}  # fmt: skip
    case = Case(**job_file(json.dumps(file)))
    assert case.methods[1].steps_factor == 1.2 and len(plan(case).rows) == 4
    assert case == Case(**{**file, "methods": [parse_method(each) for each in file["methods"]]})


@pytest.mark.parametrize("text,says", [
    ("parameters: 25M", "the job file must be JSON, but Expecting value"),
    ("[1]", "the job file must be an object with some of parameters, "),
    ('{"paramters": 5}', "the job file must be an object .*, got {\"paramters\": 5}"),
])  # fmt: skip
def test_what_is_no_job_file_gets_a_sentence(text, says):
    with pytest.raises(ValueError, match=says):
        job_file(text)


# -- methods ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["sync", "overlapped:4", "overlapped:25MB", "zero2", "backup:2", "ssp:0", "local:16"]
)
def test_a_method_is_called_what_it_was_spelled(text):
    made = parse_method({"method": text, "steps_factor": 1.5})
    assert made.name == text and made.steps_factor == 1.5
    assert text.partition(":")[0] in {name.partition(":")[0] for name in METHODS}


@pytest.mark.parametrize("given", [
    "foo", "sync:1", "local", "local:2.5", "topk:x", "ssp:-1", "", "overlapped:25mb", "overlapped:0MB", "zero4", "async",
    {"method": "sync", "name": 1}, {"steps_factor": 2}, {"method": "sync", "steps_factor": 0}, 7,
])  # fmt: skip
def test_what_is_no_method_gets_a_sentence(given):
    with pytest.raises(ValueError, match=r"^(a method|methods|policy|L|steps_factor) must "):
        parse_method(given)


def test_what_has_no_price_is_refused():
    with pytest.raises(ValueError, match="policy must be sync where gradients are overlapped, got ssp:3"):
        Method(policy=StaleSynchronous(3), buckets=8)
    with pytest.raises(ValueError, match="policy must be sync, backup:b, ssp:s or local:H, got async"):
        Method(policy=Asynchronous())


# -- quantities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text,unit,value", [
    ("25Gbit/s", "B/s", 25e9 / 8), ("25 Gbps", "B/s", 25e9 / 8), ("3.125GB/s", "B/s", 3.125e9),
    ("100 Mbit/s", "B/s", 12.5e6), ("20us", "s", 20e-6), ("20 µs", "s", 20e-6), ("3ms", "s", 3e-3), ("0.5s", "s", 0.5),
    ("25.6M", "", 25_600_000), ("7B", "", 7e9), ("340k", "", 340_000), ("1e6", "", 10**6), ("80GB", "B", 80e9),
])  # fmt: skip
def test_quantities_are_what_they_say(text, unit, value):
    assert read(text, unit) == value


@pytest.mark.parametrize("text,unit", [
    ("25Gbit", "B/s"), ("25Gx/s", "B/s"), ("fast", "B/s"), ("inf", "B/s"), ("20 parsecs", "s"), ("nan", "s"), ("20", "s"),
    ("25.6Mx", ""), ("80Gb", "B"), ("", ""),
])  # fmt: skip
def test_wrong_quantities_get_a_sentence(text, unit):
    with pytest.raises(ValueError, match=r"^must be .* such as .*, got '"):
        read(text, unit)


def test_numbers_of_workers_and_quantities_that_are_written():
    assert (workers("8"), workers("1,2,6"), workers("3-20")) == ([8], [1, 2, 6], [3, 4, 8, 16, 20])
    for text in ("0", "8-4", "1,,2", "a"):
        with pytest.raises(ValueError, match="must be numbers of workers"):
            workers(text)
    said = [written(x, "B/s") for x in (1.51e9, 999_999_999.9, 3.125e15)]
    assert said == ["1.51 GB/s", "1 GB/s", "3.12e+03 TB/s"]
    assert written(2e-5, "s") == "20 us" and written(25.6e6, "") == "25.6 M"
