"""A prediction never tells the answer early and never stops a notebook."""

import base64
import html
import json
import re
import sys
from xml.etree import ElementTree

import pytest

from labkit.show import predict
from labkit.show.figures import stills
from labkit.show.predict import _amount, _Reveal

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


def test_a_choice_is_a_prediction_too():
    ways = ["ring", "tree"]
    assert "one of: ring, tree" in str(predict(QUESTION, choices=ways))
    assert predict(QUESTION, choices=ways).sentence("ring").startswith("It is: ring. You made no guess")
    assert predict(QUESTION, guess="ring", choices=ways).sentence("ring") == "You said ring, and ring it is."
    assert predict(QUESTION, guess="tree", choices=ways).sentence("ring") == "You said tree; it is ring."


@pytest.mark.parametrize(
    "given, complaint",
    [
        ({"choices": ["one"]}, "choices must be two or more different texts, got"),
        ({"choices": ["a", "a"]}, "choices must be two or more different texts, got"),
        ({"choices": ["a", 3]}, "choices must be two or more different texts, got"),
        ({"choices": ["a", "b"], "guess": "c"}, "guess must be one of a, b, got 'c'"),
        ({"between": (3, 3)}, r"between must be \(low, high\) with low < high, got"),
        ({"between": 3}, r"between must be \(low, high\) with low < high, got"),
        ({"between": (0, float("nan"))}, r"between must be \(low, high\) with low < high, got"),
        ({"between": (0, 5), "log": True}, "between must begin above 0 on a logarithmic scale, got"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(given, complaint):
    with pytest.raises(ValueError, match=complaint):
        predict(QUESTION, "", **given)


def test_an_answer_that_was_no_choice_is_refused():
    with pytest.raises(ValueError, match="answer must be one of a, b, got 'c'"):
        predict(QUESTION, choices=["a", "b"]).sentence("c")


def test_the_page_gets_the_question_and_the_sealed_answer_under_one_key():
    bet = predict('What is "<d>"?', "ms", between=(0, 10))
    asked = json.loads(html.unescape(re.search('data-asked="(.*?)"', bet._repr_html_()).group(1)))
    assert asked == {
        "key": bet.key, "question": 'What is "<d>"?', "unit": "ms", "between": [0, 10], "log": False, "whole": True,
    }  # fmt: skip
    shown = _Reveal(bet, 1234.5678, bet.sentence(1234.5678))._repr_html_()
    assert f'data-key="{bet.key}"' in shown
    assert json.loads(base64.b64decode(re.search('data-truth="(.*?)"', shown).group(1))) == 1235
    assert bet.key == predict('What is "<d>"?', "ms").key != predict('What is "<d>"?', "s").key


def test_in_a_notebook_both_are_displayed_and_the_guess_is_drawn(monkeypatch):
    pytest.importorskip("quickjs")
    shown = []
    module = sys.modules["labkit.show.predict"]  # labkit.show.predict is the function
    monkeypatch.setattr(module, "_displayed", lambda what: shown.append(what) or True)
    bet = predict(QUESTION, "ms", 100)
    bet.reveal(260)
    assert shown[0] is bet and repr(shown[1]) == bet.sentence(260)
    assert "<svg" in shown[1]._repr_html_() and "your guess 100 ms" in shown[1]._repr_html_()
    predict(QUESTION, "ms").reveal(260)
    assert "<svg" not in shown[-1]._repr_html_()


@pytest.mark.parametrize(
    "x, said",
    [
        (1470.0000000001, "1470"), (263412, "263,412"), (0.41666, "0.4167"), (0, "0"), (-15, "-15"),
        (12345.678, "12,350"), (1e-15, "1e-15"), (0.00012, "0.00012"), (2.5e20, "2.5e20"), (9999.6, "10,000"),
    ],
)  # fmt: skip
def test_a_number_is_said_in_four_digits_and_a_count_exactly(x, said):
    assert _amount(x) == said and _amount(x, "ms") == f"{said} ms"


@pytest.mark.parametrize("guess", [-20, -1e-9, 0, 1e-12, 0.3, 7, 140, 1e6])
@pytest.mark.parametrize("truth", [-3, 0, 0.4, 7, 1e5])
def test_guess_and_truth_stand_on_the_line_in_their_order(guess, truth):
    pytest.importorskip("quickjs")
    svg = ElementTree.fromstring(stills.number_line("ms", guess, truth, "red"))
    g, t = (
        float(re.match(r"M([\d.]+) ", mark.get("d"))[1]) for mark in reversed(svg.findall("*[@stroke]")[-2:])
    )
    assert 0 <= g <= 400 and 0 <= t <= 400 and ((g < t) == (guess < truth) or abs(g - t) < 1e-3)
    words = [text.text for text in svg.iter("text")]
    assert f"your guess {_amount(guess, 'ms')}" in words and f"it is {_amount(truth, 'ms')}" in words


def test_without_an_engine_the_sentence_says_it_all(monkeypatch):
    stills._context.cache_clear()
    monkeypatch.setitem(sys.modules, "quickjs", None)
    shown = _Reveal(predict(QUESTION, "ms", 100), 260, "You said 100 ms.")._repr_html_()
    assert "<svg" not in shown and "You said 100 ms." in shown
