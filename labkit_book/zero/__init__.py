"""Sharded training of torch models, ZeRO 1 to 3: what lab A is about."""

from labkit import extras

extras.need("torch")

from labkit_book.zero.zero import Zero1, Zero2, Zero3  # noqa: E402

__all__ = ["Zero1", "Zero2", "Zero3"]
