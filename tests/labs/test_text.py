"""The text that ships: whole, encoded without loss, cut into windows whose targets are one character later."""

import numpy as np
import pytest

from labkit_book.labs import data_file
from labkit_book.labs.text import shakespeare, windows


def test_the_plays_are_there_and_are_encoded_and_decoded_without_loss():
    text = shakespeare()
    whole = text.decode(np.concatenate([text.train, text.validation]))
    assert whole.startswith("First Citizen:\nBefore we proceed any further, hear me speak.")
    assert whole.endswith("In weeping after this untimely bier.\n")
    assert text.vocabulary == "".join(sorted(set(whole))) and len(text.vocabulary) == 63
    np.testing.assert_array_equal(text.encode(whole[-500:]), text.validation[-500:])
    assert len(whole) == 442_988 and len(text.validation) == 44_299


def test_windows_are_text_and_their_targets_are_one_character_later():
    ids = np.arange(50, dtype=np.uint8)
    draws = windows(ids, 7, 4, np.random.default_rng(0))
    starts = set()
    for _ in range(100):
        x, y = next(draws)
        assert x.shape == y.shape == (4, 7) and x.dtype == np.int64
        np.testing.assert_array_equal(y, x + 1)
        starts |= set(x[:, 0].tolist())
    assert starts == set(range(43))  # the last window's last target is the last character


@pytest.mark.parametrize("call,says", [
    (lambda: shakespeare().encode("né"), "text must be of the vocabulary's characters, got 'é'"),
    (lambda: data_file("nothing.json"), r"^name must be one of .*slow_job\.py.*, got 'nothing\.json'"),
    (lambda: windows(np.arange(5), 5, 1, np.random.default_rng(0)), "ids must be more than length = 5"),
    (lambda: windows(np.arange(5), 2, 0, np.random.default_rng(0)), "b must be a whole number >= 1"),
])  # fmt: skip
def test_bad_input_is_refused_at_the_call(call, says):
    with pytest.raises(ValueError, match=says):
        call()
