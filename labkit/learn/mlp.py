"""A neural network with one hidden layer or more: tanh or relu, softmax cross entropy, gradients written out by hand.

Backpropagation as in Goodfellow, Bengio and Courville (2016), section 6.5, for a batch of m rows at once.

Symbols: p inputs, c classes; A_0 = X, ``A_i = act(A_{i-1} W_i^T + b_i)``, S (m, c) the scores. All parameters lie in one
flat vector w, the vector that an all-reduce sums: W_1 row by row, b_1, W_2, ... (the order of torch's Linear layers).
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from labkit.checks import integer, one_of
from labkit.learn.problems import Array, Examples


class _Activation(NamedTuple):
    """A nonlinearity, its slope as a function of its *output*, and the variance gain for initial weights (Glorot and
    Bengio 2010 for tanh, He et al. 2015 for relu)."""

    of: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    gain: float


_ACTIVATIONS = {
    "tanh": _Activation(np.tanh, lambda a: 1 - a * a, 1.0),
    "relu": _Activation(
        lambda z: np.maximum(z, 0), lambda a: (a > 0).astype(a.dtype), 2.0
    ),
}


class MLP(Examples):
    """The mean cross entropy of softmax(S) and the labels, the scores S by way of hidden layers. w is (d,).

    X: (N, p). y: (N,), labels 0..classes - 1. hidden: units of the hidden layer, or of each. activation: "tanh" or "relu".
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        hidden: int | Sequence[int],
        classes: int,
        activation: str = "tanh",
    ) -> None:
        widths: Any = [hidden] if np.ndim(hidden) == 0 else hidden
        one_of("activation", activation, _ACTIVATIONS)
        self.classes = integer("classes", classes, 2)
        self._activation = _ACTIVATIONS[activation]
        super().__init__(X, y)
        units = [integer("hidden", h, 1) for h in widths]
        self.shapes = []
        for fan_in, fan_out in pairwise([self.X.shape[1], *units, self.classes]):
            self.shapes += [(fan_out, fan_in), (fan_out,)]
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        self._edges = np.cumsum([0, *sizes])
        self.d = int(self._edges[-1])

    @property
    def layers(self) -> list[slice]:
        """Where each parameter array lies in w: weights, bias, weights, bias, ..."""
        return [slice(int(a), int(b)) for a, b in pairwise(self._edges)]

    def init(self, rng: np.random.Generator) -> Array:
        """Random parameters, (d,): weights normal with variance gain / fan-in (last layer: 1 / fan-in), biases zero."""
        parts = []
        for i, shape in enumerate(self.shapes):
            if len(shape) == 1:
                parts.append(np.zeros(shape))
                continue
            gain = self._activation.gain if i < len(self.shapes) - 2 else 1.0
            parts.append(rng.standard_normal(shape) * np.sqrt(gain / shape[1]))
        return np.concatenate([part.ravel() for part in parts]).astype(
            self.dtype, copy=False
        )

    def unpack(self, w: ArrayLike) -> list[Array]:
        """W_1, b_1, W_2, b_2, ... inside w, (d,): views, not copies, if w has the problem's dtype."""
        flat = self._weights(w)
        return [
            flat[at].reshape(shape)
            for at, shape in zip(self.layers, self.shapes, strict=True)
        ]

    def scores(self, w: ArrayLike, idx: ArrayLike | None = None) -> Array:
        """The scores of the examples ``idx``, (m, classes): softmax makes probabilities of them."""
        X, _ = self._rows(idx)
        return self._forward(self.unpack(w), X)[-1]

    def accuracy(self, w: ArrayLike, idx: ArrayLike | None = None) -> float:
        """Share of the examples ``idx`` whose highest score is their label's."""
        _, y = self._rows(idx)
        return float(np.mean(self.scores(w, idx).argmax(axis=1) == y))

    def _forward(self, at: list[Array], X: Array) -> list[Array]:
        """A_0 = X, the hidden layers' activations, and the scores."""
        A = [X]
        for W, b in zip(at[:-2:2], at[1:-2:2], strict=True):
            A.append(self._activation.of(A[-1] @ W.T + b))
        return [*A, A[-1] @ at[-2].T + at[-1]]

    def _loss_sum(self, w: Array, X: Array, y: Array) -> Any:
        S = self._forward(self.unpack(w), X)[-1]
        # The softmax does not notice, and the exponential would overflow.
        S = S - S.max(axis=1, keepdims=True)
        total = np.exp(S).sum(axis=1)
        of_label = S[np.arange(len(y)), y]
        return np.sum(np.log(total) - of_label)

    def _grad_sum(self, w: Array, X: Array, y: Array) -> Array:
        at = self.unpack(w)
        *A, S = self._forward(at, X)
        E = np.exp(S - S.max(axis=1, keepdims=True))
        # The cross entropy's slope in the scores: softmax minus one-hot labels.
        dZ = E / E.sum(axis=1, keepdims=True)
        dZ[np.arange(len(y)), y] -= 1
        parts: list[Array] = []
        for i in reversed(range(len(A))):
            slope = dZ.T @ A[i]
            parts = [slope.ravel(), dZ.sum(axis=0), *parts]
            if i:
                dZ = (dZ @ at[2 * i]) * self._activation.slope(A[i])
        return np.concatenate(parts)

    def _labels(self, y: Array) -> Array:
        labels = y.astype(np.intp)
        wrong = y[(labels != y) | (labels < 0) | (labels >= self.classes)]
        if wrong.size:
            raise ValueError(
                f"y must hold labels from 0 to {self.classes - 1}, got {wrong[0]!r}"
            )
        return labels
