"""The book's own package, in the same wheel as labkit: what the book needs and labkit does not. labkit never imports it."""

from labkit_book.problems import check, draw, summary, take

__all__ = ["check", "draw", "summary", "take"]
