"""A prediction never tells the answer early and never stops a notebook."""

import base64
import html
import json
import re
import sys

import pytest

from labkit.show import predict
from labkit.show.predict import _amount, _Reveal

QUESTION = "How long is a step?"


@pytest.mark.parametrize("guess, sentence", [
    (None, "It is 260 ms. You made no guess this time: next time, write one down first."),
    (260, "You said 260 ms, and 260 ms it is: exactly right."),
    (250, "You said 250 ms; it is 260 ms. Well predicted: within 4 %."),
    (200, "You said 200 ms; it is 260 ms, 30 % more than you thought."),
    (300, "You said 300 ms; it is 260 ms, 13 % less than you thought."),
    (100, "You said 100 ms; it is 260 ms, 2.6 times bigger than you thought."),
    (1040, "You said 1040 ms; it is 260 ms, 4 times smaller than you thought."),
    (0, "You said 0 ms; it is 260 ms, 260 ms more than you thought."),
    (-40, "You said -40 ms; it is 260 ms, 300 ms more than you thought."),
])  # fmt: skip
def test_one_sentence_compares_the_guess_with_the_answer(guess, sentence, capsys):
    assert predict(QUESTION, "ms", guess).reveal(260) is None
    assert capsys.readouterr().out == sentence + "\n"


def test_before_the_answer_it_asks_to_commit_and_then_says_to_what():
    assert str(predict(QUESTION, "ms")).startswith(f"{QUESTION} Write down your guess (in ms)")
    assert str(predict(QUESTION, "ms", 300)) == f"{QUESTION} You committed to 300 ms."
    assert "&lt;b&gt;" in predict("<b>", "")._repr_html_()


def test_a_choice_is_a_prediction_too():
    ways = ["ring", "tree"]
    assert "one of: ring, tree" in str(predict(QUESTION, choices=ways))
    assert predict(QUESTION, choices=ways).sentence("ring").startswith("It is: ring. You made no guess")
    assert predict(QUESTION, guess="ring", choices=ways).sentence("ring") == "You said ring, and ring it is."
    assert predict(QUESTION, guess="tree", choices=ways).sentence("ring") == "You said tree; it is ring."
    with pytest.raises(ValueError, match="answer must be one of ring, tree, got 'c'"):
        predict(QUESTION, choices=ways).sentence("c")


@pytest.mark.parametrize("given, complaint", [
    *(({"guess": guess}, "guess must be a finite number, got") for guess in ("300", float("nan"), True, ...)),
    ({"choices": ["a", "b"], "guess": "c"}, "guess must be one of a, b, got 'c'"),
    ({"between": (3, 3)}, "high must be a finite number"),
    ({"between": (0, float("nan"))}, "high must be a finite number"),
])  # fmt: skip
def test_a_question_that_cannot_be_asked_and_a_guess_that_is_none_are_refused(given, complaint):
    with pytest.raises(ValueError, match=complaint):
        predict(QUESTION, "", **given)


def test_the_page_gets_the_question_and_the_sealed_answer_under_one_key():
    bet = predict('What is "<d>"?', "ms", between=(0, 10))
    asked = json.loads(html.unescape(re.search('data-asked="(.*?)"', bet._repr_html_()).group(1)))
    assert asked == {
        "key": bet.key, "question": 'What is "<d>"?', "unit": "ms", "between": [0, 10], "whole": True,
    }  # fmt: skip
    shown = _Reveal(bet, 1234.5678, bet.sentence(1234.5678))._repr_html_()
    assert f'data-key="{bet.key}"' in shown
    assert json.loads(base64.b64decode(re.search('data-truth="(.*?)"', shown).group(1))) == 1235
    assert bet.key == predict('What is "<d>"?', "ms").key != predict('What is "<d>"?', "s").key


def test_in_a_notebook_both_are_displayed(monkeypatch):
    shown = []
    module = sys.modules["labkit.show.predict"]  # labkit.show.predict is the function
    monkeypatch.setattr(module, "_displayed", lambda what: shown.append(what) or True)
    bet = predict(QUESTION, "ms", 100)
    bet.reveal(260)
    assert shown[0] is bet and repr(shown[1]) == bet.sentence(260)


@pytest.mark.parametrize("x, said", [
    (9999.0000000001, "9999"), (263412, "263,412"), (0.41666, "0.4167"), (0, "0"), (-1470, "-1470"),
    (12345.678, "12,350"), (1e-15, "1e-15"), (0.00012, "0.00012"), (2.5e20, "2.5e20"), (9999.6, "10,000"),
])  # fmt: skip
def test_a_number_is_said_in_four_digits_and_a_count_exactly(x, said):
    assert _amount(x) == said and _amount(x, "ms") == f"{said} ms"
