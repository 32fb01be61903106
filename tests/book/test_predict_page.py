"""Predict first, in a real browser and with no kernel: covered before, shown after, and the numbers are labkit's."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit.show.predict import Prediction, _amount, _Reveal

expect = pytest.importorskip("playwright.sync_api").expect
pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "book" / "_static"
HOME = "http://book.test/lab.html"
SECRET = "Rank 7 is the culprit."
WAITING = Prediction("Waiting per step", "ms")
SHARE = Prediction("Share of it", "%", between=(0, 100))
WINNER = Prediction("Who is first?", choices=("ring", "tree", "the naïve one"))
ANSWERS: list[tuple[Prediction, float | str]] = [(WAITING, 1470.0), (SHARE, 12.5), (WINNER, "the naïve one")]


def lab(answers: list[tuple[Prediction, float | str]]) -> str:
    """A page as the book has them: for each question a box, its cell, the answer's cell, and prose that tells."""
    parts = []
    for i, (bet, answer) in enumerate(answers):
        shown = _Reveal(bet, answer, bet.sentence(answer))._repr_html_()
        parts.append(
            f"""<section id="s{i}"><h2>Claim {i}</h2><p>Some text before.</p>
            <div class="predict admonition"><p class="admonition-title">Predict first</p><p>{bet.question}</p></div>
            <div class="cell"><div class="cell_input"><pre>bet = predict(...)</pre></div>
            <div class="cell_output"><div class="output text_html">{bet._repr_html_()}</div></div></div>
            <div class="cell tag_hide-output"><div class="cell_input"><pre>assert bet</pre></div>
            <details class="hide below-input"><summary>Show code cell output</summary>
            <div class="cell_output"><div class="output text_html">{shown}</div></div></details></div>
            <p id="told{i}">{SECRET} <a href="#">a link</a></p>
            <div class="why admonition"><p id="why{i}">An argument.</p></div>
            <section><h3>For real</h3><p id="real{i}">It is so.</p></section></section>
            <section><h2>Other things</h2><p class="later">Later.</p></section>"""
        )
    style = (STATIC / "guess.css").read_text()
    script = (STATIC / "number_line.js").read_text() + (STATIC / "guess.js").read_text()
    body = f"<article><h1>A lab</h1>{''.join(parts)}</article>"
    return (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>A lab</title><style>{style}</style>"
        f"<script>{script}</script></head><body class=bd-article>{body}</body></html>"
    )


@pytest.fixture
def opened(window: Any) -> Iterator[Callable[..., Any]]:
    """`opened(answers, script="", **options)` is a page that shows the lab; `script` runs before everything else."""
    complaints: list[str] = []

    def go(answers: Any = ANSWERS, script: str = "", address: str = HOME, **options: Any) -> Any:
        page = window(viewport={"width": 390, "height": 844}, **options)
        text = lab(answers)
        page.context.route("**/*", lambda route: route.fulfill(body=text, content_type="text/html"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        if script:
            page.add_init_script(script)
        page.goto(address)
        return page

    yield go
    assert not complaints


def box(page: Any, i: int) -> Any:
    return page.locator(".admonition.predict").nth(i)


def expect_covered(page: Any, *covered: bool) -> None:
    """Of each question, whether the answer and what is said of it can be seen; what comes after always can."""
    for i, hidden in enumerate(covered):
        for new in (page.locator(".later").nth(i), page.locator(f"#real{i}"), page.locator(f"#why{i}")):
            expect(new).to_be_visible()
        for part in (page.locator(".labkit-reveal").nth(i), page.locator(f"#told{i}")):
            expect(part).to_be_visible(visible=not hidden)


def said(page: Any, i: int) -> Any:
    return box(page, i).locator(".labkit-said")


def test_before_a_guess_nothing_shows_the_answer(opened: Any, press_tab: Any) -> None:
    page = opened()
    expect_covered(page, True, True, True)
    text = page.locator("body").inner_text()
    assert SECRET not in text and "1470" not in text and "12.5" not in text
    assert "1470" not in page.locator(".labkit-reveal").first.get_attribute("data-truth")
    for _ in range(30):  # nor does the keyboard get there
        press_tab(page)
        assert page.evaluate("!document.activeElement.closest('.labkit-covered')")


def test_a_guess_is_committed_by_mouse_and_stands_beside_the_truth(opened: Any) -> None:
    page = opened()
    box(page, 0).get_by_label("Your guess").fill("300")
    box(page, 0).get_by_role("button", name="Commit").click()
    expect_covered(page, False, True, True)
    words = WAITING.__class__("Waiting per step", "ms", 300).sentence(1470.0)
    expect(said(page, 0)).to_have_text(words)
    expect(page.locator(".labkit-reveal").first).to_have_text(words)
    line = box(page, 0).locator("svg.labkit-number-line")
    expect(line).to_have_attribute("aria-label", "your guess 300 ms; it is 1470 ms")
    page.reload()
    expect_covered(page, False, True)
    expect(said(page, 0)).to_have_text(words)


def test_a_guess_is_committed_by_keyboard_alone(opened: Any, press_tab: Any) -> None:
    page = opened()
    while page.evaluate("document.activeElement.type") != "text":
        press_tab(page)
    page.keyboard.type("1,400 ms")
    page.keyboard.press("Enter")
    expect_covered(page, False)
    expect(said(page, 0)).to_be_focused()  # a screen reader reads it out
    expect(said(page, 0)).to_contain_text("You said 1400 ms; it is 1470 ms. Well predicted")


def test_what_somebody_else_stored_is_no_guess(opened: Any) -> None:
    key = f"labkit-guess:/lab.html:{WAITING.key}"
    page = opened(script=f"localStorage.setItem({json.dumps(key)}, '{{')")
    expect_covered(page, True)


def test_a_link_to_what_is_covered_opens_it(opened: Any) -> None:
    page = opened(address=f"{HOME}#told1")
    expect_covered(page, True, False, True)


def test_on_paper_and_without_the_script_nothing_is_covered(opened: Any) -> None:
    page = opened()
    page.emulate_media(media="print")
    expect(page.locator("#told0")).to_be_visible()
    plain = opened(java_script_enabled=False)
    expect(plain.locator("#told0")).to_be_visible()
    expect(plain.locator(".labkit-reveal").first).not_to_be_visible()  # behind the notebook's own fold
    plain.locator("summary").first.click()
    expect(plain.locator(".labkit-reveal").first).to_be_visible()
    expect(plain.locator(".labkit-reveal").first).to_contain_text("It is 1470 ms.")


def test_the_script_says_and_draws_what_labkit_does(opened: Any) -> None:
    page = opened()
    truths = [1470.0, 0.4167, 263_412, -15, 0, 1e-15, 128.68, 2.078, 1e6, 12345.678, 3]
    guesses = [1470, 1, 0, -3, 0.42, 2e5, 1e-12, 14_701, 3.14159, 1e16]
    pairs = [(g, t) for g in guesses for t in truths]
    js = page.evaluate(
        """pairs => pairs.map(([g, t]) => {
          const p = window.labkitPredict, line = p.ends(g, t);
          return [p.sentence({unit: "ms"}, g, t), p.amount(t, "ms"), line, p.place(g, line), p.place(t, line)];
        })""",
        pairs,
    )
    for (g, t), (sentence, amount, line, *places) in zip(pairs, js, strict=True):
        assert sentence == Prediction("q", "ms", g).sentence(t)
        assert amount == _amount(t, "ms")
        at = dict(zip((g, t), places, strict=True))
        assert all(0 <= place <= 1 for place in places) and ((at[g] < at[t]) == (g < t) or g == t)
        assert line[2] or line[0] <= 0 <= line[1]  # a linear line shows its zero
