"""The notebook's check and the grader come to one verdict on every honest form of an answer, right or wrong."""

from __future__ import annotations

import contextlib
import signal
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from labkit_book.grader.grading import grade_one
from labkit_book.grader.key import Key
from labkit_book.grader.zygote import Zygote
from labkit_book.problems import Case, Exercise, Wrong, check, close, find, judge, same_array
from labkit_book.problems.catalogue import all_exercises

pytestmark = pytest.mark.processes
KEYS = Path(__file__).parents[1] / "problems"

# Other types, precisions and ways to write the same answer: what becomes of the solution's return value `it`.
FORMS = {
    "as it is": "it",
    "lists": "lists(it, list)",
    "tuples": "lists(it, tuple)",
    "deques": "lists(it, collections.deque)",
    "arrays": "each(it, np.asarray)",
    "arrays of objects": "each(it, lambda x: np.asarray(x, dtype=object))",
    "float32": "each(it, lambda x: np.asarray(x, dtype=np.float32))",
    "array.array": "each(it, lambda x: array.array('d', x) if np.ndim(x) == 1 and np.size(x) else x)",
    "a generator": "(x for x in it) if isinstance(it, (list, tuple, np.ndarray)) and np.ndim(it) else it",
    "numpy numbers": "each(it, lambda x: np.float64(x) if np.ndim(x) == 0 else x)",
    "fractions": "each(it, lambda x: fractions.Fraction(float(x)) if np.ndim(x) == 0 else x)",
    "one dimension more": "each(it, lambda x: np.asarray(x)[None])",
    "a figure with a title and a grid": "dressed(it)",
}
# Other ways to come to the answer: of a function `it`, and of a value.
WAYS = {
    "a lambda": "answer_ = lambda *args: it(*args)",
    "a partial": "answer_ = functools.partial(it)",
    "an object": "class Answer_:\n    def __call__(self, *args):\n        return it(*args)\nanswer_ = Answer_()",
    "a method": "class Answer_:\n    def __call__(self, *args):\n        return it(*args)\nanswer_ = Answer_().__call__",
    "a decorated function": "@once_more\ndef answer_(*args):\n    return it(*args)",
}
WAYS_OF_VALUES = {
    "a dict of another kind": "answer_ = collections.OrderedDict(it)",
    "by way of JSON": "answer_ = json.loads(json.dumps(each(it, lambda x: np.asarray(x).tolist())))",
    "in another order": "answer_ = dict(reversed(it.items()))",
    "piece by piece": "answer_ = {}\nfor name, said in it.items():\n    answer_[name] = said",
    "from two dicts": "answer_ = dict(list(it.items())[:1]) | dict(list(it.items())[1:])",
}
HELPERS = """
import array, collections, fractions, functools, json
import numpy as np

def numeric(x):
    try:
        return np.asarray(x).dtype.kind in "biuf" and not isinstance(x, (bool, np.bool_)) and np.isfinite(x).all()
    except (TypeError, ValueError):
        return False

def each(it, form):
    if isinstance(it, dict):
        return {k: each(v, form) for k, v in it.items()}
    if isinstance(it, tuple) and not numeric(it):
        return tuple(each(v, form) for v in it)
    return form(it) if numeric(it) else it

def once_more(f):
    @functools.wraps(f)
    def g(*args):
        return f(*args)
    return g

def dressed(it):
    for axes in getattr(it, "axes", []):
        axes.set_title("mine")
        axes.grid(True)
    return it

def lists(it, kind):
    return each(it, lambda x: kind(x.tolist() if isinstance(x, np.ndarray) else x) if np.ndim(x) else x)
"""


def forms(exercise):
    """All the ways in which an exercise is answered here."""
    return [*FORMS, *(WAYS if exercise.function else WAYS_OF_VALUES)]


ALL = [(e.id, form) for e in all_exercises() if not e.rubric for form in forms(e)]
ids = list(dict.fromkeys(id for id, _ in ALL))
DAILY = [
    (id, form)
    for id, form in ALL
    if (ids.index(id) + forms(find(id)).index(form)) % len(forms(find(id))) == 0
]


@pytest.fixture(scope="module")
def z():
    with Zygote() as z:
        yield z


def both(z, exercise, cases, source, *, setup="", helpers="", name="answer_"):
    """The verdict of the check and the grader's outcome, on the same questions."""
    space: dict = {"__name__": "__main__"}
    for text in (setup, helpers, source):
        exec(compile(text, "<cell>", "exec"), space)
    verdict = judge(exercise, space[name], cases)
    outcome = grade_one(exercise, source, cases, setup=setup, helpers=helpers, name=name, zygote=z)
    return verdict, outcome


def agree(verdict, outcome):
    same = {"right": ("PASS",), "todo": ("NO_RESULT",)}.get(
        verdict.status, ("WRONG", "ERROR", "TIMEOUT", "KILLED")
    )
    assert outcome.status in same, (verdict, outcome.status, outcome.message)


def form_of(id, form, z, seed):
    exercise = find(id)
    key = Key.load(KEYS, id.split("-")[0])
    if form not in FORMS:
        source = f"it = SOLUTIONS[{id!r}]\n{(WAYS | WAYS_OF_VALUES)[form]}"
    elif exercise.function:
        source = f"def answer_(*args):\n    it = SOLUTIONS[{id!r}](*args)\n    return {FORMS[form]}"
    else:
        source = f"it = SOLUTIONS[{id!r}]\nanswer_ = {FORMS[form]}"
    assert id in key.solutions
    cases = list(exercise.cases(np.random.default_rng(seed)))
    return both(z, exercise, cases, source, setup=key.setup, helpers=HELPERS)


@pytest.mark.parametrize(("id", "form"), DAILY)
def test_every_form_of_a_right_answer_gets_one_verdict(z, id, form):
    agree(*form_of(id, form, z, seed=0))


@pytest.mark.weekly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("id", ids)
def test_every_form_of_every_right_answer_gets_one_verdict_for_other_questions_too(z, id):
    for i, form in enumerate(forms(find(id))):
        for seed in range(20) if form == "as it is" else (i,):
            agree(*form_of(id, form, z, seed))


def one(*args, judge_=lambda given: close(given, 3.0), **more):
    return Exercise("0-1", "One", "build", 2, "f", lambda rng: iter([Case(args, judge_, **more)]))


def outcomes(z, exercise, source, **more):
    source = textwrap.dedent(source)
    verdict, outcome = both(z, exercise, list(exercise.cases(None)), source, name="f", **more)
    agree(verdict, outcome)
    return verdict, outcome


def test_an_answer_by_experiment_may_simulate_many_workers(z):
    source = """
        from labkit import launch
        from labkit.collectives import ring
        import numpy as np
        def f(K):
            run = launch(lambda comm: ring.allreduce(comm, np.ones(K) * comm.rank), K)
            return run.results[0][0] / (K * (K - 1) / 2) * 3
    """
    verdict, outcome = outcomes(z, one(64), source)
    assert verdict.status == "right", outcome


def test_float32_is_held_to_its_digits_and_iterators_are_refused_with_a_word_on_what_is_wrong(z):
    exact = one(judge_=lambda given: same_array(given, np.array([1 / 3, 2 / 3])))
    verdict, _ = outcomes(z, exact, "import numpy as np\ndef f(): return np.float32([1 / 3, 2 / 3])")
    assert verdict.status == "right"
    verdict, outcome = outcomes(z, exact, "import numpy as np\ndef f(): return np.float16([1 / 3, 2 / 3])")
    assert verdict.status == "wrong" and "is wrong in" in verdict.message == outcome.message
    verdict, outcome = outcomes(z, exact, "def f(): return (i / 3 for i in (1, 2))")
    assert verdict.status == "wrong" and "make it a list" in verdict.message == outcome.message
    verdict, _ = outcomes(z, one(), "import numpy as np\ndef f(): return np.float32(3 + 2e-4)")
    assert "compute in float64" in verdict.message
    verdict, _ = outcomes(z, one(), "import numpy as np\ndef f(): return np.float32(4)")
    assert "float64" not in verdict.message


def test_too_large_an_answer_is_refused_in_both(z):
    verdict, outcome = outcomes(z, one(), "import numpy as np\ndef f(): return np.zeros(3_000_000)")
    assert verdict.status == "wrong" and "too large" in verdict.message and "too large" in outcome.message


def test_the_grader_s_time_is_the_check_s_time(z, monkeypatch):
    module = sys.modules["labkit_book.problems.check"]
    monkeypatch.setattr(module, "CASE_S", 0.05)
    slow = one()
    verdict = judge(slow, lambda: module.time.sleep(0.1) or 3.0, slow.cases(None))
    assert verdict.status == "wrong" and "the grader gives a question" in verdict.message


def endless():
    while True:
        with contextlib.suppress(Exception):
            time.sleep(1)


@pytest.mark.parametrize("id", ["10.2-1", "10.3-1"])  # a function, and workers that run in turns
def test_a_loop_without_end_is_ended_in_the_notebook_too(id, monkeypatch):
    monkeypatch.setattr(sys.modules["labkit_book.problems.check"], "CASE_S", 0.3)
    before, began = signal.getsignal(signal.SIGALRM), time.monotonic()
    verdict = check(id, lambda *args: endless())
    assert verdict.status == "wrong" and "a loop without end" in verdict.message
    assert time.monotonic() - began < 60 and signal.getsignal(signal.SIGALRM) is before


def test_a_missing_return_is_said_in_both_and_an_untouched_stub_is_not_blamed(z, tmp_path):
    (tmp_path / "cell.py").write_text("def f(x):\n    y = 2 * x\n\ndef g(x):\n    'Doc.'\n    ...\n")
    space: dict = {}
    exec(compile((tmp_path / "cell.py").read_text(), str(tmp_path / "cell.py"), "exec"), space)
    exercise = one(1.0)
    verdict = judge(exercise, space["f"], exercise.cases(None))
    assert verdict.status == "todo" and "is the return missing?" in verdict.message
    assert judge(exercise, space["g"], exercise.cases(None)).message == ""
    assert "is the return missing?" in grade_one(exercise, "def f(x):\n    y = 2 * x", zygote=z).message


def test_what_went_wrong_can_be_asked_again():
    exercise = find("10.5-3")

    def halves(K, n, itemsize):
        return [n * itemsize / K] * K

    verdict = judge(exercise, halves, exercise.cases(np.random.default_rng(0)))
    assert verdict.status == "wrong" and len(halves(*verdict.question)) == verdict.question[0]
    right = Exercise(
        "0-1", "One", "build", 1, "f", lambda rng: iter([Case((), lambda given: close(given, 3.0))])
    )
    assert judge(right, lambda: 3.0, right.cases(None)).question is None


def test_seconds_of_its_own_are_refused_where_no_exercise_asks_for_them(z):
    """They would carry data from rank to rank without a byte: by how late it comes to the barrier."""
    source = """
        def f(comm, x):
            comm.compute(seconds=x * comm.rank)
            comm.barrier()
            return comm.now()
    """
    refused = Exercise(
        "0-1", "Late", "build", 1, "f", lambda rng: iter([Case(((1.0,),) * 2, lambda run: None, K=2)])
    )
    for _ in range(2):
        verdict, outcome = outcomes(z, refused, source)
        assert verdict.status == "wrong" and "is not asked for" in verdict.message
        assert "is not asked for" in outcome.message
        source = source.replace("seconds=x", "x")
    asked = Exercise(
        "0-1",
        "Late",
        "build",
        1,
        "f",
        lambda rng: iter([Case(((1.0,),) * 2, lambda run: None, K=2, clock=True)]),
    )
    assert outcomes(z, asked, source)[0].status == "right"
    work = "def f(comm, x):\n    return comm.compute(lambda: x)"
    assert outcomes(z, refused, work)[0].status == "right"


RING = "import sys\nfrom labkit.collectives import ring\nc = sys.modules['labkit.collectives.ring']\n"
DOORS = {
    "star": "from labkit.collectives import *\nf = ring.bytes",
    "name": "__name__ = 'labkit.x'\nfrom labkit.collectives import ring\ndef f(*a): return ring.bytes(*a)",
    "partial": "import functools\nfrom labkit.collectives import ring\nf = functools.partial(ring.bytes)",
    "closure": RING + "f = [c.cell_contents for c in ring.bytes.__closure__][0]",
    "base": RING + "def f(*a): return super(type(ring), ring).bytes(*a)",
    "reload": RING + "import importlib\nimportlib.reload(c)\ndef f(*a): return c.ring.bytes(*a)",
    "anew": "import sys\nfor m in [m for m in sys.modules if m.startswith('labkit.collectives')]: del sys.modules[m]\n"
            "from labkit.collectives import ring\nf = ring.bytes",
    "source": RING + "exec(open(c.__file__).read())\nf = ring.bytes",
    "compiled": RING + "import marshal, pathlib\n"
                "p = next(pathlib.Path(c.__file__).parent.glob('__pycache__/ring.*.pyc'))\n"
                "exec(marshal.loads(p.read_bytes()[16:]))\nf = ring.bytes",
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
def test_labkit_s_own_answer_scores_through_no_door(z, door):
    outcome = grade_one(find("10.5-3"), DOORS[door], name="f", zygote=z)
    assert outcome.points == 0 and outcome.status in ("WRONG", "ERROR", "NO_RESULT"), outcome


def test_no_work_handed_to_the_cluster_is_done_by_labkit_s_own_answer(z):
    source = """
        from labkit.collectives import reduce_scatter
        def f(comm, *args):
            return comm.compute(lambda: reduce_scatter(comm, *args))
    """
    assert grade_one(find("10.5-1"), textwrap.dedent(source), name="f", zygote=z).points == 0


def test_the_check_withholds_what_the_grader_withholds_and_gives_it_back():
    from labkit.collectives import ring

    exercise = find("10.5-3")
    verdict = judge(exercise, lambda *a: ring.bytes(*a), exercise.cases(np.random.default_rng(0)))
    assert verdict.status == "wrong" and "is what you are asked to write" in verdict.message
    assert "bytes" not in vars(type(ring)) and ring.bytes(2, 4, 8).tolist()


@pytest.mark.parametrize("also", ["", "torch"])
def test_all_processes_of_an_answer_share_one_limit_of_memory(z, also):
    source = f"""
        # {also}
        import numpy as np
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
    greedy = Exercise(
        "0-1",
        "Greedy",
        "build",
        1,
        "f",
        lambda rng: iter([Case(((1.0,),) * 8, lambda run: taken.extend(run.results), K=8)]),
    )
    outcome = grade_one(greedy, textwrap.dedent(source), zygote=z)
    assert outcome.status == "PASS", outcome
    # what Python has mapped already and not yet filled comes on top, some megabytes in each
    assert sum(taken) < z.limits.memory_bytes * 1.25


def test_a_function_of_the_grader_s_refuses_other_shapes_than_its_own(z):
    """10.6-3 hands out a gradient: asked for a large array by a small one, it would fill the grader's memory."""
    source = """
        import numpy as np
        def stale_sgd(grad, w0, eta, read, aware):
            try:
                grad(np.zeros((1500, 1, len(w0))), np.zeros(1, dtype=int))
            except Exception as error:
                raise RuntimeError(f"refused: {error}")
            return w0
    """
    exercise = find("10.6-3")
    outcome = grade_one(exercise, textwrap.dedent(source).replace("stale_sgd", exercise.function), zygote=z)
    assert outcome.status == "ERROR" and "refused: w must" in outcome.message, outcome


def test_the_command_line_of_an_answer_s_server_names_nothing_that_is_hidden(tmp_path):
    with Zygote(hide=(str(tmp_path),)) as z:
        line = Path(f"/proc/{z._server.pid}/cmdline").read_bytes().decode()
        assert str(tmp_path) not in line and "sets" not in line


@pytest.mark.parametrize(
    "body,status,said",
    [
        ("if n > 1:\n        return n", "wrong", "does a branch lack its return? (n = 1)"),
        ("return {'a': n, 'b': None, 'c': [None, None]}", "todo", "not there yet: 'b', 'c'"),
        ("return {'a': None, 'b': ...}", "todo", "is the return missing?"),
    ],
)
def test_one_none_among_many_is_named_in_both(z, tmp_path, body, status, said):
    def cases(rng):
        for n in (3, 2, 1):
            yield Case((n,), lambda answer, n=n: close(answer, n), label=f"n = {n}")

    exercise = Exercise("10.3-0", "Itself", "build", 1, "f", cases)
    source = f"def f(n):\n    {body}"
    (tmp_path / "cell.py").write_text(source)
    space: dict = {}
    exec(compile(source, str(tmp_path / "cell.py"), "exec"), space)
    verdict = judge(exercise, space["f"], exercise.cases(None))
    assert verdict.status == status and said in verdict.message
    assert said in grade_one(exercise, source, zygote=z).message


def test_a_rank_that_returns_none_is_named_where_the_judge_speaks_of_something_else():
    def judged(run):
        if len(run.results[0] or ()) != 2:
            raise Wrong("return two things")

    exercise = Exercise("10.3-0", "Two", "build", 1, "f", lambda rng: [Case(((), (), ()), judged, K=3)])
    verdict = judge(exercise, lambda comm: (1, 2) if comm.rank == 1 else None, exercise.cases(None))
    assert verdict.message == "return two things; ranks 0 and 2 returned None"
