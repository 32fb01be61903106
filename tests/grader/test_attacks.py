"""What an answer may try: the verdict stays true, in bounded time and memory, and nothing of it is left behind.

Most of it is data, in ``attacks.toml``: the first attack of each kind is tried daily, all of them weekly.
"""

import os
import textwrap
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import grading_fakes as f
import numpy as np
import psutil
import pytest

import labkit
from labkit_book.grader import zygote
from labkit_book.grader.grading import grade_one
from labkit_book.grader.key import Key
from labkit_book.grader.zygote import Limits, Zygote, require_walls
from labkit_book.problems import find, judge
from labkit_book.problems.asking import GraderFailure
from labkit_book.problems.catalogue import all_exercises
from labkit_book.problems.exercise import Case, Exercise, same_array

pytestmark = [pytest.mark.processes, f.needs_walls]
# Bytes that an answer can make the grader take, which may have 300 MB and begins with 150.
MOST_GROWTH = 100e6
SECRET = 271828.182845  # what a right answer would have to contain, known to the judge alone
ATTACKS = tomllib.loads(Path(__file__).with_name("attacks.toml").read_text())["attack"]
FORGING = """
import os, json, struct, numpy as np
from labkit_book.problems import wire
def say(frame, fd=3):
    os.write(fd, struct.pack(">i", len(frame)) + frame)
def say_tree(*tree, then=b''):
    h = json.dumps(tree).encode()
    say(struct.pack('>I', len(h)) + h + then)
"""


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

        def judged(run, xs=xs):
            for k, given in enumerate(run.results):
                same_array(given, xs.sum(axis=0), f"what rank {k} returned", atol=1e-12)

        yield Case(tuple((x,) for x in xs), judged, K, f"K = {K}", clock=True)


EXERCISES = {
    "double": Exercise("0-1", "Double it", "build", 2, "f", doubled),
    "guess": Exercise("0-2", "Know the secret", "build", 2, "f", secret),
    "sum": Exercise("0-3", "Add up", "build", 2, "f", summed),
    "bytes": f.BYTES,
}
DOUBLE, GUESS, SUM, _ = EXERCISES.values()
RIGHT_SUM = next(a["source"] for a in ATTACKS if a.get("on") == "sum" and a["status"] == ["PASS"])


@pytest.fixture(scope="module")
def z():
    few = {"output_bytes": 200_000, "files_bytes": 1 << 20, "memory_bytes": 200 << 20}
    with Zygote(Limits(case_s=30, exercise_s=60, cpu_s=20, **few), withheld=f.WITHHELD) as z:
        yield z


@pytest.fixture
def limited(z):
    """Returns the fork server with other limits, until the test ends."""
    before = z.limits

    def limited(**limits):
        z.limits = replace(before, **limits)
        return z

    yield limited
    z.limits = before


def grade(z, source, exercise=DOUBLE, within_s=30.0, **more):
    started, before = time.monotonic(), f.forget()
    outcome = grade_one(exercise, textwrap.dedent(source), setup="import numpy as np", zygote=z, **more)
    assert time.monotonic() - started < within_s
    assert f.peak() - before < MOST_GROWTH
    assert outcome.points == (outcome.of if outcome.status == "PASS" else 0)
    assert len(outcome.message) <= 2000 and len(outcome.log) <= 8000
    (outcome.message + outcome.log).encode()
    return outcome


@pytest.fixture(autouse=True)
def nothing_is_left(z):
    """After every attack: the fork server is alone behind its walls, and the next answer is graded rightly."""
    yield
    _init, _server, *others = psutil.Process(z._server.pid).children(recursive=True)
    assert not psutil.wait_procs(others, timeout=5)[1]
    assert grade(z, "def f(x): return 2 * x").status == "PASS"


def attacked(limited, attack):
    z = limited(case_s=0.5, exercise_s=1.0) if attack.get("hasty") else limited()
    source = attack["source"].replace("GRADER", str(os.getpid()))
    source = FORGING + source if attack["kind"] == "forged" else source
    on = attack.get("on", "double")
    outcome = grade(z, source, EXERCISES.get(on) or find(on), name="f")
    assert outcome.status in attack["status"], outcome
    assert attack.get("says", "") in outcome.message and attack.get("log", "") in outcome.log, outcome


@pytest.mark.parametrize("kind", sorted({a["kind"] for a in ATTACKS}))
def test_of_each_kind_of_attack_the_first_fails(limited, kind):
    attacked(limited, next(a for a in ATTACKS if a["kind"] == kind))


@pytest.mark.weekly
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: f"{a['kind']} {a['source'][-60:]!r}")
def test_every_attack_fails(limited, attack):
    attacked(limited, attack)


def test_none_is_an_answer_where_it_is_asked_for(z):
    def cases(rng):
        yield Case((1,), lambda given: same_array(given, np.array(1.0)))
        yield Case((0,), lambda given: None if given is None else same_array(given, np.array(7.0)), none=True)

    exercise = Exercise("0-4", "Or nothing", "build", 1, "f", cases)
    assert grade(z, "def f(n): return n or None", exercise).status == "PASS"
    assert grade(z, "def f(n): ...", exercise).status == "NO_RESULT"


def test_processor_time_is_limited_too(limited):
    outcome = grade(limited(case_s=60, exercise_s=60, cpu_s=1), "def f(x):\n    while True: pass")
    assert outcome.status == "TIMEOUT" and "processor time" in outcome.message


@pytest.mark.parametrize("source", ["x" * 1_000_001, "f = " + "-" * 90_000 + "1", "f = x" + ".a" * 600])
def test_a_cell_that_no_parser_likes_is_not_the_graders_problem(z, source):
    assert grade(z, source).status in ("ERROR", "WRONG", "KILLED")


def test_judges_keys_and_other_peoples_files_are_out_of_sight_also_inside_pythons_own_folders(z, tmp_path):
    import labkit_book.problems.sets.s10_3 as judges

    repository = Path(labkit.__file__).parents[1]
    inside = repository / "labkit_book" / "labs" / "published.toml"  # a folder that answers see
    (tmp_path / "key_0.py").write_text("SECRET")
    source = f"""
    import os
    def f(x):
        seen = []
        for p in ({str(tmp_path)!r}, "{repository}/tests", os.path.expanduser("~") + "/x", "/proc/1/environ",
                  "/proc/self", "/etc/passwd", "/home", "/dev/shm", {str(judges.__file__)!r}):
            if os.path.exists(p): seen.append(p)
        for p in ("/usr/x", "{repository}/labkit/x", "{repository}/labkit_book/x", "/x", "{Path(judges.__file__).parent}/x"):
            try: open(p, "w"); seen.append(p)
            except OSError: pass
        try: seen += open({str(inside)!r}).read()
        except OSError: pass
        try: import labkit_book.problems.sets.s10_3; seen.append("sets")
        except ImportError: pass
        print("seen:", seen, os.listdir("."), len(os.environ) < 15)
        open("mine.txt", "w").write("a folder of its own")
        return 2 * x
    """
    with Zygote(z.limits, hide=[tmp_path, inside, Path("/")]) as hiding:
        outcome = grade(hiding, source)
    assert outcome.status == "PASS" and "seen: [] [] True" in outcome.log


def test_planted_modules_and_the_environment_do_not_reach_it(z, tmp_path, monkeypatch):
    for name in ("numpy.py", "sitecustomize.py", "usercustomize.py", "conftest.py", "labkit.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('planted')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", str(tmp_path / "conftest.py"))
    monkeypatch.setenv("GRADEBOOK_TOKEN", "s3cret")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "import json, numpy, os\ndef f(x):\n    print(dict(os.environ))\n    return 2 * x"
    with Zygote(z.limits) as fresh:
        outcome = grade(fresh, source)
    assert outcome.status == "PASS" and "HOME" in outcome.log and "s3cret" not in outcome.log


def test_what_commands_a_terminal_is_taken_out(z):
    body = "print('\\x1b[2J\\x07')\n    raise ValueError('\\x1b]0;PASS \\ud800 \\u202e')"
    outcome = grade(z, f"def f(x):\n    {body}")
    assert outcome.status == "ERROR" and "PASS" in outcome.message
    assert not any(c in outcome.message + outcome.log for c in "\x1b\x07\u202e")


def test_bytes_are_counted_where_a_worker_cannot_write(z):
    def counted(rng):
        def judged(run):
            assert run.bytes_sent.tolist() == [32, 32, 32] and run.messages_sent.tolist() == [1, 1, 1]

        yield Case(tuple((x,) for x in rng.standard_normal((3, 4))), judged, 3)

    source = """
    def f(comm, x):
        got = comm.sendrecv(x, (comm.rank + 1) % 3, np.empty(4), (comm.rank - 1) % 3)
        comm.bytes_sent = comm.messages_sent = 0
        return got
    """
    assert grade(z, source, Exercise("0-5", "Once around", "build", 1, "f", counted)).status == "PASS"


def test_all_processes_of_an_answer_share_one_limit_of_memory(z):
    source = """
        def f(comm, x):
            keep, n = [], 0
            try:
                while True:
                    keep.append(np.ones(125_000))
                    n += 1_000_000
            except MemoryError:
                keep.clear()
            comm.barrier()
            return n
    """
    taken = []
    case = Case(((1.0,),) * 8, lambda run: taken.extend(run.results), K=8)
    with Zygote() as fresh:
        outcome = grade(fresh, source, Exercise("0-1", "Greedy", "build", 1, "f", lambda rng: iter([case])))
        # what Python has mapped already and not yet filled comes on top, some megabytes in each
        assert outcome.status == "PASS" and sum(taken) < fresh.limits.memory_bytes * 1.25, outcome
        many = Case(((1.0,),) * 16, lambda run: None, K=16)
        large = Exercise("0-1", "Many", "build", 1, "f", lambda rng: iter([many]))
        assert grade(fresh, "def f(comm, x):\n    return np.zeros(1_900_000)", large).status == "NO_RESULT"


# -- the grader itself -----------------------------------------------------------------------------------------------

LARGE = [np.ones((6, 5500)), np.zeros((100_000, 0)), np.ones(1_900_000)]
LARGE += [np.ones((1, 9), np.uint8).repeat(10**6, 0)]
JUDGED = [e for e in all_exercises() if not e.rubric]
# The first of each set daily, all of them weekly.
JUDGED = [e if e.id.endswith("-1") else pytest.param(e, marks=pytest.mark.weekly) for e in JUDGED]


@pytest.mark.parametrize("exercise", JUDGED, ids=lambda e: e.id)
def test_no_judge_computes_on_an_array_that_a_student_has_made_large(exercise):
    """Wherever in an answer of the right form it stands."""
    solution = Key.load(f.KEY, exercise.id.split("-")[0]).solutions[exercise.id]
    case = next(iter(exercise.cases(np.random.default_rng(0))))
    right = solution if not exercise.function else None if case.K else solution(*case.args)
    answers = list(LARGE)
    for i, large in enumerate(LARGE):
        if isinstance(right, dict):
            answers += [right | {key: large} for key in right]
        elif isinstance(right, (tuple, list)) and len(right) < 10:
            answers += [[*right[:k], large, *right[k + 1 :]] for k in range(len(right))]
        answers += [[large] * (1 + i % 2)]
    for answer in answers:
        before, began = f.forget(), time.process_time()
        given = (lambda *_, answer=answer: answer) if exercise.function else answer
        assert judge(exercise, given, [case]).status != "right"
        assert f.peak() - before < MOST_GROWTH and time.process_time() - began < 5, np.shape(answer)


def test_without_walls_the_limits_still_hold():
    few = {"memory_bytes": 200 << 20, "output_bytes": 10_000}
    with Zygote(Limits(case_s=20, exercise_s=40, **few), trust=True) as z:
        assert grade(z, "def f(x): return 2 * x").status == "PASS"
        assert grade(z, RIGHT_SUM, SUM).status == "PASS"
        assert grade(z, "def f(x): return np.ones(10**12)").status == "KILLED"
        z.limits = replace(z.limits, case_s=0.5)
        assert grade(z, "def f(x):\n    while True: pass").status == "TIMEOUT"


@pytest.mark.parametrize("lacks", ["No such file", "libnothing.so", "no namespaces"])
def test_where_answers_cannot_be_walled_off_a_sentence_says_what_to_install(monkeypatch, tmp_path, lacks):
    if lacks == "libnothing.so":
        without = f"import labkit_book.grader.server as s; s.LIBSECCOMP = {lacks!r}; from"
        monkeypatch.setattr(zygote, "_BOOT", zygote._BOOT.replace("from", without))
    else:
        monkeypatch.setenv("PATH", str(tmp_path))
    if lacks == "no namespaces":
        (tmp_path / "bwrap").write_text("#!/bin/sh\necho no namespaces >&2; exit 1")
        (tmp_path / "bwrap").chmod(0o755)
    with pytest.raises(GraderFailure, match=f"install bubblewrap.*--trust.*{lacks}"):
        require_walls()


def test_a_server_that_cannot_start_says_why_and_no_questions_are_no_full_points(z, monkeypatch):
    with pytest.raises(GraderFailure, match="no question"):
        grade(z, "def f(x): return 2 * x", cases=())
    with Zygote() as fresh:
        fresh._server.kill()
        for _ in range(2):
            with pytest.raises(GraderFailure, match="does not answer"):
                grade(fresh, "def f(x): return 2 * x")
    monkeypatch.setattr(zygote, "_BOOT", "raise SystemExit('out of cheese')")
    with pytest.raises(GraderFailure, match="out of cheese"):
        Zygote()
