"""A classroom as a cluster: the class's own laptops measure their links and run the book's experiments, together."""

from labkit import extras

extras.need("torch")
