"""Which objectives are sums over examples? Six of them, and the test that tells: does the whole split into its parts?

Data-parallel training needs one property: the objective over all examples is the mean of the objectives over
shards, weighted by their sizes, at every w. Then so is its gradient. A mean of losses has it. An objective in
which one example's term depends on *other examples* has not: a maximum, statistics of the batch, pairs.

Sources: Bottou, Curtis and Nocedal 2018, section 2 (the mean); Ioffe and Szegedy 2015 (batch statistics); van
den Oord et al. 2018 (contrastive); Cortes and Mohri 2003 (area under the ROC curve). Symbols: X (m, d) rows, y
(m,) labels 0 and 1, w (d,).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
#: An objective of some rows: ``objective(w, X, y)``, a number.
Objective = Callable[[Array, Array, Array], float]


def mean_loss(w: Array, X: Array, y: Array) -> float:
    """Logistic loss, the mean over the rows."""
    z = X @ w
    return float(np.mean(np.logaddexp(0, z) - y * z))


def penalised(w: Array, X: Array, y: Array) -> float:
    """The mean logistic loss plus a penalty on w, once."""
    return mean_loss(w, X, y) + 0.05 * float(w @ w)


def worst_case(w: Array, X: Array, y: Array) -> float:
    """The largest logistic loss of any row."""
    z = X @ w
    return float(np.max(np.logaddexp(0, z) - y * z))


def batch_normalised(w: Array, X: Array, y: Array) -> float:
    """The mean logistic loss of scores normalised by the mean and deviation of these rows' scores."""
    z = X @ w
    z = (z - z.mean()) / np.sqrt(z.var() + 1e-5)
    return float(np.mean(np.logaddexp(0, z) - y * z))


def contrastive(w: Array, X: Array, y: Array) -> float:
    """InfoNCE: every row must pick its own partner, the row itself with noise, among the partners of all rows."""
    views = X * w
    partners = views + 0.1 * np.roll(views, 1, axis=1)
    scores = views @ partners.T
    top = scores.max(axis=1, keepdims=True)
    log_sum = top[:, 0] + np.log(np.exp(scores - top).sum(axis=1))
    return float(np.mean(log_sum - np.diag(scores)))


def pairwise_ranking(w: Array, X: Array, y: Array) -> float:
    """A smooth one minus AUC: the mean, over all pairs of a positive and a negative row, of how badly it is ordered.

    ValueError unless there is a row of either label.
    """
    if not (np.any(y > 0) and np.any(y == 0)):
        raise ValueError(f"y must hold both labels, 0 and 1, to form pairs, got {np.unique(y)}")
    z = X @ w
    margins = z[y > 0][:, None] - z[y == 0][None, :]
    return float(np.mean(np.logaddexp(0, -margins)))


#: By name, in the order of the lab's question.
OBJECTIVES: dict[str, Objective] = {
    "mean loss": mean_loss,
    "mean loss + penalty": penalised,
    "worst case": worst_case,
    "batch-normalised": batch_normalised,
    "contrastive": contrastive,
    "pairwise ranking": pairwise_ranking,
}


def central_differences(f: Callable[[Array], float], w: ArrayLike, h: float = 1e-5) -> Array:
    """The gradient of f at w, (d,), by 2 d evaluations: ``(f(w + h e_j) - f(w - h e_j)) / (2 h)``.

    Its error is ``h^2 / 6`` times a third derivative, plus rounding of about ``1e-16 |f| / h``. ValueError
    unless h > 0.
    """
    if not (np.isfinite(h) and h > 0):
        raise ValueError(f"h must be finite and > 0, got {h!r}")
    at = np.asarray(w, dtype=np.float64)
    return np.array([(f(at + h * e) - f(at - h * e)) / (2 * h) for e in np.eye(at.size)])


def parts_gap(objective: Objective, w: ArrayLike, X: Array, y: Array, shards: Sequence[ArrayLike]) -> float:
    """How far the shards' gradients, averaged with weights b_k / M, are from the gradient over all their rows.

    Largest absolute difference of any coordinate over the largest coordinate of the whole gradient; of the
    order of 1e-9 if the objective is a sum over examples. shards: lists of row numbers, none empty; for
    ``pairwise_ranking`` each with both labels.
    """
    rows = [np.asarray(idx) for idx in shards]
    if not rows or any(idx.size == 0 for idx in rows):
        raise ValueError(f"shards must hold at least one row each, got sizes {[idx.size for idx in rows]}")
    together = np.concatenate(rows)

    def gradient(idx: NDArray[np.intp]) -> Array:
        return central_differences(lambda v: objective(v, X[idx], y[idx]), w)

    whole = gradient(together)
    mean = np.sum([len(idx) * gradient(idx) for idx in rows], axis=0) / len(together)
    return float(np.abs(mean - whole).max() / np.abs(whole).max())
