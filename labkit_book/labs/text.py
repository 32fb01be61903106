"""Text to learn from, a character at a time: three plays by Shakespeare that come with the package.

A character is a number, its place in the vocabulary; an example is a window of ``length`` characters, and what is to be
predicted is the same window one character later. ``texts/README.md`` says where the words come from (public domain).

Symbols: b windows per batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labkit.checks import integer
from labkit_book.labs import data_file

Ids = NDArray[np.uint8]
Batch = tuple[NDArray[np.int64], NDArray[np.int64]]


class Text(NamedTuple):
    """A text as numbers: ids to train on, ids kept back, and the vocabulary, a sorted string of characters."""

    train: Ids
    validation: Ids
    vocabulary: str

    def encode(self, text: str) -> Ids:
        """Numbers of the characters, (len(text),). ValueError for a character that is not in the vocabulary."""
        place = {c: i for i, c in enumerate(self.vocabulary)}
        if strangers := sorted(set(text) - place.keys()):
            raise ValueError(f"text must be of the vocabulary's characters, got {strangers[0]!r}")
        return np.array([place[c] for c in text], dtype=np.uint8)

    def decode(self, ids: ArrayLike) -> str:
        """The characters of ``ids`` (n,), as a string."""
        return "".join(self.vocabulary[i] for i in np.asarray(ids).ravel())


def shakespeare() -> Text:
    """Three plays, about 440,000 characters; the last tenth of them is kept back.

    >>> text = shakespeare()
    >>> text.decode(text.encode("To be"))
    'To be'
    """
    plays = data_file("texts/shakespeare.txt").read_text(encoding="ascii").encode()
    vocabulary, ids = np.unique(np.frombuffer(plays, np.uint8), return_inverse=True)
    train, validation = np.split(ids.astype(np.uint8), [round(0.9 * len(ids))])
    return Text(train, validation, vocabulary.tobytes().decode("ascii"))


def windows(ids: ArrayLike, length: int, b: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Batches without end: x (b, length) and y (b, length), where y is what follows each character of x.

    Windows start anywhere in ``ids`` (n,), drawn from ``rng``: a rank that shall see text of its own brings a generator of
    its own, ``default_rng([seed, rank])``. Raises ValueError, at the call, unless b >= 1 and 1 <= length < n.
    """
    source = np.asarray(ids)
    integer("length", length, least=1), integer("b", b, least=1)
    if source.ndim != 1 or source.size <= length:
        raise ValueError(f"ids must be more than length = {length} in a row, got shape {source.shape}")

    def batch() -> Batch:
        begin = rng.integers(source.size - length, size=(b, 1))
        window = source[begin + np.arange(length + 1)].astype(np.int64)
        return window[:, :-1], window[:, 1:]

    return iter(batch, None)
