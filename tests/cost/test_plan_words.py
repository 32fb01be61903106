"""Units, spellings, suspicions and job files: what is written is what is meant, or a sentence says otherwise."""

import json
from dataclasses import replace

import pytest

from labkit.cost import Link
from labkit.cost.plan import Cluster, Efficient, Examples, Job, TwoLevel, defaults, units
from labkit.cost.plan.case import Case, from_dict, read, to_dict
from labkit.cost.plan.goals import Least
from labkit.cost.plan.spelling import LAWS, METHODS, law, law_text, method
from labkit.cost.plan.suspect import suspicions
from labkit.learn import Hyperbola
from labkit.timing import Constant, LogNormal, OneStraggler, Scaled


@pytest.mark.parametrize(
    "read_it,text,value",
    [
        (units.rate, "25Gbit/s", 25e9 / 8),
        (units.rate, "25 Gbps", 25e9 / 8),
        (units.rate, "25gbps", 25e9 / 8),
        (units.rate, "25Gb/s", 25e9 / 8),
        (units.rate, "3.125GB/s", 3.125e9),
        (units.rate, "3GiB/s", 3 * 2**30),
        (units.rate, "100 Mbit/s", 12.5e6),
        (units.rate, "1e9", 1e9),
        (units.seconds, "20us", 20e-6),
        (units.seconds, "20 µs", 20e-6),
        (units.seconds, "3ms", 3e-3),
        (units.seconds, "0.5", 0.5),
        (units.count, "25.6M", 25_600_000),
        (units.count, "7B", 7 * 10**9),
        (units.count, "340k", 340_000),
        (units.count, "1_000", 1000),
        (units.count, "1e6", 10**6),
        (units.precision, "bf16", 2),
        (units.precision, "FP32", 4),
        (units.precision, "2", 2),
        (units.price, "2.5/h", 2.5),
        (units.price, "$2.5", 2.5),
        (units.price, "60/day", 2.5),
        (units.price, "0.001/s", 3.6),
        (units.numbers_of_workers, "8", [8]),
        (units.numbers_of_workers, "1,2,6", [1, 2, 6]),
        (units.numbers_of_workers, "3-20", [3, 4, 8, 16, 20]),
    ],
)
def test_units_are_what_they_say(read_it, text, value):
    assert read_it(text) == pytest.approx(value, rel=1e-15)


def test_bits_are_told_from_bytes():
    assert all(map(units.in_bits, ("25Gbit/s", "25Gbps", "25gbps", "25Gb/s", "1 mbit/s")))
    assert not any(map(units.in_bits, ("25GB/s", "25GBps", "3GiB/s", "25e9", "25Gbytes/s")))


@pytest.mark.parametrize(
    "read_it,text,says",
    [
        (units.rate, "25Gbit", r"network must be a rate .* per second, /s, is missing, got '25Gbit'"),
        (units.rate, "25Gx/s", "network must be a rate such as 25Gbit/s or 3.125GB/s, got '25Gx/s'"),
        (units.rate, "fast", "network must be a rate"),
        (units.rate, "inf", "network must be finite"),
        (units.seconds, "20 parsecs", "time must be a time in s, ms, us"),
        (units.seconds, "nan", "time must be finite"),
        (units.count, "25.6", "is 25.6M meant"),
        (units.count, "nan", "parameters must be finite"),
        (units.count, "25.6Mx", "parameters must be a whole number such as 25.6M"),
        (units.precision, "fp17", "precision must be one of fp64"),
        (units.price, "free", "price must be money for one worker and hour"),
        (units.price, "2.5/week", "price must be money"),
        (units.numbers_of_workers, "0", "K must be numbers of workers"),
        (units.numbers_of_workers, "8-4", "K must be numbers of workers"),
        (units.numbers_of_workers, "1,,2", "K must be numbers of workers"),
    ],
)
def test_wrong_units_get_a_sentence(read_it, text, says):
    with pytest.raises(ValueError, match=says):
        read_it(text)


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
    assert method(text, steps_factor=1.5).name == text
    assert method(text, steps_factor=1.5).steps_factor == 1.5
    assert text.partition(":")[0] in {name.partition(":")[0] for name in METHODS}


def test_unbiased_compressors_are_known_by_their_variance():
    assert method("randomk:0.1").omega == pytest.approx(9)
    assert method("qsgd:7").omega == pytest.approx(512**0.5 / 7)
    assert method("topk:0.01", coding_s=0.003).coding_s == 0.003 and method("topk:0.01").omega == 0


@pytest.mark.parametrize("text", ["none", "lognormal:0.1", "normal:0.2", "exponential:0.5", "uniform:0.5", "pareto:3.0",
                                  "one:1.43", "lognormal:0.1+one:1.43"])  # fmt: skip
def test_a_law_is_written_as_it_is_read(text):
    assert law_text(law(text)) == text
    assert text.partition("+")[0].partition(":")[0] in {name.partition(":")[0] for name in LAWS}


@pytest.mark.parametrize(
    "text", ["foo", "sync:1", "sync:", "local", "local:x", "local:2.5", "topk", "topk:x", "ssp:-1", ""]
)
def test_what_is_no_method_gets_a_sentence(text):
    with pytest.raises(ValueError, match=r"methods must be of sync, overlapped:L, .*, got"):
        method(text)


@pytest.mark.parametrize(
    "text", ["foo", "none+one:2", "one:1.4+one:2", "one:1.4+lognormal:0.1", "lognormal", "lognormal:x"]
)
def test_what_is_no_law_gets_a_sentence(text):
    with pytest.raises(ValueError, match=r"stragglers must be of none, lognormal:sigma, .*, got"):
        law(text)


# -- job files --------------------------------------------------------------------------------------------------------

CASE = Case(
    Job(P=25_600_000, example_s=4e-3, b=32, overhead_s=1e-3, law=law("lognormal:0.1+one:1.43")),
    Cluster(TwoLevel(Link(5e-6, 10e9), Link(20e-6, 3.125e9), 4), 2.5, "ring"),
    Hyperbola(7000, 4096),
    (1, 8, 64),
    (*defaults(), method("local:4", 1.2), method("qsgd:7", coding_s=0.002)),
    Efficient(0.8),
)
CASES = [
    CASE,
    replace(
        CASE,
        job=replace(CASE.job, b=None, B=512, law=Constant(1.0)),
        target=Examples(1e8),
        goal=Least("knee"),
    ),
    replace(CASE, cluster=Cluster(Link(0.0, 1e9))),
]


@pytest.mark.parametrize("case", CASES, ids=["hosts", "strong", "flat"])
def test_a_case_survives_its_own_json(case):
    assert read(json.dumps(to_dict(case))) == case
    assert read(json.dumps({"schema": "labkit-plan-1", "inputs": to_dict(case), "rows": []})) == case


def changed(path, value):
    """The written case with one entry another, or gone where value is None."""
    out = json.loads(json.dumps(to_dict(CASE)))
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
        (["job"], None, "inputs must have job, got cluster"),
        (["job", "parameters"], None, "job must have parameters"),
        (["job", "parameters"], -3, "parameters must be a whole number >= 1, got -3"),
        (["job", "parameters"], "25.6M", "parameters must be a whole number >= 1, got '25.6M'"),
        (["job", "paramters"], 5, "job must not have 'paramters'; is parameters meant"),
        (["job", "b_examples"], 0, "b_examples must be a whole number >= 1, got 0"),
        (["job", "B_examples"], 64, "b or B must be given, and only one of them"),
        (["job", "example_s"], "fast", "example_s must be a finite number > 0, got 'fast'"),
        (["job", "law"], 3, "law must be a text, got 3"),
        (["cluster", "alpha_s"], -1.0, "alpha_s must be a finite number of seconds >= 0, got -1.0"),
        (["cluster", "beta_bytes_per_s"], None, "cluster must have beta_bytes_per_s"),
        (["cluster", "beta_bytes_per_s"], True, "beta_bytes_per_s must be a finite number, got True"),
        (
            ["cluster", "per_host_workers"],
            None,
            "cluster must have per_host_workers too where it has inside_alpha_s",
        ),
        (
            ["cluster", "price_per_worker_hour"],
            -1,
            "price_per_worker_hour must be a finite number >= 0, got -1",
        ),
        (
            ["target", "total_examples"],
            5,
            "target must have S_min_steps and B_crit_examples, or total_examples alone",
        ),
        (["target", "S_min_steps"], "7000", "S_min_steps must be a finite number, got '7000'"),
        (["target", "S_min_steps"], 0, "S_min_steps must be a finite number of steps > 0, got 0"),
        (["K_workers"], [4, 2.5], "K must be a whole number >= 1, got 2.5"),
        (["methods"], [], "methods must be a list of names"),
        (["methods"], [{"name": "sync"}], "a method must not have 'name'"),
        (["methods"], [{"steps_factor": 2}], "a method must have its name under method"),
        (["goal"], "cheap", "goal must be time, price, knee or efficiency"),
        (["ink"], "red", "inputs must not have 'ink'; it may have job"),
    ],
)
def test_each_wrong_entry_of_a_file_gets_a_sentence(path, value, says):
    with pytest.raises(ValueError, match=says):
        from_dict(changed(path, value))


def test_what_is_no_json_or_has_no_spelling_gets_a_sentence():
    with pytest.raises(ValueError, match="the job file must be JSON, but Expecting value"):
        read("parameters: 25M")
    with pytest.raises(ValueError, match="inputs must be an object"):
        read("[1]")
    with pytest.raises(ValueError, match="law must be one that a job file can hold"):
        to_dict(replace(CASE, job=replace(CASE.job, law=Scaled(LogNormal(2.0, 0.1), 3.0))))
    assert isinstance(law("one:2"), OneStraggler)


# -- suspicions -------------------------------------------------------------------------------------------------------

CALM = Case(Job(P=25_600_000, example_s=4e-3, b=32), Cluster(Link(20e-6, 3.125e9), 2.5), Hyperbola(7000, 4096), (8,),
            defaults(), Least("time"))  # fmt: skip


def test_plausible_values_are_not_suspected():
    assert suspicions(CALM) == []
    for rate in (
        "10Gbit/s",
        "12.5Gbit/s",
        "40Gbit/s",
        "100Gbit/s",
        "400Gbit/s",
        "1.2GB/s",
        "7GB/s",
        "900MB/s",
    ):
        case = replace(CALM, cluster=Cluster(Link(20e-6, units.rate(rate))))
        assert suspicions(case, sure=units.in_bits(rate)) == [], rate
    nvlink = TwoLevel(Link(5e-6, 25e9), Link(20e-6, 12.5e9), 8)  # 25 GB/s is what an NVLink has
    assert suspicions(replace(CALM, cluster=Cluster(nvlink))) == []


@pytest.mark.parametrize(
    "case,says",
    [
        (
            replace(CALM, cluster=Cluster(Link(20e-6, 25e9))),
            "if bits are meant write 25Gbit/s, which is 3.125 GB/s",
        ),
        (replace(CALM, cluster=Cluster(Link(20e-6, units.rate("10GB/s")))), "10 GB/s is 80 Gbit/s"),
        (
            replace(CALM, cluster=Cluster(Link(20e-6, units.rate("3.125Gbit/s")))),
            "if bytes are meant write 3.125GB/s",
        ),
        (replace(CALM, cluster=Cluster(Link(20e-6, 25.0))), "is a unit such as Gbit/s missing"),
        (replace(CALM, cluster=Cluster(Link(20.0, 3.125e9))), "is a unit such as us missing"),
        (replace(CALM, job=replace(CALM.job, P=25)), "if millions are meant write 25M"),
        (replace(CALM, job=replace(CALM.job, itemsize=16)), "fp16 has 2 bytes"),
        (replace(CALM, job=replace(CALM.job, example_s=40.0)), "if milliseconds are meant write 40ms"),
        (replace(CALM, job=replace(CALM.job, example_s=4e-9)), "were seconds taken for milliseconds"),
        (
            replace(CALM, cluster=replace(CALM.cluster, price_per_hour=900.0)),
            "is it that of the whole cluster",
        ),
        (replace(CALM, job=replace(CALM.job, law=Constant(0.128))), "are these seconds"),
    ],
)
def test_each_confusion_is_suspected_once(case, says):
    (found,) = suspicions(case)
    assert says in found
