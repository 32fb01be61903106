"""Units, texts of methods and laws, lint and job files: what is written is what is meant, or a sentence says otherwise."""

import json
from dataclasses import replace

import pytest

from labkit.timing import Constant, LogNormal, Scaled
from labkit_book.planner import Case, parse_law, parse_method, units
from labkit_book.planner.laws import LAWS, format_law
from labkit_book.planner.lint import lint
from labkit_book.planner.method import METHODS
from labkit_book.planner.units import COUNT, PRICE, RATE, SECONDS


@pytest.mark.parametrize(
    "read_it,text,value",
    [
        (RATE.read, "25Gbit/s", 25e9 / 8),
        (RATE.read, "25 Gbps", 25e9 / 8),
        (RATE.read, "25gbps", 25e9 / 8),
        (RATE.read, "25Gb/s", 25e9 / 8),
        (RATE.read, "3.125GB/s", 3.125e9),
        (RATE.read, "3GiB/s", 3 * 2**30),
        (RATE.read, "100 Mbit/s", 12.5e6),
        (RATE.read, "1e9", 1e9),
        (SECONDS.read, "20us", 20e-6),
        (SECONDS.read, "20 µs", 20e-6),
        (SECONDS.read, "3ms", 3e-3),
        (SECONDS.read, "0.5", 0.5),
        (COUNT.read, "25.6M", 25_600_000),
        (COUNT.read, "7B", 7 * 10**9),
        (COUNT.read, "340k", 340_000),
        (COUNT.read, "1_000", 1000),
        (COUNT.read, "1e6", 10**6),
        (units.precision, "bf16", 2),
        (units.precision, "FP32", 4),
        (units.precision, "2", 2),
        (PRICE.read, "2.5/h", 2.5),
        (PRICE.read, "$2.5", 2.5),
        (PRICE.read, "60/day", 2.5),
        (PRICE.read, "0.001/s", 3.6),
        (units.workers, "8", [8]),
        (units.workers, "1,2,6", [1, 2, 6]),
        (units.workers, "3-20", [3, 4, 8, 16, 20]),
    ],
)
def test_units_are_what_they_say(read_it, text, value):
    assert read_it(text, "it") == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    "read_it,text,says",
    [
        (RATE.read, "25Gbit", r"it must be a rate .* per second, /s, is missing, got '25Gbit'"),
        (RATE.read, "25Gx/s", "it must be a rate such as 25Gbit/s or 3.125GB/s, got '25Gx/s'"),
        (RATE.read, "fast", "it must be a rate"),
        (RATE.read, "inf", "it must be a rate"),
        (SECONDS.read, "20 parsecs", "it must be a time such as 20us"),
        (SECONDS.read, "nan", "it must be a time"),
        (COUNT.read, "25.6", "is 25.6M meant"),
        (COUNT.read, "nan", "it must be a whole number"),
        (COUNT.read, "25.6Mx", "it must be a whole number such as 25.6M"),
        (units.precision, "fp17", "it must be one of fp64"),
        (PRICE.read, "free", "it must be money for one worker and hour"),
        (PRICE.read, "2.5/week", "it must be money"),
        (units.workers, "0", "it must be numbers of workers"),
        (units.workers, "8-4", "it must be numbers of workers"),
        (units.workers, "1,,2", "it must be numbers of workers"),
    ],
)
def test_wrong_units_get_a_sentence(read_it, text, says):
    with pytest.raises(ValueError, match=says):
        read_it(text, "it")


@pytest.mark.parametrize(
    "text",
    [
        "sync",
        "async",
        "sign",
        "overlapped:4",
        "backup:2",
        "ssp:0",
        "local:16",
        "topk:0.01",
        "randomk:0.1",
        "qsgd:7",
    ],
)
def test_a_method_is_called_what_it_was_spelled(text):
    assert parse_method({"method": text, "steps_factor": 1.5}).name == text
    assert parse_method({"method": text, "steps_factor": 1.5}).steps_factor == 1.5
    assert text.partition(":")[0] in {name.partition(":")[0] for name in METHODS}


def test_unbiased_compressors_are_known_by_their_variance():
    assert parse_method("randomk:0.1").omega == pytest.approx(9)
    assert parse_method("qsgd:7").omega == pytest.approx(512**0.5 / 7)
    assert parse_method({"method": "topk:0.01", "coding_s": 0.003}).coding_s == 0.003
    assert parse_method("topk:0.01").omega == 0


@pytest.mark.parametrize("text", ["none", "lognormal:0.1", "normal:0.2", "exponential:0.5", "uniform:0.5", "pareto:3.0",
                                  "one:1.43", "lognormal:0.1+one:1.43"])  # fmt: skip
def test_a_law_is_written_as_it_is_read(text):
    assert format_law(parse_law(text)) == text
    assert text.partition("+")[0].partition(":")[0] in {name.partition(":")[0] for name in LAWS}


@pytest.mark.parametrize(
    "text", ["foo", "sync:1", "sync:", "local", "local:x", "local:2.5", "topk", "topk:x", "ssp:-1", ""]
)
def test_what_is_no_method_gets_a_sentence(text):
    with pytest.raises(ValueError, match=r"(methods|policy) must be of sync, .*, got|must be a whole number"):
        parse_method(text)


@pytest.mark.parametrize(
    "text", ["foo", "none+one:2", "one:1.4+one:2", "one:1.4+lognormal:0.1", "lognormal", "lognormal:x"]
)
def test_what_is_no_law_gets_a_sentence(text):
    with pytest.raises(ValueError, match=r"law must be of none, lognormal:sigma, .*, got"):
        parse_law(text)


# -- job files --------------------------------------------------------------------------------------------------------

CASE = Case(
    parameters=25_600_000,
    example_s=4e-3,
    b_examples=32,
    overhead_s=1e-3,
    law="lognormal:0.1+one:1.43",
    alpha_s=20e-6,
    beta_bytes_per_s=3.125e9,
    inside_alpha_s=5e-6,
    inside_beta_bytes_per_s=10e9,
    per_host_workers=4,
    price_per_worker_hour=2.5,
    allreduce="ring",
    S_min_steps=7000,
    B_crit_examples=4096,
    K_workers=(1, 8, 64),
    methods=(
        "sync",
        "ssp:3",
        {"method": "local:4", "steps_factor": 1.2},
        {"method": "qsgd:7", "coding_s": 0.002},
    ),
    goal="efficiency>=0.8",
)
HOSTS = {"inside_alpha_s": None, "inside_beta_bytes_per_s": None, "per_host_workers": None}
HYPERBOLA = {"S_min_steps": None, "B_crit_examples": None}
CASES = [
    CASE,
    replace(CASE, b_examples=None, B_examples=512, law="none", total_examples=1e8, goal="knee", **HYPERBOLA),
    replace(CASE, alpha_s=0.0, beta_bytes_per_s=1e9, **HOSTS),
]


@pytest.mark.parametrize("case", CASES, ids=["hosts", "strong", "flat"])
def test_a_case_survives_its_own_json(case):
    assert Case.from_json(json.dumps(case.to_dict())) == case
    assert (
        Case.from_json(json.dumps({"schema": "labkit-plan-1", "inputs": case.to_dict(), "rows": []})) == case
    )


def changed(path, value):
    """The written case with one entry another, or gone where value is None."""
    out = json.loads(json.dumps(CASE.to_dict()))
    *way, last = path
    into = out
    for key in way:
        into = into[key]
    if value is None:
        del into[last]
    else:
        into[last] = value
    return out


@pytest.mark.parametrize(
    "path,value,says",
    [
        (["job"], None, "parameters must be given: parameters of the model"),
        (["job", "parameters"], None, "parameters must be given"),
        (["job", "parameters"], -3, "parameters must be a whole number >= 1, got -3"),
        (["job", "parameters"], "25.6M", "parameters must be a whole number >= 1, got '25.6M'"),
        (["job", "paramters"], 5, "job must not have 'paramters'; is parameters meant"),
        (["job", "b_examples"], 0, "b_examples must be a whole number >= 1, got 0"),
        (["job", "B_examples"], 64, "b_examples or B_examples must be given, and only one of the two"),
        (["job", "example_s"], "fast", "example_s must be a finite number > 0, got 'fast'"),
        (["job", "law"], 3, "law must be a law of compute time or its text"),
        (["cluster", "alpha_s"], -1.0, "alpha_s must be a finite number >= 0, got -1.0"),
        (["cluster", "beta_bytes_per_s"], None, "beta_bytes_per_s must be given"),
        (["cluster", "beta_bytes_per_s"], True, "beta_bytes_per_s must be a finite number > 0, got True"),
        (["cluster", "per_host_workers"], None, "must be given together, got no per_host_workers"),
        (
            ["cluster", "price_per_worker_hour"],
            -1,
            "price_per_worker_hour must be a finite number >= 0, got -1",
        ),
        (["target", "total_examples"], 5, "S_min_steps and B_crit_examples or total_examples must be given"),
        (["target", "S_min_steps"], "7000", "S_min_steps must be a finite number > 0, got '7000'"),
        (["target", "S_min_steps"], 0, "S_min_steps must be a finite number > 0, got 0"),
        (["K_workers"], [4, 2.5], "K_workers must be a whole number >= 1, got 2.5"),
        (["methods"], [], "methods must be one at least"),
        (["methods"], "sync", "methods must be a list of names"),
        (["methods"], [{"method": "sync", "name": 1}], "a method must not have 'name'"),
        (["methods"], [{"steps_factor": 2}], "a method must have its name under method"),
        (
            ["methods"],
            [{"method": "sync", "coding_s": 2}],
            "coding_s must be 0 where nothing is compressed, got 2",
        ),
        (["goal"], "cheap", "goal must be time, price, knee or efficiency"),
        (["goal"], 7, "goal must be a text, got 7"),
        (["ink"], "red", "inputs must not have 'ink'; it may have"),
    ],
)
def test_each_wrong_entry_of_a_file_gets_a_sentence(path, value, says):
    with pytest.raises(ValueError, match=says):
        Case.from_json(json.dumps(changed(path, value)))


def test_what_is_no_json_or_has_no_text_gets_a_sentence():
    with pytest.raises(ValueError, match="the job file must be JSON, but Expecting value"):
        Case.from_json("parameters: 25M")
    with pytest.raises(ValueError, match="inputs must be an object"):
        Case.from_json("[1]")
    with pytest.raises(ValueError, match="law must be one that a job file can hold"):
        replace(CASE, law=Scaled(LogNormal(2.0, 0.1), 3.0)).to_dict()


# -- lint -------------------------------------------------------------------------------------------------------------

CALM = replace(CASE, law="none", **HOSTS)
NVLINK = {
    "inside_alpha_s": 5e-6,
    "inside_beta_bytes_per_s": 25e9,
    "per_host_workers": 8,
    "beta_bytes_per_s": 12.5e9,
}


def test_plausible_values_are_not_suspected():
    assert lint(CALM) == []
    for rate in ("10Gbit/s", "25gbps", "40Gb/s", "100Gbit/s", "400Gbit/s", "1.2GB/s", "7GB/s", "900MB/s"):
        assert lint(replace(CALM, beta_bytes_per_s=RATE.read(rate, "rate")), rate) == [], rate
    assert lint(replace(CALM, **NVLINK), "100Gbit/s") == []  # 25 GB/s is what an NVLink has


@pytest.mark.parametrize(
    "changes,rate,says",
    [
        ({"beta_bytes_per_s": 25e9}, "25GB/s", "if bits are meant write 25Gbit/s, which is 3.125 GB/s"),
        ({"beta_bytes_per_s": 10e9}, "10GB/s", "10 GB/s is 80 Gbit/s"),
        ({"beta_bytes_per_s": 3.125e9 / 8}, "3.125Gbit/s", "if bytes are meant write 3.125GB/s"),
        ({"beta_bytes_per_s": 25.0}, "25", "is a unit such as Gbit/s missing"),
        ({"alpha_s": 20.0}, None, "is a unit such as us missing"),
        ({"parameters": 25}, None, "if millions are meant write 25M"),
        ({"element_bytes": 16}, None, "fp16 has 2 bytes"),
        ({"example_s": 40.0}, None, "if milliseconds are meant write 40ms"),
        ({"example_s": 4e-9}, None, "were seconds taken for milliseconds"),
        ({"price_per_worker_hour": 900.0}, None, "is it that of the whole cluster"),
        ({"law": Constant(0.128)}, None, "are these seconds"),
    ],
)
def test_each_confusion_is_suspected_once(changes, rate, says):
    (found,) = lint(replace(CALM, **changes), rate)
    assert says in found
