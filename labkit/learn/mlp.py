"""A small neural network: one hidden layer, softmax cross entropy, gradients written out by hand.

Backpropagation as in Goodfellow, Bengio and Courville (2016), section 6.5, for a batch of m rows at once.

Symbols: p inputs, h hidden units, c classes; A (m, h) activations, S (m, c) scores. All parameters lie in one
flat vector w, the vector that an all-reduce sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from labkit.learn.problems import Array, Examples, _some


class Activation(NamedTuple):
    """A nonlinearity, its slope as a function of its *output*, and the variance gain for initial weights."""

    of: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    gain: float


#: The nonlinearities by name. Gains: Glorot and Bengio 2010 for tanh, He et al. 2015 for relu.
ACTIVATIONS = {
    "tanh": Activation(np.tanh, lambda a: 1 - a * a, 1.0),
    "relu": Activation(lambda z: np.maximum(z, 0), lambda a: (a > 0).astype(a.dtype), 2.0),
}


class Layers(NamedTuple):
    """The parameters as matrices: W1 (h, p), b1 (h,), W2 (c, h), b2 (c,)."""

    W1: Array
    b1: Array
    W2: Array
    b2: Array


class MLP(Examples):
    """``S = act(X W1^T + b1) W2^T + b2``; the loss is the mean cross entropy of softmax(S) and the labels.

    X: (N, p). y: (N,), labels 0..classes - 1. hidden >= 1, classes >= 2. activation: "tanh" or "relu". w
    is (d,) with d = h p + h + c h + c: W1 row by row, b1, W2 row by row, b2 (the order of torch's Linear
    layers). Raises ValueError for anything else.
    """

    def __init__(
        self, X: ArrayLike, y: ArrayLike, hidden: int, classes: int, activation: str = "tanh"
    ) -> None:
        for name, value, least in (("hidden", hidden, 1), ("classes", classes, 2)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        self.hidden, self.classes = int(hidden), int(classes)
        self.activation = ACTIVATIONS[activation]
        super().__init__(X, y)
        p = self.X.shape[1]
        self._shapes = ((self.hidden, p), (self.hidden,), (self.classes, self.hidden), (self.classes,))
        self._edges = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        self.d = int(self._edges[-1])

    def init(self, rng: np.random.Generator) -> Array:
        """Random parameters, (d,): weights normal with variance gain / fan-in, biases zero."""
        p, h, c = self.X.shape[1], self.hidden, self.classes
        W1 = rng.standard_normal((h, p)) * np.sqrt(self.activation.gain / p)
        W2 = rng.standard_normal((c, h)) * np.sqrt(1 / h)
        return self.pack(Layers(W1, np.zeros(h), W2, np.zeros(c)))

    def unpack(self, w: ArrayLike) -> Layers:
        """The matrices inside w, (d,): views, not copies, if w has the problem's dtype."""
        parts = np.split(self._weights(w), self._edges[:-1])
        return Layers(*(part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)))

    def pack(self, layers: Layers) -> Array:
        """One flat vector, (d,), from the matrices."""
        return np.concatenate([part.ravel() for part in layers]).astype(self.dtype, copy=False)

    def accuracy(self, w: ArrayLike, idx: ArrayLike | None = None) -> float:
        """Share of the examples ``idx`` whose highest score is their label's."""
        X, y = self._rows(idx)
        _, S = self._forward(self.unpack(w), X)
        return float(np.sum(S.argmax(axis=1) == y)) / _some(len(y), "accuracy")

    def _forward(self, at: Layers, X: Array) -> tuple[Array, Array]:
        A = self.activation.of(X @ at.W1.T + at.b1)
        return A, A @ at.W2.T + at.b2

    def _loss_sum(self, w: Array, X: Array, y: Array) -> Any:
        _, S = self._forward(self.unpack(w), X)
        S = S - S.max(axis=1, keepdims=True)  # the softmax does not notice; the exponential would overflow
        return np.sum(np.log(np.exp(S).sum(axis=1)) - S[np.arange(len(y)), y])

    def _grad_sum(self, w: Array, X: Array, y: Array) -> Array:
        at = self.unpack(w)
        A, S = self._forward(at, X)
        E = np.exp(S - S.max(axis=1, keepdims=True))
        dS = E / E.sum(axis=1, keepdims=True)  # softmax...
        dS[np.arange(len(y)), y] -= 1  # ...minus one-hot labels: the cross entropy's slope in the scores
        dZ = (dS @ at.W2) * self.activation.slope(A)
        return self.pack(Layers(dZ.T @ X, dZ.sum(axis=0), dS.T @ A, dS.sum(axis=0)))

    def _labels(self, y: Array) -> Array:
        return class_labels(y, self.classes)


def class_labels(y: Array, classes: int) -> Array:
    """``y`` as whole numbers; ValueError unless all of them are labels from 0 to classes - 1."""
    labels = y.astype(np.intp)
    if (labels != y).any() or labels.min() < 0 or labels.max() >= classes:
        wrong = y[(labels != y) | (labels < 0) | (labels >= classes)][0]
        raise ValueError(f"y must hold labels from 0 to {classes - 1}, got {wrong!r}")
    return labels
