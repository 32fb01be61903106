"""What becomes of batches of different lengths: the share that each worker's mean gradient has in everybody's.

Passed to ``DDP(uneven=...)``. counts: (K,) examples of each rank in this step. A plain mean of the workers' means (what
torch's DDP takes) is the gradient of the whole batch only if all counts are equal (lab 10.3).
"""

from __future__ import annotations

import numpy as np


def refused(counts: np.ndarray, rank: int) -> float:
    """1 / K, and a ValueError unless all ranks bring equally many examples."""
    odd = np.flatnonzero(counts != counts[0])
    if len(odd):
        k = int(odd[0])
        raise ValueError(
            f"every rank must bring equally many examples, but rank {k} brings {counts[k]:.0f} and rank 0 "
            f"{counts[0]:.0f}; drop the short batch, or weigh by examples with uneven=weighted"
        )
    return 1 / len(counts)


def weighted(counts: np.ndarray, rank: int) -> float:
    """b_k / M: every example counts the same, on whichever worker it is. M is the sum of the counts, > 0."""
    if not counts.any():
        raise ValueError(
            "some rank must bring an example, but all bring 0; what is counted is the length of the first tensor "
            "that the model is given"
        )
    return float(counts[rank] / counts.sum())
