"""Every solution gets full points, every plausible mistake does not, every untouched stub is todo."""

import functools
import importlib.util
import json
import pkgutil
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import labkit_book.problems.sets
from labkit_book.problems import check, exercise_set, judge, summary
from labkit_book.problems.measured import _seal

HERE = Path(__file__).parent
SETS = sorted(m.name[1:].replace("_", ".") for m in pkgutil.iter_modules(labkit_book.problems.sets.__path__))


@functools.cache
def key(name: str):
    """The instructor's key of a set: SOLUTIONS, MUTANTS and, where it has any, HIDDEN cases."""
    path = HERE / f"key_{name.replace('.', '_')}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXERCISES = [(name, id) for name in SETS for id, e in exercise_set(name).items() if not e.rubric]
IN_WORDS = [(name, id) for name in SETS for id, e in exercise_set(name).items() if e.rubric]
MUTANTS = [(name, id, i) for name, id in EXERCISES for i in range(len(key(name).MUTANTS[id]))]


def verdicts(name: str, id: str, answer):
    """The notebook's own check, two more with other questions, and the hidden cases."""
    yield check(id, answer, seed=1)
    yield solved(name, id)[0] if answer is key(name).SOLUTIONS[id] else check(id, answer)
    yield check(id, answer, seed=20)
    hidden = getattr(key(name), "HIDDEN", {}).get(id)
    if hidden is not None:
        yield judge(exercise_set(name)[id], answer, hidden(np.random.default_rng(3)))


@functools.cache
def heard(name: str, id: str, i: int):
    """What a mistake is told, up to the first sentence of its own."""
    said = []
    for verdict in verdicts(name, id, key(name).MUTANTS[id][i]):
        said.append(verdict)
        if verdict.status == "wrong" and own_sentence(verdict):
            break
    return tuple(said)


@functools.cache
def solved(name: str, id: str):
    """What the notebook's own check says of the solution, and the seconds of the processor that it takes."""
    began = time.process_time()
    return check(id, key(name).SOLUTIONS[id]), time.process_time() - began


@pytest.mark.parametrize("name,id", EXERCISES)
def test_the_solution_gets_full_points(name, id):
    for verdict in verdicts(name, id, key(name).SOLUTIONS[id]):
        assert verdict.status == "right" and verdict.points == verdict.of > 0, verdict


@pytest.mark.parametrize("name,id,i", MUTANTS)
def test_a_plausible_mistake_does_not(name, id, i):
    said = heard(name, id, i)
    wrong = [v for v in said if v.status == "wrong" and v.message]
    assert any(v.points == 0 or (v.points < v.of and "\n  right: " in v.message) for v in wrong), said
    assert all(v.status != "todo" for v in said)


# What a judge says of any wrong answer, whatever is behind it.
GENERIC = re.compile(
    r"is too (large|small): |is wrong in \d+ of \d+ places|choices are right$|^it raised|should (be|have) |^return "
)


def own_sentence(said) -> str:
    """What a verdict says of one mistake and of no other: without its case and its numbers; "" if it is generic."""
    first = re.split(r"\n  (?:line|right:) ", said.message)[0]
    sentence = re.sub(r" \([^()]*(\([^()]*\)[^()]*)*\)$", "", first)
    return "" if GENERIC.search(sentence) else re.sub(r"[\d.]+", "#", sentence)


@pytest.mark.parametrize("name,id", EXERCISES)
def test_four_mistakes_at_least_and_each_is_told_what_it_misunderstands(name, id):
    mutants = key(name).MUTANTS[id]
    assert len(mutants) >= 4
    told = []
    for i in range(len(mutants)):
        said = {own_sentence(v) for v in heard(name, id, i) if v.status == "wrong"} - {""}
        assert said, f"MUTANTS[{id!r}][{i}] hears only: {[v.message for v in heard(name, id, i)]}"
        told.append(said)
    assert len(set.union(*told)) >= 4, f"fewer than four different sentences: {set.union(*told)}"


def spoiled(answer):
    """A dict whose last value is wrong; anything else as it is."""
    if isinstance(answer, dict):
        *_, (last, value) = answer.items()
        answer = {**answer, last: 3 * np.asarray(value) + 7 if numeric(value) else "no such word"}
    return answer


def test_of_an_answer_in_parts_those_that_are_right_count():
    partly = set()
    for name, id in EXERCISES:
        solution, exercise = key(name).SOLUTIONS[id], exercise_set(name)[id]
        if any(case.K for case in exercise.cases(np.random.default_rng(0))):
            continue  # what workers bring home is no dict
        said = check(id, (lambda *a, f=solution: spoiled(f(*a))) if exercise.function else spoiled(solution))
        if 0 < said.points < said.of:
            partly.add(id)
            assert said.status == "wrong" and "\n  right: " in said.message
    assert len(partly) >= 25, partly


def numeric(x) -> bool:
    try:
        return np.asarray(x).dtype.kind in "iuf" and np.isfinite(np.asarray(x, float)).all()
    except (TypeError, ValueError):
        return False


def each(it, form):
    """``it`` with every number or array of numbers in it brought into this form."""
    if isinstance(it, dict):
        return {k: each(v, form) for k, v in it.items()}
    if isinstance(it, tuple) or (isinstance(it, list) and not numeric(it)):
        return type(it)(each(v, form) for v in it)
    return form(it) if numeric(it) and not isinstance(it, (bool, np.bool_)) else it


FORMS = {
    "lists": lambda x: np.asarray(x).tolist(),
    "float32": np.float32,
    "torch": torch.as_tensor,
    "numpy's numbers": lambda x: np.asarray(x)[()],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name,id", EXERCISES)
def test_a_right_answer_in_another_form_is_right(name, id, form):
    solution, exercise = key(name).SOLUTIONS[id], exercise_set(name)[id]
    if exercise.function:
        answer = functools.wraps(solution)(lambda *a: each(solution(*a), FORMS[form]))
    else:
        answer = each(solution, FORMS[form])
    cases = exercise.cases(np.random.default_rng(0))
    here = (replace(c, world="simulated") if c.world == "processes" else c for c in cases)
    verdict = judge(exercise, answer, here)
    assert verdict.status == "right", verdict


@pytest.mark.parametrize("name,id", EXERCISES)
def test_a_cell_answers_while_one_waits(name, id):
    """At most 2 s, or 15 s with workers: of the processor, so that a busy machine changes nothing."""
    verdict, spent = solved(name, id)
    assert verdict.status == "right"
    workers = any(c.K for c in exercise_set(name)[id].cases(np.random.default_rng(0)))
    assert spent <= (15 if workers else 2)


@pytest.mark.parametrize("name,id", EXERCISES)
def test_nothing_is_todo_and_nonsense_is_wrong_and_never_raises(name, id):
    def unwritten(*args, **kwargs):
        raise NotImplementedError

    nothing, nonsense = [None, ...], ["words", {"a": 1}, [1, 2]]
    if exercise_set(name)[id].function:
        nothing = [lambda *a: None, unwritten, None]
        nonsense = [lambda *a: "words", lambda *a: np.full(3, np.nan), lambda: 0, lambda *a: 1 / 0, 7]
    assert all(check(id, answer).status == "todo" for answer in nothing)
    for answer in nonsense:
        verdict = check(id, answer)
        assert verdict.status == "wrong" and verdict.message, (answer, verdict)


@pytest.mark.parametrize("name,id", IN_WORDS)
def test_an_answer_in_words_is_for_a_human_who_is_told_what_to_look_for(name, id):
    exercise = exercise_set(name)[id]
    verdict = check(id)
    assert (verdict.status, verdict.points, verdict.of) == ("for a human", 0, exercise.points)
    assert all(what in verdict.message for what, _ in exercise.rubric)
    assert len(key(name).LOOK_FOR[id]) == len(exercise.rubric)
    told = "; ".join(key(name).LOOK_FOR[id])
    assert told not in verdict.message and id not in key(name).MUTANTS
    assert f"up to {exercise.points} for your words" in str(summary(verdict))


def remeasured(line: str, f=lambda values: values, **changed) -> str:
    """A line that `take` could have printed, of other values or settings."""
    body = {k: v for k, v in json.loads(line).items() if k != "seal"} | changed
    body["values"] = f(np.array(body["values"])).tolist()
    return json.dumps({**body, "seal": _seal(body)})


def falling(values):
    """Steps that fall faster than the batch grows: no hyperbola levels off below them."""
    return values / values.mean(axis=1, keepdims=True) / 16.0 ** np.arange(5)[:, None]


def by_rank(change):
    """What turns a right program into one whose rank 0, or each rank, brings home something else."""
    return lambda f: lambda comm, *a: change(f(comm, *a), comm.rank)


REFUSED = [
    ("10.1-1", lambda a: a | {"A": 7}, "must be (shards, w, l2), with 1 to 8 shards"),
    ("10.1-1", lambda a: a | {"A": ([[(1.0, 2e6)]], 1.0, 0.0)}, "finite numbers of at most a million"),
    ("10.1-1", lambda a: a | {"A": ([[(1.0, 1.0)], [(1.0, 1.0)]], 1.0, 0.0)}, "has no slope at all"),
    ("10.3-1", by_rank(lambda w, k: w + 1e-13 * k), "the ranks hold different bits"),
    ("10.4-2", by_rank(lambda r, k: r if k else r[:2]), "return three things on rank 0"),
    ("10.4-2", by_rank(lambda r, k: r if k else (r[0], [1] * len(r[1]), r[2])), "the book must hold every worker"),
    ("10.6-2", lambda f: lambda *a: [np.maximum(np.array(x) - 0.5, 0) for x in f(*a)], "must read a version that is there"),
    ("10.7-1", by_rank(lambda means, k: means + 1e-9 * k), "the ranks hold different bits"),
    ("10.8-3", lambda a: a | {"data": remeasured(a["data"], falling)}, "do not level off"),
    ("10.3-4", lambda a: a | {"data": remeasured(a["data"], lambda v: v / 2)}, "shorter than its slowest worker"),
    ("2.2-5", lambda a: a | {"data": remeasured(a["data"], lambda v: v / 2)}, "shorter than its computing takes"),
    ("10.3-4", lambda a: a | {"data": remeasured(a["data"], at=[1.0, 1.04, 1.6])}, "the data are to be of 1.0, 1.04, 1.5"),
    ("2.2-6", lambda a: [[8]], "a layer should be one of 0 to 7, not 8"),
    ("2.2-6", lambda a: [[0.5]], "a layer should be one of 0 to 7, not 0.5"),
    ("10.10-1", lambda a: a | {"then": remeasured(a["then"], at=["4x64"])}, "then is to be of 2x64, not of 4x64"),
]  # fmt: skip


def test_what_is_no_set_or_exercise_is_refused_by_name():
    for wrong, said in (
        ("10.99", "no exercise set '10.99'"),
        ("10.3-9", "no exercise '10.3-9'; this set has 10.3-1, "),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            check(wrong, 1) if "-" in wrong else exercise_set(wrong)


def test_a_thread_other_than_the_main_one_may_check():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(check, "10.3-2", key("10.3").SOLUTIONS["10.3-2"]).result().status == "right"


@pytest.mark.parametrize("id,change,sentence", REFUSED, ids=[f"{id}-{said[:20]}" for id, _, said in REFUSED])
def test_what_no_answer_can_be_is_refused_with_its_reason(id, change, sentence):
    verdict = check(id, change(key(id.split("-")[0]).SOLUTIONS[id]))
    assert verdict.status == "wrong" and sentence in verdict.message, verdict


def parts(name: str) -> list[str]:
    """The sections of a set's notebook, one for each exercise."""
    file = f"{name.replace('.', '_').lower()}_exercises.md"
    source = (HERE.parents[1] / "notebooks" / "exercises" / file).read_text()
    return re.split(r"^## (?=\d+\. )", source, flags=re.M)[1:]


@pytest.mark.parametrize("name", SETS)
def test_a_set_asks_all_its_exercises_of_four_kinds_and_has_three_hints_for_each(name):
    exercises = exercise_set(name)
    for part, (id, e) in zip(parts(name), exercises.items(), strict=True):
        assert part.startswith(f"{id.rsplit('-')[1]}. {e.title} ({e.kind}, {e.points} point"), part[:80]
        assert f'check("{id}"' in part and f"exercise-{id}" in part, f"{id} is not checked in its section"
        assert not e.function or f"def {e.function}(" in part
        assert re.findall(r"^:::\{admonition\} Hint (\d)$", part, re.M) == ["1", "2", "3"], id
    kinds = [e.kind for e in exercises.values()]
    assert len(set(kinds)) >= 4 and kinds.count("build") <= len(kinds) / 2, kinds


def test_from_set_10_3_on_something_runs_on_real_processes_and_twelve_exercises_in_all():
    real: dict[str, list[str]] = {name: [] for name in SETS}
    for name in SETS:
        for part, (id, e) in zip(parts(name), exercise_set(name).items(), strict=True):
            measured = e.kind == "measure" and re.search(r"Processes\(|Emulated\(", part)
            if measured or any(c.world == "processes" for c in e.cases(np.random.default_rng(0))):
                real[name].append(id)
    assert all(real[name] for name in SETS if name not in ("10.1", "10.2")), real
    assert sum(map(len, real.values())) >= 12


def test_the_runs_of_set_10_4_are_such_as_there_could_be():
    for rng in map(np.random.default_rng, range(20)):
        for case in exercise_set("10.4")["10.4-1"].cases(rng):
            assert case.args[0].max() == case.args[3] - 1, case.label  # somebody's last is the last of all
        for case in exercise_set("10.4")["10.4-4"].cases(rng):
            fresh, stale = (np.asarray(x) for x in case.args if np.ndim(x) == 1)
            assert (stale / fresh > 0.5).all() and (stale / fresh < 8).all(), case.label


def test_in_three_cases_of_10_8_1_the_largest_curvature_in_size_bends_downwards():
    for rng in map(np.random.default_rng, range(20)):
        for case, downwards in zip(exercise_set("10.8")["10.8-1"].cases(rng), (1, 0, 1, 1), strict=True):
            H = np.array([case.args[0](1e-4 * e) for e in np.eye(7)]) / 1e-4  # the gradient is H w and cubes
            low, *_, high = np.linalg.eigvalsh(H)
            assert (-low > high) == downwards, case.label


def test_the_steps_of_a_3_have_the_rows_that_its_text_promises_and_the_disks_of_b_3_hold_what_was_written():
    rng = np.random.default_rng(0)
    for case in exercise_set("A")["A-3"].cases(rng):
        *_, batches, M, _ = zip(*case.args, strict=True)
        assert {sum(len(y) for _, y in step) for step in zip(*batches, strict=True)} == set(M)
    for case in exercise_set("B")["B-3"].cases(rng):
        for written, disk in case.args:
            assert {(step, part) for step, parts in written for part in range(parts)}.issuperset(disk)
