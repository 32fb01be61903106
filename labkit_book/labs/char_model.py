"""A character-level language model: a small decoder-only transformer (Vaswani et al. 2017).

Each block begins both of its halves with a normalisation (Radford et al. 2019). Nearly all parameters are in the blocks:
12 layers width^2.

Symbols: V characters, b windows, ``length`` places in a window.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from labkit.checks import integer, number


class _Block(nn.Module):
    """x (b, length, width) plus what attention finds, plus what the hidden layer makes of it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_hidden = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.hidden = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attend(self.before_attention(x))
        return x + self.hidden(self.before_hidden(x))

    def _attend(self, x: Tensor) -> Tensor:
        b, length, width = x.shape
        split = self.query_key_value(x).view(b, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)  # each (b, heads, length, width / heads)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.mix(seen.transpose(1, 2).reshape(b, length, width))


class CharTransformer(nn.Module):
    """Scores of the next character, (b, length, V), for characters (b, length).

    V: size of the vocabulary. length: the longest window. width: numbers per place, a multiple of ``heads``. layers:
    blocks. All are whole numbers >= 1. Initial parameters come from torch's generator: ``torch.manual_seed`` fixes them.
    Raises ValueError for other sizes and for windows that are too long.

    >>> import torch
    >>> model = CharTransformer(V=60, length=16, width=32, layers=1)
    >>> model(torch.zeros((2, 16), dtype=torch.long)).shape
    torch.Size([2, 16, 60])
    """

    def __init__(self, V: int, length: int = 32, width: int = 96, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        sizes = {"V": V, "length": length, "width": width, "layers": layers, "heads": heads}
        for name, value in sizes.items():
            integer(name, value, least=1)
        if width % heads:
            raise ValueError(f"width must be a multiple of heads = {heads}, got {width}")
        self.length = length
        self.character, self.place = nn.Embedding(V, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.last_norm, self.score = nn.LayerNorm(width), nn.Linear(width, V, bias=False)
        for name, p in self.named_parameters():
            if name.endswith(("mix.weight", "hidden.2.weight")):
                nn.init.zeros_(p)  # every block begins as the identity, which learns faster
            elif p.ndim == 2:
                nn.init.normal_(p, std=0.02 if p is self.score.weight else width**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] > self.length:
            raise ValueError(f"x must be at most length = {self.length} characters long, got {x.shape[-1]}")
        places = torch.arange(x.shape[-1], device=x.device)
        return self.score(self.last_norm(self.blocks(self.character(x) + self.place(places))))

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean cross entropy of the next characters y (b, length) after x (b, length), in nats per character."""
        return F.cross_entropy(self(x).flatten(0, 1), y.flatten())

    @torch.no_grad()
    def write(self, x: Tensor, n: int, generator: torch.Generator, temperature: float = 0.8) -> Tensor:
        """Go on from the characters x (m,), m >= 1, for n more, drawn one by one; returns (m + n,).

        temperature: > 0; below 1 the likely characters become likelier.
        """
        number("temperature", temperature, above=0)
        if not len(x):
            raise ValueError("x must hold at least one character to go on from, got none")
        for _ in range(n):
            scores = self(x[None, -self.length :])[0, -1] / temperature
            x = torch.cat([x, torch.multinomial(scores.softmax(0), 1, generator=generator)])
        return x
