"""The format between grader and answer: plain data there and back, and nothing that runs code or costs without bound."""

import json
import math
import random
import struct
import time

import numpy as np
import pytest

from labkit_book.problems import wire
from labkit_book.problems.exercise import Wrong, close, same_array

PLAIN = [
    None, True, False, 0, -1, 2**70, 1.5, -0.0, math.inf, 1 + 2j, "", "äöü \ud800", b"\x00\xff", [], (), {}, set(), ...,
    [1, (2.0, {3, 4}), {"a": [None], (1, 2): frozenset({5})}], range(2, 9, 3),
    np.arange(6.0).reshape(2, 3)[:, ::-1], np.zeros(()), np.zeros((0, 3)), np.array([True]), np.float32(0.1), np.int8(-3),
    np.array(["a", "bc"]), np.arange(3, dtype=">i4"), np.array([1 + 1j]), np.full(2, np.nan),
]  # fmt: skip


def alike(a, b):
    """The same type, shape, dtype and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(alike(a[k], b[k]) for k in a)
    return a == b


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_data_arrive_as_they_went(value):
    assert alike(wire.decode(wire.encode(value)), value)


def test_what_is_received_is_the_receivers_own():
    x = np.arange(3.0)
    got = wire.decode(wire.encode(x))
    got[0] = 7
    assert x[0] == 0


@pytest.mark.parametrize(
    "value", [object(), lambda: 1, np, np.array([None]), np.zeros(2, "M8[s]"), np.zeros(2, [("a", "f8")]), 2**5000,
              type, slice(1), memoryview(b"x")],
    ids=["object", "lambda", "module", "objects", "dates", "records", "long", "type", "slice", "memory"],
)  # fmt: skip
def test_what_is_not_plain_arrives_as_a_stand_in_that_no_judge_takes_for_a_number(value):
    got = wire.decode(wire.encode(value))
    assert isinstance(got, wire._Foreign)
    for judge in (lambda v: close(v, 1.0), lambda v: same_array(v, np.zeros(2))):
        with pytest.raises(Wrong):
            judge(got)


def test_functions_travel_as_their_number():
    functions = []
    frame = wire.encode((abs, [len], abs), functions)
    assert functions == [abs, len, abs]
    assert wire.decode(frame, lambda i: functions[i]) == (abs, [len], abs)
    there, _, _ = wire.decode(frame)
    assert callable(there) and repr(there) == "<function>"
    with pytest.raises(TypeError, match="in the answer's process"):
        there(-1)


@pytest.mark.parametrize("value", [
    [0] * (wire.NODES + 1), iter(int, 1), [[[]]] * (wire.NODES // 2),
], ids=["long", "endless", "wide"])  # fmt: skip
def test_too_much_is_refused_by_the_writer(value):
    with pytest.raises(wire.Unfit, match="values"):
        wire.encode(value)


def test_too_much_text_is_refused_by_the_writer():
    assert len(wire.as_sent([np.zeros(1)] * (wire.NODES - 1))) == wire.NODES - 1  # and not for its brackets
    with pytest.raises(wire.Unfit, match="bytes of text, where"):
        wire.encode("x" * wire.TREE_BYTES)


def test_too_deep_is_refused_by_both():
    value = []
    for _ in range(wire.DEPTH + 1):
        value = [value]
    with pytest.raises(wire.Unfit, match="deep"):
        wire.encode(value)
    with pytest.raises(wire.Unfit):
        wire.decode(frame_of('["l",' * (n := wire.DEPTH + 1) + "1" + "]" * n))


def frame_of(tree: str, *buffers: bytes, sizes=None) -> bytes:
    head = f"[{tree}, {json.dumps([len(b) for b in buffers] if sizes is None else sizes)}]".encode()
    return struct.pack(">I", len(head)) + head + b"".join(buffers)


FORGED = {
    "nothing": b"", "short": b"\x00", "no head": b"\xff" * 4, "not JSON": struct.pack(">I", 3) + b"abc",
    "deep JSON": struct.pack(">I", 100_000) + b"[" * 100_000,
    "an object array": frame_of('["a", "|O", [1], 0]', bytes(8)), "an object scalar": frame_of('["s", "|O", 0]', bytes(8)),
    "a structure": frame_of('["a", [["x", "<f8"]], [1], 0]', bytes(8)),
    "a class": frame_of('["a", "numpy.f8", [1], 0]', bytes(8)),
    "more than is there": frame_of('["a", "<f8", [1099511627776], 0]', bytes(8)),
    "another buffer": frame_of('["a", "<f8", [1], 3]', bytes(8)), "an unknown tag": frame_of('["x", 1]'),
    "a bare dict": frame_of('{"a": 1}'), "an odd dict": frame_of('["d", 1]'),
    "an unhashable key": frame_of('["d", ["l"], 1]'),
    "a tag that is none": frame_of("[[]]"), "an empty list": frame_of("[]"), "a negative size": frame_of("1", sizes=[-1]),
    "sizes that don't add up": frame_of("1", b"x", sizes=[2]), "a long number": frame_of("1" + "0" * 4000),
    "a longer number": frame_of("1" + "0" * 5000), "many keys": frame_of('["S"' + ",1" * (2 * wire.KEYS + 2) + "]"),
    "text as bytes": frame_of('["b", "x"]', b"x"), "a wide string": frame_of('["a", "<U99999999", [1], 0]', b""),
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_frame_is_refused(forged):
    with pytest.raises(wire.Unfit):
        wire.decode(FORGED[forged])


def test_noise_is_refused_or_plain_and_never_anything_else():
    rng = random.Random(7)
    good = wire.encode(
        {"op": "answer", "value": [np.arange(5.0), (1, "a", None)], "after": ((np.ones(2),), {3})}
    )
    for _ in range(3000):
        frame = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        try:
            wire.decode(bytes(frame[: rng.randint(len(frame) // 2, len(frame))]))
        except wire.Unfit:
            continue


# -- judges take numbers only ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", ["1", b"1", "nan", np.array("1"), np.array(1, object), 1 + 0j, [1 + 1j], None, [], [[1]] * 2]
)
def test_words_objects_and_complex_numbers_are_no_number(given):
    with pytest.raises(Wrong):
        close(given, 1.0)


@pytest.mark.parametrize(
    "given", [["1", "2"], np.array(["1", "2"]), np.array([1, 2], object), np.array([1, 2 + 1j]), 1.0, [1.0], [[1.0, 2.0]],
              [1.0, np.nan], [1.0, np.inf], [1.0, None], "12", {1: 2}, [[1.0], [2.0, 3.0]]], ids=repr
)  # fmt: skip
def test_an_array_must_have_the_shape_and_be_finite_real_numbers(given):
    with pytest.raises(Wrong):
        same_array(given, np.array([1.0, 2.0]))


def test_lists_and_whole_numbers_are_arrays_too():
    same_array([1, 2], np.array([1.0, 2.0]))
    same_array(np.array([1, 2], ">i2"), np.array([1.0, 2.0]))
    same_array([], np.zeros(0))


@pytest.mark.parametrize("frame", [
    lambda: (["l", *[["a", "|u1", [10**6], 0]] * 50_000], [10**6]),  # 50 GB from 1 MB
    lambda: (["l", *[["b", 0]] * 50_000], [10**6]),
    lambda: (["a", "f8," * 10**6, [1], 0], [10**6]),  # numpy takes a minute over this dtype
    lambda: (["a", "(" + "1," * 10**6 + ")f8", [1], 0], [10**6]),
    lambda: (["a", "|u1", [1] * 10**6, 0], [10**6]),
    lambda: (["l", *[[] for _ in range(10**6)]], [10**6]),
    lambda: (["l"], [0] * 10**6 + [10**6]),
    # all keys collide
    lambda: (["l", *[["d", *[i * (2**61 - 1) for i in range(16_000)]] for _ in range(6)]], [10**6]),
])  # fmt: skip
def test_a_small_frame_costs_neither_much_memory_nor_much_time(frame):
    head = json.dumps(frame()).encode()
    started = time.process_time()
    with pytest.raises(wire.Unfit, match="not a frame"):
        wire.decode(struct.pack(">I", len(head)) + head + bytes(10**6))
    assert time.process_time() - started < 10
