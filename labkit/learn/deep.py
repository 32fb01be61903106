"""A network with any number of hidden layers: relu or tanh, softmax cross entropy, gradients written out by hand.

Backpropagation as in Goodfellow, Bengio and Courville (2016), section 6.5. With one hidden layer it is
`labkit.learn.mlp.MLP`; more of them make a loss whose curvature changes a lot on the way down, which is what
large batches stumble over.

Symbols: p inputs, c classes, widths h_1..h_n; A_0 = X, ``A_i = act(A_{i-1} W_i^T + b_i)``. All parameters lie in
one flat vector w: W_1 row by row, b_1, W_2, ... (the order of torch's Linear layers).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labkit.learn.mlp import ACTIVATIONS, class_labels
from labkit.learn.problems import Array, Examples, _some


class DeepMLP(Examples):
    """The mean cross entropy of softmax(scores) and the labels, scores by hidden layers of ``widths`` units.

    X: (N, p). y: (N,), labels 0..classes - 1. widths: one whole number >= 1 for each hidden layer, at least
    one. classes >= 2. activation: "tanh" or "relu". w is (d,). Raises ValueError for anything else.
    """

    def __init__(
        self, X: ArrayLike, y: ArrayLike, widths: Sequence[int], classes: int, activation: str = "relu"
    ) -> None:
        sizes = list(widths) if isinstance(widths, (Sequence, np.ndarray)) else [widths]
        if not sizes:
            raise ValueError(f"widths must name at least one hidden layer, got {widths!r}")
        for name, value, least in [*(("widths", h, 1) for h in sizes), ("classes", classes, 2)]:
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise ValueError(f"{name} must be made of whole numbers >= {least}, got {value!r}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        self.classes, self.activation = int(classes), ACTIVATIONS[activation]
        super().__init__(X, y)
        wide = [self.X.shape[1], *(int(h) for h in sizes), self.classes]
        self.shapes: list[tuple[int, ...]] = []
        for fan_in, fan_out in pairwise(wide):
            self.shapes += [(fan_out, fan_in), (fan_out,)]
        self._edges = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])
        self.d = int(self._edges[-1])

    @property
    def layers(self) -> list[slice]:
        """Where each parameter array lies in w: weights, bias, weights, bias, ..."""
        return [slice(int(a), int(b)) for a, b in pairwise(self._edges)]

    def init(self, rng: np.random.Generator) -> Array:
        """Random parameters, (d,): weights normal with variance gain / fan-in (last layer: 1 / fan-in), biases zero."""
        parts: list[Array] = []
        for i, shape in enumerate(self.shapes):
            if len(shape) == 1:
                parts.append(np.zeros(shape))
                continue
            gain = self.activation.gain if i < len(self.shapes) - 2 else 1.0
            parts.append(rng.standard_normal(shape) * np.sqrt(gain / shape[1]))
        return np.concatenate([part.ravel() for part in parts]).astype(self.dtype, copy=False)

    def unpack(self, w: ArrayLike) -> list[Array]:
        """W_1, b_1, W_2, b_2, ... inside w, (d,): views, not copies, if w has the problem's dtype."""
        flat = self._weights(w)
        return [flat[at].reshape(shape) for at, shape in zip(self.layers, self.shapes, strict=True)]

    def accuracy(self, w: ArrayLike, idx: ArrayLike | None = None) -> float:
        """Share of the examples ``idx`` whose highest score is their label's."""
        y = self._rows(idx)[1]
        return float(np.sum(self.scores(w, idx).argmax(axis=1) == y)) / _some(len(y), "accuracy")

    def scores(self, w: ArrayLike, idx: ArrayLike | None = None) -> Array:
        """The scores of the examples ``idx``, (m, classes): softmax makes probabilities of them."""
        return self._forward(self.unpack(w), self._rows(idx)[0])[-1]

    def _forward(self, at: list[Array], X: Array) -> list[Array]:
        """A_0 = X, the hidden layers' activations, and the scores."""
        A = [X]
        for W, b in zip(at[:-2:2], at[1:-2:2], strict=True):
            A.append(self.activation.of(A[-1] @ W.T + b))
        return [*A, A[-1] @ at[-2].T + at[-1]]

    def _loss_sum(self, w: Array, X: Array, y: Array) -> Any:
        S = self._forward(self.unpack(w), X)[-1]
        S = S - S.max(axis=1, keepdims=True)  # the softmax does not notice; the exponential would overflow
        return np.sum(np.log(np.exp(S).sum(axis=1)) - S[np.arange(len(y)), y])

    def _grad_sum(self, w: Array, X: Array, y: Array) -> Array:
        at = self.unpack(w)
        *A, S = self._forward(at, X)
        E = np.exp(S - S.max(axis=1, keepdims=True))
        dZ = E / E.sum(axis=1, keepdims=True)  # softmax...
        dZ[np.arange(len(y)), y] -= 1  # ...minus one-hot labels: the cross entropy's slope in the scores
        parts: list[Array] = []
        for i in range(len(A) - 1, -1, -1):
            parts = [(dZ.T @ A[i]).ravel(), dZ.sum(axis=0), *parts]
            if i:
                dZ = (dZ @ at[2 * i]) * self.activation.slope(A[i])
        return np.concatenate(parts)

    def _labels(self, y: Array) -> Array:
        return class_labels(y, self.classes)
