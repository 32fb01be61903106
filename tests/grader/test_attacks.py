"""What an answer may try, one test each: the verdict stays true, in bounded time, and nothing of it is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import grading_fakes as f

from labkit_book.grader.grading import Outcome, grade_one
from labkit_book.grader.isolation import Limits, own_folder
from labkit_book.grader.key import Key
from labkit_book.grader.zygote import GraderFailure, Zygote
from labkit_book.problems.exercise import Case, Exercise, same_array

pytestmark = pytest.mark.processes
MOST_GROWTH = 100e6  # bytes that an answer can make the grader take
SECRET = 271828.182845  # what a right answer would have to contain, known to the judge alone


def doubled(rng):
    """Twice x, and a secret that no answer can know."""
    for n in (3, 5):
        x = rng.standard_normal(n)
        yield Case((x,), lambda given, want=2 * x: same_array(given, want, "it"), label=f"n = {n}")


def secret(rng):
    yield Case((np.arange(3.0),), lambda given: same_array(given, np.full(3, SECRET), "it"))


def summed(rng):
    """The sum of everybody's x, on every rank; K and data differ."""
    for K in (1, 3):
        xs = rng.standard_normal((K, 4))

        def judge(run, xs=xs):
            for k, given in enumerate(run.results):
                same_array(given, xs.sum(axis=0), f"what rank {k} returned", atol=1e-12)

        yield Case(tuple((x,) for x in xs), judge, K, f"K = {K}", clock=True)


DOUBLE = Exercise("0-1", "Double it", "build", 2, "f", doubled)
GUESS = Exercise("0-2", "Know the secret", "build", 2, "f", secret)
SUM = Exercise("0-3", "Add up", "build", 2, "f", summed)
RIGHT_SUM = """
def f(comm, x):
    total = x.copy()
    for d in range(1, comm.K):
        total += comm.sendrecv(x, (comm.rank + d) % comm.K, np.empty_like(x), (comm.rank - d) % comm.K)
    return total
"""


@pytest.fixture(scope="module")
def z():
    limits = Limits(
        case_s=30, exercise_s=60, cpu_s=20, memory_bytes=200 << 20, output_bytes=200_000, files_bytes=1 << 20
    )
    with Zygote(limits) as z:
        yield z


@pytest.fixture
def hasty(z):
    """The same with little patience."""
    before, z.limits = z.limits, replace(z.limits, case_s=0.5, exercise_s=1.0)
    yield z
    z.limits = before


def grade(z, source, exercise=DOUBLE, within_s=30.0, **more) -> Outcome:
    started, before = time.monotonic(), f.forget()
    outcome = grade_one(exercise, textwrap.dedent(source), setup="import numpy as np", zygote=z, **more)
    assert time.monotonic() - started < within_s
    assert f.peak() - before < MOST_GROWTH, "it may have 300 MB, and has taken less than 150 before (below)"
    assert outcome.points == (outcome.of if outcome.status == "PASS" else 0)
    assert len(outcome.message) <= 2000 and len(outcome.log) <= 8000
    assert outcome.isolation == z.isolation.words()
    return outcome


@pytest.fixture(autouse=True)
def nothing_is_left(z):
    """After every attack: no process of the answer's is there, and the next answer is graded rightly."""
    yield
    assert not z.left()
    assert grade(z, "def f(x): return 2 * x").status == "PASS"


# -- honest answers --------------------------------------------------------------------------------------------------


def test_a_right_answer_passes_and_a_wrong_one_does_not(z):
    assert grade(z, "def f(x):\n    return 2 * x").status == "PASS"
    wrong = grade(z, "def f(x):\n    return 3 * x")
    assert wrong.status == "WRONG" and "3 of 3 places" in wrong.message and "(n = 3)" in wrong.message
    assert grade(z, RIGHT_SUM, SUM).status == "PASS"
    alone = grade(z, "def f(comm, x): return x", SUM)
    assert alone.status == "WRONG" and "K = 3" in alone.message


def test_an_answer_that_raises_hears_where(z):
    outcome = grade(z, "def f(x):\n    y = 0\n    return 1 / y")
    assert outcome.status == "ERROR" and "ZeroDivisionError" in outcome.message
    assert "line 3 of f: return 1 / y" in outcome.message
    assert "Traceback" in outcome.log and "seed" in outcome.log


def test_a_name_that_is_not_there_brings_a_hint(z):
    outcome = grade(z, "def f(x):\n    return maths.sqrt(x)")
    assert outcome.status == "ERROR" and "same cell" in outcome.message
    outcome = grade(z, "import nothing_of_that_name\ndef f(x): return x")
    assert outcome.status == "ERROR" and "nothing_of_that_name" in outcome.message
    assert "does not have that package" in outcome.message


def test_a_syntax_error_is_an_error_with_its_line(z):
    outcome = grade(z, "def f(x):\n    return (2 * x\n")
    assert outcome.status == "ERROR" and "SyntaxError" in outcome.message and "line 2" in outcome.message
    assert "n = 3" not in outcome.message  # no question was put


@pytest.mark.parametrize(
    "source",
    [
        "x" * 1_000_001,
        "f = " + "-" * 90_000 + "1",
        "f = " + "(" * 5000 + ")" * 5000,
        "f = '\0'",
        "f = '\\ud800'\n",
    ],
)
def test_a_cell_that_no_parser_likes_is_not_the_graders_problem(z, source):
    assert grade(z, source).status in ("ERROR", "WRONG", "KILLED")


def test_a_cell_that_raises_after_its_function_counts_as_in_a_notebook(z):
    outcome = grade(z, "def f(x): return 2 * x\n1 / 0")
    assert outcome.status == "PASS" and "ZeroDivisionError" in outcome.log


def test_a_cell_may_try_its_function_on_simulated_workers(z):
    source = RIGHT_SUM + "from labkit import launch\nprint(launch(f, 3, np.ones(4)).results[0])"
    outcome = grade(z, source, SUM)
    assert outcome.status == "PASS" and "[3. 3. 3. 3.]" in outcome.log


def test_a_check_in_the_cell_says_nothing(z):
    source = "from labkit_book import check, summary\ndef f(x): return 3 * x\n"
    assert grade(z, source + "summary(check('10.3-1', f))").status == "WRONG"


@pytest.mark.parametrize("body", ['"""Doc."""\n    ...', "pass", "return None", "raise NotImplementedError"])
def test_an_untouched_stub_is_no_result(z, body):
    outcome = grade(z, f"def f(x):\n    {body}")
    assert outcome.status == "NO_RESULT" and "not done yet" in outcome.message


def test_a_function_that_returns_nothing_is_told_so(z):
    outcome = grade(z, "def f(x):\n    y = 2 * x")
    assert outcome.status == "NO_RESULT" and "return" in outcome.message
    assert grade(z, "g = 1").status == "NO_RESULT"
    assert grade(z, "f = None").status == "NO_RESULT"
    assert grade(z, "f = 3").status == "WRONG"


def test_none_is_an_answer_where_it_is_asked_for(z):
    def cases(rng):
        yield Case((1,), lambda given: same_array(given, np.array(1.0)))
        yield Case((0,), lambda given: None if given is None else same_array(given, np.array(7.0)), none=True)

    exercise = Exercise("0-4", "Or nothing", "build", 1, "f", cases)
    assert grade(z, "def f(n): return n or None", exercise).status == "PASS"
    assert grade(z, "def f(n): ...", exercise).status == "NO_RESULT"


# -- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    while True: pass",
        "while True: pass",
        "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        "import signal, contextlib\nfor s in range(1, 32):\n"
        "    with contextlib.suppress(OSError, ValueError): signal.signal(s, signal.SIG_IGN)\n"
        "def f(x):\n    while True: pass",
        "def f(x): return sum(np.linalg.svd(np.ones((900, 900)))[1][0] for i in range(10**6))",
        "import threading\ndef f(x):\n    threading.Event().wait()",
        "import threading\nfor i in range(4):\n    threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()\n"
        "def f(x): return 10 ** 10 ** 10",
    ],
)  # fmt: skip
def test_a_loop_without_end_is_ended(hasty, source):
    outcome = grade(hasty, source, within_s=15)
    assert outcome.status in ("TIMEOUT", "KILLED") and outcome.message
    assert outcome.status == "TIMEOUT" or "memory" in outcome.message


def test_a_rank_that_never_comes_is_ended(hasty):
    source = "def f(comm, x):\n    while comm.rank == 1: pass\n    comm.barrier()\n    return x"
    assert grade(hasty, source, SUM, within_s=15).status in ("TIMEOUT", "WRONG")
    source = "def f(comm, x):\n    while True: comm.now()"
    assert grade(hasty, source, SUM, within_s=15).status == "TIMEOUT"


def test_processor_time_is_limited_too(z):
    before, z.limits = z.limits, replace(z.limits, case_s=60, exercise_s=60, cpu_s=1)
    outcome = grade(z, "def f(x):\n    while True: pass")
    z.limits = before
    assert outcome.status == "TIMEOUT" and "processor time" in outcome.message


# -- leaving ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["import os; os._exit(0)", "import sys; sys.exit(0)", "quit()", "raise SystemExit",
                                  "raise NotImplementedError"])  # fmt: skip
def test_leaving_is_no_result(z, call):
    assert grade(z, f"{call}\ndef f(x): return 2 * x").status in ("NO_RESULT", "ERROR")
    assert grade(z, f"def f(x):\n    {call}").status in ("NO_RESULT", "ERROR")
    assert grade(z, f"def f(comm, x):\n    {call}", SUM).status in ("NO_RESULT", "ERROR")


def test_a_crash_is_told_by_its_signal(z):
    outcome = grade(z, "import ctypes\ndef f(x): ctypes.string_at(0)")
    assert outcome.status == "KILLED" and "SIGSEGV" in outcome.message
    assert grade(z, "import os\ndef f(x): os.abort()").status == "KILLED"


# -- lies ------------------------------------------------------------------------------------------------------------

LIES = {
    "numpy's tests": "np.testing.assert_allclose = np.allclose = np.isclose = np.array_equal = lambda *a, **k: True",
    "numpy's arrays": "import numpy\nnumpy.asarray = lambda *a, **k: 1\nnumpy.isfinite = lambda *a: np.True_",
    "builtins": "import builtins as b\nb.isinstance = lambda *a: True\nb.len = lambda *a: 3\nb.abs = lambda a: 0",
    "the judge": "import labkit_book.problems.exercise as e\ne.same_array = e.close = e.number = lambda *a, **k: None",
    "what is wrong": "import labkit_book.problems.exercise as e\ne.Wrong = type('Fine', (), {'__init__': lambda *a: None})",
    "other judges": "import sys, types\nfor n in ('pytest', 'IPython'): sys.modules[n] = types.ModuleType(n)",
    "the grader": "import labkit_book.grader.grading as g\ng.grade_one = lambda *a, **k: 1\ng.PASS = g.WRONG",
    "scores": "print('0-2 PASS 2 of 2 points')\nimport sys; print('{\"status\": \"PASS\"}', file=sys.stderr)",
    "the exit": "import atexit; atexit.register(print, 'PASS')",
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_told_to_its_own_process_scores_nothing(z, lie):
    outcome = grade(z, f"{LIES[lie]}\ndef f(x): return 3 * x")
    assert outcome.status in ("WRONG", "NO_RESULT", "ERROR")


FRAMES = """
import os, json, struct, numpy as np
from labkit_book.problems import wire
def say(frame, fd=100):
    os.write(fd, struct.pack(">Q", len(frame)) + frame)
"""


@pytest.mark.parametrize(
    "body",
    [
        "say(wire.encode({'op': 'answer', 'value': np.full(3, 1.0), 'after': (x,)})); return np.zeros(3)",
        "say(wire.encode({'op': 'PASS', 'status': 'PASS', 'points': 2}))",
        "say(b'PASS')",
        "say(wire.encode(['PASS']))",
        "say(b'\\xff\\xff\\xff\\xff' + b'[' * 100000)",
        "say(struct.pack('>I', 200000) + b'[' * 200000)",
        "os.write(100, b'\\xff' * 8)",
        "say(wire.encode({'op': 'ask', 'what': '__class__'}))",
        "say(wire.encode({'op': 'ask', 'what': 'function', 'number': -1, 'args': ()}))",
        "say(wire.encode({'op': 'ask', 'what': 'isend', 'data': np.ones(3), 'to': 0}))",
        "say(wire.encode({'op': 'raised', 'type': 'Wrong\\n', 'message': 'x' * 99999, 'kind': [], 'lines': 3}))",
        "say(wire.encode({'op': 'not isolated'}))",
        "os.closerange(0, 4096); return np.zeros(3)",
        "os.close(100)",
        "h = json.dumps([['a', '|O', [1], 0], [8]]).encode(); say(struct.pack('>I', len(h)) + h + b'12345678')",
        "h = json.dumps([['a', '<f8', [2**40], 0], [8]]).encode(); say(struct.pack('>I', len(h)) + h + b'12345678')",
        "h = json.dumps([['r', 0, 10**15, 1], []]).encode(); say(struct.pack('>I', len(h)) + h)",
        "h = json.dumps([['a', 'f8,' * 10**6, [1], 0], [8]]).encode(); say(struct.pack('>I', len(h)) + h + b'12345678')",
        "h = json.dumps([['l', *[['a', '|u1', [10**6], 0]] * 50_000], [10**6]]).encode()"
        "; say(struct.pack('>I', len(h)) + h + bytes(10**6))",
    ],
)
def test_forged_messages_score_nothing(z, body):
    outcome = grade(z, f"{FRAMES}\ndef f(x):\n    {body}", GUESS)
    assert outcome.status in ("WRONG", "NO_RESULT", "ERROR", "KILLED"), outcome


def test_what_is_right_is_nowhere_to_be_found(z):
    source = f"""
    import gc, sys, ctypes
    def f(x):
        digits = "{int(SECRET)}"
        found = [o for o in gc.get_objects() if isinstance(o, float) and int(o) == int(digits)]
        frame = sys._getframe()
        while frame:
            found += [v for v in frame.f_locals.values() if isinstance(v, float) and int(v) == int(digits)]
            frame = frame.f_back
        names = sorted(n for n in sys.modules if "sets" in n and sys.modules[n] is not None)
        print(found, names, [n for n in sys.modules if n.startswith(("tests", "key_", "conftest"))])
        return np.zeros(3)
    """
    outcome = grade(z, source, GUESS)
    assert outcome.status == "WRONG" and "[] [] []" in outcome.log


def test_judges_and_keys_and_other_peoples_files_are_out_of_sight(z, tmp_path):
    if not z.isolation.files:
        pytest.skip("this machine allows no file system of its own")
    (tmp_path / "key_0.py").write_text("SECRET")
    import labkit

    repository = os.path.dirname(os.path.dirname(labkit.__file__))
    source = f"""
    import os
    def f(x):
        seen = []
        for p in ({str(tmp_path)!r}, {repository!r} + "/tests", os.path.expanduser("~") + "/x", "/proc/1/environ",
                  "/proc/self", "/etc/passwd", "/home", "/dev/shm", {repository!r} + "/labkit_book/problems/sets/s10_3.py"):
            if os.path.exists(p): seen.append(p)
        for p in ("/usr/x", {repository!r} + "/labkit/x", {repository!r} + "/labkit_book/x", "/x"):
            try: open(p, "w"); seen.append(p)
            except OSError: pass
        try:
            import labkit_book.problems.sets.s10_3; seen.append("sets")
        except ImportError: pass
        print("seen:", seen, os.listdir("."), len(os.environ) < 15)
        open("mine.txt", "w").write("a folder of its own")
        return 2 * x
    """
    outcome = grade(z, source)
    assert outcome.status == "PASS" and "seen: [] [] True" in outcome.log


def test_the_temporary_folder_covers_nothing_that_an_answer_needs():
    assert own_folder(["/usr", "/home/x/env"]) == "/tmp"
    assert own_folder(["/usr", "/tmp/env"]) == "/answer"


def test_planted_modules_and_the_environment_do_not_reach_it(z, tmp_path, monkeypatch):
    for name in ("numpy.py", "sitecustomize.py", "usercustomize.py", "conftest.py", "labkit.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('planted')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "conftest.py"))
    monkeypatch.setenv("GRADEBOOK_TOKEN", "s3cret")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Zygote(z.limits) as fresh:
        outcome = grade(
            fresh, "import json, numpy, os\ndef f(x):\n    print(dict(os.environ))\n    return 2 * x"
        )
        assert outcome.status == "PASS" and "HOME" in outcome.log and "s3cret" not in outcome.log


# -- odd answers -----------------------------------------------------------------------------------------------------

ODD = {
    "not a number": "np.full(3, np.nan)",
    "infinite": "np.full(3, np.inf)",
    "wrong shape": "np.stack([2 * x, 2 * x])",
    "a scalar to be broadcast": "np.float64(2 * x[0])",
    "one element to be broadcast": "2 * x[:1]",
    "an array of objects": "np.array([[], {}, None], dtype=object)",
    "complex": "2 * x + 1j",
    "text": "(2 * x).astype(str)",
    "an iterator": "iter(2 * x)",
    "a generator without end": "(1.0 for _ in iter(int, 1))",
    "a class": "np.ndarray",
    "a function": "f",
    "a module": "np",
    "a huge list": "[0.0] * 10**7",
    "nested": "__import__('functools').reduce(lambda a, _: [a], range(5000), 1)",
    "itself": "(lambda a: a.append(a) or a)([])",
    "a huge number": "10 ** 100000",
    "a huge array": "np.zeros(20_000_000)",
    "Ellipsis": "...",
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_answers_are_judged_and_not_believed(z, odd):
    assert grade(z, f"def f(x): return {ODD[odd]}").status in ("WRONG", "NO_RESULT", "KILLED")
    assert grade(z, f"def f(comm, x): return {ODD[odd]}", SUM).status in ("WRONG", "NO_RESULT", "KILLED")


def test_an_array_that_lies_about_itself_is_taken_at_its_bytes(z):
    lying = """
    class Lying(np.ndarray):
        __eq__ = __ne__ = lambda *a: True
        shape = property(lambda self: (3,))
        def __array__(self, *a, **k): return np.zeros(3)
        def __array_function__(self, *a, **k): return np.bool_(True)
        def __reduce__(self): return (print, ("PASS",))
    class Equal(float):
        __eq__ = __ge__ = __le__ = __sub__ = lambda *a: 0.0
    """
    end = "\ndef f(x): return {}"
    assert grade(z, textwrap.dedent(lying) + end.format("np.ones(3).view(Lying)")).status == "WRONG"
    assert grade(z, textwrap.dedent(lying) + end.format("[Equal(1)] * 3")).status == "WRONG"


def test_changed_arguments_are_seen(z):
    outcome = grade(z, "def f(x):\n    x *= 2\n    return x")
    assert outcome.status == "WRONG" and "changed one of its arguments" in outcome.message
    changed = RIGHT_SUM.replace("total = x.copy()", "total = x.copy(); before = x.copy()")
    outcome = grade(z, changed.replace("return total", "x += 1; return total"), SUM)
    assert outcome.status == "WRONG" and "changed one of its arguments" in outcome.message


# -- taking too much -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    for _ in range(300): print('x' * 10**6)\n    return 2 * x",
        "import os\nwhile True: os.write(2, b'x' * 10**6)",
        "print('x' * 60_000_000)\ndef f(x): return 2 * x",
    ],
)
def test_a_flood_of_output_is_stopped(z, source):
    outcome = grade(z, source)
    assert outcome.status == "KILLED" and "printed" in outcome.message


def test_what_commands_a_terminal_or_breaks_a_file_is_taken_out(z):
    outcome = grade(
        z, "def f(x):\n    print('\\x1b[2J\\x07')\n    raise ValueError('\\x1b]0;PASS \\ud800 \\u202e')"
    )
    assert outcome.status == "ERROR" and "PASS" in outcome.message
    (outcome.message + outcome.log).encode()
    assert not any(c in outcome.message + outcome.log for c in "\x1b\x07\u202e")


def test_a_little_output_is_kept_for_the_instructor(z):
    outcome = grade(z, "def f(x):\n    print('so far so good')\n    return 2 * x")
    assert outcome.status == "PASS" and "so far so good" in outcome.log and outcome.message == ""


@pytest.mark.parametrize(
    "body",
    [
        "return np.ones(10**12)",
        "return bytearray(8 * 10**12)",
        "keep = []\n    while True: keep.append(np.ones(10**6))",
        "keep = 'x'\n    while True: keep += keep",
    ],
)
def test_too_much_memory_is_refused(z, body):
    outcome = grade(z, f"def f(x):\n    {body}")
    assert outcome.status == "KILLED" and "memory" in outcome.message


def test_too_large_a_file_is_refused(z):
    source = "def f(x):\n    with open('big', 'wb') as out:\n        while True: out.write(bytes(10**6))"
    assert grade(z, source).status in ("ERROR", "KILLED")


@pytest.mark.parametrize(
    "body",
    [
        "while True: os.fork()",
        "subprocess.Popen(['sleep', '1000'])",
        "multiprocessing.Process(target=time.sleep, args=(1000,)).start()",
        "os.posix_spawn('/bin/sh', ['sh', '-c', 'sleep 1000 &'], {})",
        "os.system('sleep 1000 &') and 1 / 0",
    ],
)
def test_no_process_can_be_started(z, body):
    if not z.isolation.filter:
        pytest.skip("this machine has no filter of system calls")
    outcome = grade(
        z, f"import os, subprocess, multiprocessing, time\ndef f(x):\n    {body}\n    return None"
    )
    assert outcome.status in ("ERROR", "NO_RESULT")


def test_threads_without_end_are_limited(hasty):
    source = (
        "import threading\ndef f(x):\n    while True: threading.Thread(target=threading.Event().wait).start()"
    )
    assert grade(hasty, source, within_s=15).status in ("ERROR", "KILLED", "TIMEOUT")


@pytest.mark.parametrize("body", ["os.kill(os.getppid(), 9)", "os.kill(-1, 9)", "os.kill(0, 9)", "os.kill(1, 9)",
                                  "os.killpg(os.getpgid(os.getppid()), 9)", "os.kill(GRADER, 9)",
                                  "signal.pthread_kill(1, 9)"])  # fmt: skip
def test_the_grader_cannot_be_killed(z, body):
    if not (z.isolation.filter or z.isolation.world):
        pytest.skip("this machine allows neither namespaces nor a filter")
    body = body.replace("GRADER", str(os.getpid()))
    outcome = grade(z, f"import os, signal\ndef f(x):\n    {body}\n    return np.zeros(3)")
    assert outcome.status in ("ERROR", "WRONG", "KILLED", "NO_RESULT")


def test_limits_and_walls_cannot_be_taken_down_from_inside(z):
    if not (z.isolation.filter and z.isolation.world):
        pytest.skip("this machine does not allow both namespaces and a filter")
    source = """
    import ctypes, resource, os
    libc = ctypes.CDLL(None, use_errno=True)
    def f(x):
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
            try: resource.setrlimit(kind, (-1, -1)); print("raised", kind)
            except (ValueError, OSError): pass
        calls = dict(unshare=(0x10000000,), setns=(0, 0), mount=(b"none", b"/", None, 4096, None), umount2=(b"/tmp", 2),
                     chroot=(b"/tmp",), ptrace=(16, 1, 0, 0), socket=(2, 1, 0), setuid=(0 if os.getuid() else 12,))
        for name, args in calls.items():
            if getattr(libc, name)(*args) >= 0: print("allowed", name)
        return 2 * x
    """
    outcome = grade(z, source)
    assert outcome.status == "PASS" and "raised" not in outcome.log and "allowed" not in outcome.log


# -- workers who cheat -----------------------------------------------------------------------------------------------

SIDE_CHANNELS = {
    "globals": "import sys\nput = lambda k, v: sys.modules.__setitem__(k, v)\nget = lambda k: sys.modules[k]",
    "files": "import os\nput = lambda k, v: np.save(f'/tmp/{k}.npy', v)\nget = lambda k: np.load(f'/tmp/{k}.npy')",
    "the folder above": "import os\nput = lambda k, v: np.save(f'../{k}.npy', v)\nget = lambda k: np.load(f'../{k}.npy')",
    "shared memory": "from multiprocessing.shared_memory import SharedMemory\n"
    "put = lambda k, v: SharedMemory(f'x{k}', True, 32).buf.__setitem__(slice(0, 32), v.tobytes())\n"
    "get = lambda k: np.frombuffer(SharedMemory(f'x{k}').buf, count=4)",
    "windows": "put = lambda k, v: comm.windows.views(4, v.dtype)[k].__setitem__(slice(None), v)\nget = lambda k: None",
}  # fmt: skip


@pytest.mark.parametrize("channel", SIDE_CHANNELS)
def test_workers_can_only_talk_through_the_grader(z, channel):
    if not z.isolation.files and channel in ("files", "shared memory", "the folder above"):
        pytest.skip("this machine allows no file system of its own")
    assert grade(z, side_channel(channel), SUM).status in ("ERROR", "WRONG"), channel


def side_channel(channel):
    return (
        f"{SIDE_CHANNELS[channel]}\ndef f(comm, x):\n    put(comm.rank, x)\n    comm.barrier()\n"
        f"    return sum(get(k) for k in range(comm.K))\n"
    )


def test_workers_cannot_reach_one_another_by_sockets(z):
    if not (z.isolation.filter or z.isolation.world):
        pytest.skip("this machine allows neither namespaces nor a filter")
    source = """
    import socket
    def f(comm, x):
        s = socket.socket(socket.AF_UNIX)
        if comm.rank == 0:
            s.bind("\\0labkit")
            s.listen()
        comm.barrier()
        if comm.rank:
            s.connect("\\0labkit")
        return x
    """
    assert grade(z, source, SUM).status == "ERROR"  # who can connect returns x, which is merely wrong


def test_bytes_are_counted_where_a_worker_cannot_write(z):
    def counted(rng):
        def judge(run):
            assert run.bytes_sent.tolist() == [32, 32, 32] and run.messages_sent.tolist() == [1, 1, 1]

        yield Case(tuple((x,) for x in rng.standard_normal((3, 4))), judge, 3)

    source = """
    def f(comm, x):
        got = comm.sendrecv(x, (comm.rank + 1) % 3, np.empty(4), (comm.rank - 1) % 3)
        comm.bytes_sent = comm.messages_sent = 0
        return got
    """
    assert grade(z, source, Exercise("0-5", "Once around", "build", 1, "f", counted)).status == "PASS"


@pytest.mark.parametrize(
    "body,says",
    [
        ("comm.send(x, (comm.rank + 1) % comm.K) if comm.K > 1 else None", "deadlock"),
        ("comm.barrier() if comm.rank else None", "rank 0"),
        ("[comm.send(x, 1)] if comm.rank == 0 < comm.K - 1 else comm.rank == 1 and comm.recv(np.empty(9), 0)", "expects 9"),
        ("comm.send(x, 99)", "must be a rank"),
        ("comm.send([1], 1)", "numpy array"),
        ("[comm.isend(np.zeros(400_000), 1) for _ in range(99)] if comm.rank == 0 < comm.K - 1 else 0", "more than the"),
        ("comm.isend(np.zeros(2_100_000), 1) if comm.rank == 0 < comm.K - 1 else 0", "16,800,0"),
        ("[comm.compute(seconds=1e308) for _ in range(3)]", "at most"),
    ],
)  # fmt: skip
def test_trouble_between_workers_is_named_as_in_the_notebook(z, body, says):
    outcome = grade(z, f"def f(comm, x):\n    {body}\n    return x", SUM)
    assert outcome.status in ("WRONG", "ERROR", "KILLED") and says in outcome.message


# -- the grader itself -----------------------------------------------------------------------------------------------


def test_a_server_that_has_ended_is_started_anew(z):
    z._server.kill()
    z._server.wait()
    assert grade(z, "def f(x): return 2 * x").status == "PASS"


def test_without_walls_the_limits_still_hold():
    limits = Limits(case_s=20, exercise_s=40, memory_bytes=200 << 20, output_bytes=10_000)
    with Zygote(limits, means=()) as z:
        assert "did not allow" in z.isolation.words()
        assert grade(z, "def f(x): return 2 * x").status == "PASS"
        assert grade(z, "def f(x): return np.ones(10**12)").status == "KILLED"
        left = "import os, time\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork(): os._exit(0)\n"
        assert grade(z, left + "        time.sleep(1000)\n    return 2 * x").status == "PASS"
        z.limits = replace(limits, case_s=0.5)
        assert grade(z, "def f(x):\n    while True: pass").status == "TIMEOUT"
        assert not z.left()


def test_without_namespaces_files_and_processes_are_still_out_of_reach(tmp_path):
    (tmp_path / "key_0.py").write_text("SECRET")
    with Zygote(Limits(), hide=(str(tmp_path),), means=("landlock", "seccomp")) as z:
        if not (z.isolation.landlock and z.isolation.filter):
            pytest.skip("this machine has neither Landlock nor seccomp")
        assert "namespaces" in z.isolation.words() and "Landlock" in z.isolation.words()
        source = f"""
        import fcntl, glob, math, os, statistics, tempfile
        def signalled(pid):
            end, _ = os.pipe()
            fcntl.fcntl(end, fcntl.F_SETOWN, pid)
        def f(x):
            for p in ({str(tmp_path)!r} + "/key_0.py", {__file__!r}, "/etc/passwd", "/proc/self/status", "/proc/1/environ",
                      {judge_file()!r}):
                try: open(p).read(); print("read", p)
                except OSError: pass
            import labkit.show.palette
            for act in (lambda: open("/tmp/planted", "w"), lambda: os.listdir("/home"), os.fork,
                        lambda: os.kill(os.getppid(), 9), lambda: signalled(os.getppid()),
                        lambda: os.sched_setaffinity(os.getppid(), {{0}}), lambda: os.memfd_create("memory"),
                        lambda: os.chmod({str(tmp_path)!r}, 0), lambda: os.utime({str(tmp_path)!r}, (1, 1))):
                try: act(); print("allowed", act)
                except OSError: pass
            open("mine.txt", "w").write("mine")
            tempfile.NamedTemporaryFile().close()
            print("here:", os.listdir("."))
            return 2 * x
        """
        outcome = grade(z, source)
        assert outcome.status == "PASS", outcome
        assert (
            "read" not in outcome.log and "allowed" not in outcome.log and "here: ['mine.txt']" in outcome.log
        )
        full = "def f(x):\n    for i in range(900):\n        with open(f'{i}', 'wb') as out: out.write(bytes(500_000))"
        assert grade(z, full + "\n    return 2 * x").status in ("KILLED", "TIMEOUT")  # not the whole disk
        for channel in ("files", "the folder above", "shared memory"):
            assert grade(z, side_channel(channel), SUM).status in ("ERROR", "WRONG"), channel
        assert grade(z, RIGHT_SUM, SUM).status == "PASS" and not z.left()


def judge_file() -> str:
    import labkit_book.problems.sets.s10_3 as judges

    return str(judges.__file__)


def test_no_questions_are_no_full_points(z):
    with pytest.raises(GraderFailure, match="no question"):
        grade(z, "def f(x): return 2 * x", cases=())


@pytest.mark.parametrize("bad", [{"name": "no name"}, {"name": ""}])
def test_a_call_that_makes_no_sense_is_refused_with_one_sentence(z, bad):
    call = {"exercise": DOUBLE, "source": "f = 1", "zygote": z} | bad
    with pytest.raises(ValueError, match="got"):
        grade_one(**call)
    with pytest.raises(ValueError, match="case_s must be a finite number > 0"):
        Limits(case_s=0)


WITH_TORCH = ("10.7", "B")


@pytest.mark.parametrize(
    ("names", "most"), [(sorted({*Key.sets(f.KEY)} - {*WITH_TORCH}), 150e6), (WITH_TORCH, 290e6)]
)
def test_a_grader_that_has_met_sets_and_their_keys_has_taken_little_memory(names, most):
    source = f"""
        import numpy as np, sys
        import grading_fakes as f
        from labkit_book.problems import exercise_set
        from labkit_book.grader.key import Key
        for name in {names!r}:
            key = Key.load(f.KEY, name)
            for exercise in exercise_set(name).values():
                list(key.questions(exercise, 3))
        print(f.peak())
    """
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], cwd=here, capture_output=True, text=True
    )
    assert int(done.stdout) < most, done.stderr
