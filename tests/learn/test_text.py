"""The text that ships: whole, encoded without loss, cut into windows whose targets are one character later."""

import numpy as np
import pytest

from labkit.learn import shakespeare, windows


def test_the_plays_are_there_and_are_encoded_and_decoded_without_loss():
    text = shakespeare()
    whole = text.decode(np.concatenate([text.train, text.validation]))
    assert whole.startswith("First Citizen:\nBefore we proceed any further, hear me speak.")
    assert "A horse! a horse! my kingdom for a horse!" in whole
    assert whole.endswith("In weeping after this untimely bier.\n")
    assert text.vocabulary == "".join(sorted(set(whole))) and len(text.vocabulary) == 63
    np.testing.assert_array_equal(text.encode(whole[-500:]), text.validation[-500:])
    assert len(whole) == 442_988 and len(text.validation) == 44_299
    for word in ("Gutenberg", "license", "copyright"):
        assert word not in whole


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


def test_generators_of_their_own_give_ranks_text_of_their_own_and_the_same_again():
    text = shakespeare()
    a, b, c = (next(windows(text.train, 16, 8, np.random.default_rng([7, k])))[0] for k in (0, 1, 0))
    assert not np.array_equal(a, b)
    np.testing.assert_array_equal(a, c)


@pytest.mark.parametrize(
    "call,says",
    [
        (lambda: shakespeare(1.0), "validation must be a share between 0 and 1, got 1.0"),
        (lambda: shakespeare().encode("né"), "text must be of the vocabulary's characters, got 'é'"),
        (lambda: shakespeare().decode([63]), "ids must be whole numbers from 0 to 62"),
        (lambda: shakespeare().decode([-1]), "ids must be whole numbers from 0 to 62"),
        (lambda: windows(np.arange(5), 5, 1, np.random.default_rng(0)), "ids must be more than length = 5"),
        (lambda: windows(np.arange(5), 0, 1, np.random.default_rng(0)), "length must be a whole number >= 1"),
        (lambda: windows(np.arange(5), 2, 0, np.random.default_rng(0)), "b must be a whole number >= 1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence_at_the_call(call, says):
    with pytest.raises(ValueError, match=says):
        call()
