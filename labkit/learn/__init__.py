"""What is learned: problems, data, mini-batch and synchronous SGD, stale, served and local."""

from labkit.learn.critical import Hyperbola, fit_hyperbola
from labkit.learn.data import Split, digits, linear_data, two_clouds
from labkit.learn.local import local_sgd
from labkit.learn.mlp import MLP
from labkit.learn.problems import LeastSquares, LogisticRegression, Problem
from labkit.learn.server import LostUpdate, Served, Worked, parameter_server, serve, work
from labkit.learn.sgd import Diverged, Momentum, minibatches, sgd, walk
from labkit.learn.stale import replay
from labkit.learn.sync import split, sync_sgd
from labkit.learn.text import Text, shakespeare, windows

__all__ = [
    "MLP",
    "Diverged",
    "Hyperbola",
    "LeastSquares",
    "LogisticRegression",
    "LostUpdate",
    "Momentum",
    "Problem",
    "Served",
    "Split",
    "Text",
    "Worked",
    "digits",
    "fit_hyperbola",
    "linear_data",
    "local_sgd",
    "minibatches",
    "parameter_server",
    "replay",
    "serve",
    "sgd",
    "shakespeare",
    "split",
    "sync_sgd",
    "two_clouds",
    "walk",
    "windows",
    "work",
]
