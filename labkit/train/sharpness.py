"""Sharpness: the largest eigenvalue of the loss's Hessian, by power iteration with exact Hessian-vector products.

Pearlmutter 1994 for the product (autograd differentiates ``g . v`` once more); Keskar et al. 2017 ask of a minimum
how sharp it is, and gradient descent with rate eta is stable only below 2 / eta (with momentum m: 2 (1 + m) / eta).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch


def sharpness(
    loss: Callable[[], torch.Tensor],
    params: Iterable[torch.Tensor],
    generator: torch.Generator,
    iterations: int = 200,
    rtol: float = 1e-4,
) -> float:
    """The eigenvalue of largest magnitude of the Hessian of ``loss()`` at ``params``, with its sign.

    loss: takes nothing, returns a tensor without axes that depends on the params. generator: of the first direction,
    on the params' device. Stops when the estimate changes by less than rtol, or after ``iterations``. Raises
    ValueError for no params, fewer than one iteration, or a loss that is not finite.

    >>> w = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
    >>> round(sharpness(lambda: 3 * w[0] ** 2 + w[1] ** 2, [w], torch.Generator().manual_seed(0)), 2)
    6.0
    """
    at = [p for p in params if p.requires_grad]
    if not at or iterations < 1:
        raise ValueError(
            f"params must hold a tensor that requires a gradient and iterations be >= 1, got {len(at)}, {iterations!r}"
        )
    value = loss()
    if not torch.isfinite(value):
        raise ValueError(f"loss must be finite where sharpness is asked for, got {value.item()!r}")
    grads = torch.autograd.grad(value, at, create_graph=True)
    v = _unit([torch.randn(p.shape, generator=generator, dtype=p.dtype, device=p.device) for p in at])
    estimate = 0.0
    for _ in range(iterations):
        Hv = [h.detach() for h in torch.autograd.grad(grads, at, grad_outputs=v, retain_graph=True)]
        before, estimate = estimate, float(sum(torch.sum(h * x) for h, x in zip(Hv, v, strict=True)))
        if all(not h.any() for h in Hv):
            return 0.0
        if abs(estimate - before) <= rtol * abs(estimate):
            break
        v = _unit(Hv)
    return estimate


def _unit(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    length = torch.sqrt(sum((p.square().sum() for p in parts), torch.zeros((), device=parts[0].device)))
    return [p / length for p in parts]
