"""The notebook's check and the grader come to one verdict on every honest form of an answer, right or wrong."""

import contextlib
import signal
import sys
import textwrap
import time
import tomllib
from pathlib import Path

import grading_fakes as f
import numpy as np
import pytest

from labkit_book.grader.batch import Graders, Plan
from labkit_book.grader.collect import Submission
from labkit_book.grader.grading import grade_one
from labkit_book.grader.key import Key
from labkit_book.grader.zygote import Zygote
from labkit_book.problems import Case, Exercise, Wrong, check, close, find, judge, same_array
from labkit_book.problems.catalogue import all_exercises

pytestmark = [pytest.mark.processes, f.needs_walls]
KEYS = Path(__file__).parents[1] / "problems"

_DATA = tomllib.loads(Path(__file__).with_name("forms.toml").read_text())
FORMS, WAYS, WAYS_OF_VALUES, HELPERS = (_DATA[name] for name in ("forms", "ways", "of_values", "helpers"))


def forms(exercise):
    """All the ways in which an exercise is answered here."""
    of_values = WAYS_OF_VALUES if exercise.puzzle is None else ["by way of JSON"]  # a schedule is a list
    return [*FORMS, *(WAYS if exercise.function else of_values)]


ALL = [(e.id, form) for e in all_exercises() if not e.rubric for form in forms(e)]
ids = list(dict.fromkeys(id for id, _ in ALL))
turn = lambda id, form, every: (ids.index(id) + every.index(form)) % len(every)  # noqa: E731
DAILY = [(id, form) for id, form in ALL if turn(id, form, forms(find(id))) == 0]


@pytest.fixture(scope="module")
def z():
    # What the notebooks import, as where they are graded.
    setup = "import matplotlib.pyplot, torch, scipy.special\nfrom labkit import collectives, evidence, learn, network"
    with Zygote(setup=setup, withheld=f.WITHHELD) as z:
        yield z


def both(z, exercise, cases, source, *, setup="", cells=(), name="answer_"):
    """The verdict of the check and the grader's outcome, on the same questions."""
    space: dict = {"__name__": "__main__"}
    for text in (setup, *cells, source):
        exec(compile(text, "<cell>", "exec"), space)
    verdict = judge(exercise, space[name], cases)
    numbered = list(enumerate(cells, 1))
    outcome = grade_one(exercise, source, cases, setup=setup, cells=numbered, name=name, zygote=z)
    return verdict, outcome


def agree(verdict, outcome):
    wrong = ("WRONG", "ERROR", "TIMEOUT", "KILLED")
    same = {"right": ("PASS",), "todo": ("NO_RESULT",)}.get(verdict.status, wrong)
    assert outcome.status in same, (verdict, outcome.status, outcome.message)


def form_of(id, form, z, seed, every=True):
    """The verdicts on an exercise's right answer in this form, to every question of a seed, or to one of them, by turns."""
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
    cases = cases if every else [cases[seed % len(cases)]]
    return both(z, exercise, cases, source, setup=key.setup, cells=[HELPERS])


@pytest.mark.parametrize(("id", "form"), DAILY)
def test_every_form_of_a_right_answer_gets_one_verdict(z, id, form):
    agree(*form_of(id, form, z, seed=0, every=False))


@pytest.mark.weekly
@pytest.mark.parametrize("id", ids)
def test_every_form_of_every_right_answer_gets_one_verdict_for_another_question_too(z, id):
    for seed, form in enumerate(forms(find(id))):
        agree(*form_of(id, form, z, seed, every=seed == 0))


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
    with pytest.raises(Wrong, match="is wrong in 1 of 1"):
        same_array(np.float32([0.00101]), np.array([0.001]))
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


@pytest.mark.parametrize("limit, what", [("CASE_S", "a question"), ("EXERCISE_S", "an exercise")])
def test_the_grader_s_time_is_the_check_s_time(z, monkeypatch, limit, what):
    monkeypatch.setattr(sys.modules["labkit_book.problems.asking"], limit, 0.05)
    slow = one()
    verdict = judge(slow, lambda: time.sleep(0.1) or 3.0, slow.cases(None))
    assert verdict.status == "wrong" and f"the grader gives {what}" in verdict.message


def endless():
    while True:
        with contextlib.suppress(Exception):
            time.sleep(1)


@pytest.mark.parametrize("id", ["10.2-1", "10.3-1"])  # a function, and workers that run in turns
def test_a_loop_without_end_is_ended_in_the_notebook_too(id, monkeypatch):
    monkeypatch.setattr(sys.modules["labkit_book.problems.asking"], "CASE_S", 0.3)
    before, began = signal.getsignal(signal.SIGALRM), time.monotonic()
    verdict = check(id, lambda *args: endless())
    assert verdict.status == "wrong" and "a loop without end" in verdict.message
    assert time.monotonic() - began < 60 and signal.getsignal(signal.SIGALRM) is before


def test_a_missing_return_is_said_in_both(z):
    exercise = one(1.0)
    verdict = judge(exercise, lambda x: None, exercise.cases(None))
    assert verdict.status == "todo" and "is the return missing?" in verdict.message
    assert "is the return missing?" in grade_one(exercise, "def f(x):\n    y = 2 * x", zygote=z).message


def test_what_went_wrong_can_be_asked_again():
    exercise = f.BYTES

    def halves(K, n, itemsize):
        return [n * itemsize / K] * K

    verdict = judge(exercise, halves, exercise.cases(np.random.default_rng(0)))
    assert verdict.status == "wrong" and len(halves(*verdict.question)) == verdict.question[0]
    assert judge(one(), lambda: 3.0, one().cases(None)).question is None


def test_seconds_of_its_own_are_refused_where_no_exercise_asks_for_them(z):
    """They would carry data from rank to rank without a byte: by how late it comes to the barrier."""
    source = """
        def f(comm, x):
            comm.compute(seconds=x * comm.rank)
            comm.barrier()
            return comm.now()
    """
    refused = one((1.0,), (1.0,), judge_=lambda run: None, K=2)
    for _ in range(2):
        verdict, outcome = outcomes(z, refused, source)
        assert verdict.status == "wrong" and "is not asked for" in verdict.message
        assert "is not asked for" in outcome.message
        source = source.replace("seconds=x", "x")
    asked = one((1.0,), (1.0,), judge_=lambda run: None, K=2, clock=True)
    assert outcomes(z, asked, source)[0].status == "right"
    work = "def f(comm, x):\n    return comm.compute(lambda: x)"
    assert outcomes(z, refused, work)[0].status == "right"


def test_the_check_withholds_what_the_grader_withholds_and_gives_it_back():
    from labkit.collectives import ring

    exercise = f.BYTES
    verdict = judge(exercise, lambda *a: ring.bytes(*a), exercise.cases(np.random.default_rng(0)))
    assert verdict.status == "wrong" and "is what you are asked to write" in verdict.message
    assert "bytes" not in vars(type(ring)) and ring.bytes(2, 4, 8).tolist()


@pytest.mark.parametrize("body,status,said", [
    ("if n > 1:\n        return n", "wrong", "does a branch lack its return? (n = 1)"),
    ("return {'a': n, 'b': None, 'c': [None, None]}", "todo", "not there yet: 'b', 'c'"),
    ("return {'a': None, 'b': ...}", "todo", "is the return missing?"),
    ("return {'a': n, 'b': []}", "wrong", "(n = 3)"),
])  # fmt: skip
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


HELPED = tomllib.loads(Path(__file__).with_name("helpers.toml").read_text())["way"]


@pytest.mark.parametrize("way", HELPED, ids=lambda way: way["name"])
def test_what_other_cells_make_is_there_for_the_answer_in_the_notebook_and_in_the_grader(way, tmp_path):
    cells, nought = way["cells"], way["nought"]
    source = f.OVERLAP.replace("a - p, 0.0", f"a - p, {nought}").replace("max(", "np.maximum(")
    nb = f.answered("2.2", {"2.2-3": source})
    at = nb["cells"].index(f.mine(nb, "2.2-3"))
    nb["cells"][at:at] = [f.code(text) for text in cells if "BELOW" not in text]
    nb["cells"] += [f.code(text) for text in cells if "BELOW" in text]
    space: dict = {"__name__": "__main__"}
    exec("import numpy as np", space)
    for text in (*cells, source):
        with contextlib.suppress(ZeroDivisionError):
            exec(text, space)
    assert check("2.2-3", space["overlapped_step"]).status == "right"
    plan = Plan(f.KEY, f.RELEASED, ("2.2",), 5)
    (row,) = Graders(plan, 1).rows(Submission("anna", "x", f.write(tmp_path / "x.ipynb", nb)))
    assert row.exercises[2].status == "PASS", row.exercises[2]


def test_a_cell_that_does_not_end_is_interrupted_and_what_it_has_made_is_there(z):
    cells = [(1, "def nought(): return 0\nwhile True: pass"), (2, "import os\nmore = 0")]
    outcome = grade_one(one(1.0), "def f(x): return 3.0 + nought() + more", cells=cells, zygote=z)
    assert outcome.status == "PASS" and "Cell 1 raised KeyboardInterrupt" in outcome.log
