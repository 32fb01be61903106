"""What is learned: problems, data, mini-batch and synchronous SGD, and where exactness breaks."""

from labkit.learn.data import Split, digits, linear_data, two_clouds
from labkit.learn.mlp import MLP
from labkit.learn.problems import LeastSquares, LogisticRegression, Problem
from labkit.learn.sgd import Diverged, minibatches, sgd
from labkit.learn.sync import shard_weights, split, split_sizes, sync_sgd

__all__ = [
    "MLP",
    "Diverged",
    "LeastSquares",
    "LogisticRegression",
    "Problem",
    "Split",
    "digits",
    "linear_data",
    "minibatches",
    "sgd",
    "shard_weights",
    "split",
    "split_sizes",
    "sync_sgd",
    "two_clouds",
]
