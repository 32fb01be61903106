"""Small torch models with their data and losses, which several tests train in one process and in many."""

import torch
from torch import nn
from torch.nn import functional as F

from labkit_book.labs.char_model import CharTransformer


def mlp(seed: int, dtype=torch.float64) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 13), nn.Tanh(), nn.Linear(13, 7), nn.Tanh(), nn.Linear(7, 1)).to(dtype)


def points(steps: int, b: int, dtype=torch.float64) -> list:
    g = torch.Generator().manual_seed(1)
    return [tuple(torch.randn(b, n, generator=g, dtype=dtype) for n in (5, 1)) for _ in range(steps)]


def transformer(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return CharTransformer(11, length=8, width=16, layers=2, heads=2).double()


def texts(steps: int, b: int) -> list:
    g = torch.Generator().manual_seed(3)
    made = [torch.randint(11, (b, 9), generator=g) for _ in range(steps)]
    return [(t[:, :-1], t[:, 1:]) for t in made]


def squares(out, y):
    return ((out - y) ** 2).mean()


def surprise(out, y):
    return F.cross_entropy(out.flatten(0, 1), y.flatten())


PROBLEMS = {"mlp": (mlp, points, squares), "transformer": (transformer, texts, surprise)}


def vector(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def rows(x, comm):
    """This rank's share of a batch."""
    return x[comm.rank * len(x) // comm.K : (comm.rank + 1) * len(x) // comm.K]


def gap(path, expected) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(path, expected, strict=True))
