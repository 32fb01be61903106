"""A prediction never tells the answer early and never stops a notebook."""

import pytest

from labkit.show import predict

QUESTION = "How long is a step?"


@pytest.mark.parametrize(
    "guess, sentence",
    [
        (None, "It is 260 ms. You made no guess this time: next time, write one down first."),
        (260, "You said 260 ms, and 260 ms it is: exactly right."),
        (250, "You said 250 ms; it is 260 ms. Well predicted: within 4 %."),
        (200, "You said 200 ms; it is 260 ms, 30 % more than you thought."),
        (300, "You said 300 ms; it is 260 ms, 13 % less than you thought."),
        (100, "You said 100 ms; it is 260 ms, 2.6 times bigger than you thought."),
        (1040, "You said 1040 ms; it is 260 ms, 4 times smaller than you thought."),
        (0, "You said 0 ms; it is 260 ms, 260 ms more than you thought."),
        (-40, "You said -40 ms; it is 260 ms, 300 ms more than you thought."),
    ],
)
def test_one_sentence_compares_the_guess_with_the_answer(guess, sentence, capsys):
    assert predict(QUESTION, "ms", guess).reveal(260) is None
    assert capsys.readouterr().out == sentence + "\n"


@pytest.mark.parametrize("answer", [0, -3.5, 1e-12, 10**9])
@pytest.mark.parametrize("guess", [None, 0, -1, 2.5, 1e6])
def test_any_guess_meets_any_answer(guess, answer):
    assert predict(QUESTION, "", guess).sentence(answer).endswith(".")


def test_before_the_answer_it_asks_to_commit_and_then_says_to_what():
    assert str(predict(QUESTION, "ms")).startswith(f"{QUESTION} Write down your guess (in ms)")
    assert str(predict(QUESTION, "ms", 300)) == f"{QUESTION} You committed to 300 ms."
    assert "&lt;b&gt;" in predict("<b>", "")._repr_html_()


@pytest.mark.parametrize("guess", ["300", float("nan"), True, ...])
def test_a_guess_that_is_no_number_is_refused(guess):
    with pytest.raises(ValueError, match="guess must be a finite number, or None for not yet, got"):
        predict(QUESTION, "ms", guess)
