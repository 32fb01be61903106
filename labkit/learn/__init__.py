"""What is learned: problems, data, mini-batch and synchronous SGD, and the critical batch size."""

from labkit.learn.critical import Hyperbola, fit_hyperbola
from labkit.learn.mlp import MLP
from labkit.learn.problems import LeastSquares, Problem, Split, digits, linear_data
from labkit.learn.sgd import Diverged, Momentum, minibatches, sgd, walk
from labkit.learn.sync import split, sync_sgd
