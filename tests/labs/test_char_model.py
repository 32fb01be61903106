"""The character model looks back and never ahead, learns, and writes in its own vocabulary."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labkit_book.labs.char_model import CharTransformer  # noqa: E402
from labkit_book.labs.text import shakespeare, windows  # noqa: E402


def small(V=11, **sizes):
    torch.manual_seed(0)
    model = CharTransformer(V, **{"length": 8, "width": 16, "layers": 2, "heads": 2, **sizes})
    for p in model.parameters():  # zero at the start, where a model that looks nowhere would pass
        if not p.any():
            torch.nn.init.normal_(p, std=0.2)
    return model


def test_scores_depend_on_what_came_before_and_not_on_what_comes_after():
    model, x = small(), torch.randint(11, (3, 8), generator=torch.Generator().manual_seed(1))
    scores = model(x)
    assert scores.shape == (3, 8, 11)
    for place in range(8):
        changed = x.clone()
        changed[:, place] = (x[:, place] + 1) % 11
        differs = (model(changed) - scores).abs().amax(dim=(0, 2)) > 1e-6
        assert differs.tolist() == [t >= place for t in range(8)]


def test_a_new_model_knows_nothing_and_learns_more_than_the_frequencies_of_characters():
    text = shakespeare()
    V = len(text.vocabulary)
    torch.manual_seed(0)
    model = CharTransformer(V, length=16, width=32, layers=1)
    draws = windows(text.train, 16, 16, np.random.default_rng(0))
    x, y = map(torch.from_numpy, next(windows(text.validation, 16, 256, np.random.default_rng(1))))
    with torch.no_grad():
        assert abs(model.loss(x, y).item() - math.log(V)) < 0.1
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):
        optimiser.zero_grad()
        model.loss(*map(torch.from_numpy, next(draws))).backward()
        optimiser.step()
    share = np.bincount(text.train, minlength=V) / len(text.train)
    entropy = -np.sum(share * np.log(share))  # what one needs without looking at the character before
    with torch.no_grad():
        assert model.loss(x, y).item() < entropy - 0.5


def test_writing_is_drawn_from_the_scores_and_repeats_with_its_generator():
    model, x = small(), torch.tensor([3, 1])
    one, two, other = (model.write(x, 30, torch.Generator().manual_seed(s)) for s in (5, 5, 6))
    assert one.shape == (32,) and torch.equal(one[:2], x) and torch.equal(one, two)
    assert not torch.equal(one, other) and one.max() < 11
    cold = model.write(x, 5, torch.Generator().manual_seed(0), temperature=1e-4)
    for i in range(2, 7):  # nearly without temperature it takes the likeliest
        assert cold[i] == model(cold[None, :i])[0, -1].argmax()


def test_what_makes_no_sense_is_refused_by_name():
    model, rng = small(), torch.Generator()
    with pytest.raises(ValueError, match="width must be a multiple of heads = 3, got 16"):
        small(heads=3)
    with pytest.raises(ValueError, match="x must be at most length = 8 characters long, got 9"):
        model(torch.zeros(1, 9, dtype=torch.long))
    with pytest.raises(ValueError, match="x must hold at least one character"):
        model.write(torch.zeros(0, dtype=torch.long), 3, rng)
