"""Layers: where each parameter array lies in the flat vector w, and how a layer-wise rule should treat it.

You, Gitman and Ginsburg 2017, section 4, scale every *layer's* step by its own ratio of norms, and it is the custom
to leave biases and normalisation parameters (vectors) out of that and out of weight decay; Goyal et al. 2017,
section 5.1, leave them out of the decay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from labkit.learn.problems import Array


@dataclass(frozen=True)
class Layer:
    """One parameter array: ``w[first:last]``. adapt: scale its step by its trust ratio. decay: weight decay applies."""

    first: int
    last: int
    adapt: bool = True
    decay: bool = True

    def __post_init__(self) -> None:
        for name, value in (("first", self.first), ("last", self.last)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
                raise ValueError(f"{name} must be a whole number >= 0, got {value!r}")
        if self.last < self.first:
            raise ValueError(f"last must be at least first = {self.first}, got {self.last}")

    @property
    def at(self) -> slice:
        """The slice of w."""
        return slice(int(self.first), int(self.last))


def layers_of(shapes: Iterable[Sequence[int]], vectors: bool = False) -> tuple[Layer, ...]:
    """The layers of a w made of arrays with these shapes, one after another.

    vectors: whether arrays with fewer than two axes (biases, scales) are adapted and decayed like the others.
    """
    edges, made = 0, []
    for shape in shapes:
        n, full = int(np.prod(shape, dtype=np.int64)), vectors or len(tuple(shape)) > 1
        made.append(Layer(edges, edges + n, adapt=full, decay=full))
        edges += n
    if not made:
        raise ValueError("shapes must name at least one array, got none")
    return tuple(made)


def check_layers(layers: Sequence[Layer], w: Array, g: Array) -> None:
    """ValueError unless the layers cut w, (d,), into consecutive pieces without a rest and g has w's shape."""
    edges = [0, *(layer.last for layer in layers)]
    if [layer.first for layer in layers] != edges[:-1] or w.shape != (edges[-1],):
        raise ValueError(f"layers must cover w one after another up to {edges[-1]}, got w of shape {w.shape}")
    if g.shape != w.shape:
        raise ValueError(f"g must have w's shape {w.shape}, got {g.shape}")


def norm(x: Array) -> float:
    """The Euclidean norm."""
    return float(np.linalg.norm(x))


def check_settings(**settings: float) -> None:
    """ValueError unless momenta (momentum, beta1, beta2) are in [0, 1) and everything else is finite and >= 0."""
    for name, value in settings.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float, np.number))
            or not np.isfinite(value)
        ):
            raise ValueError(f"{name} must be a finite number, got {value!r}")
        if name in ("momentum", "beta1", "beta2") and not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, got {value!r}")
        if value < 0:
            raise ValueError(f"{name} must be >= 0, got {value!r}")
