"""What is learned: problems, data, mini-batch and synchronous SGD, and where exactness breaks."""

from labkit.learn.accumulation import accumulate, accumulating_sgd
from labkit.learn.critical import Hyperbola, fit_hyperbola
from labkit.learn.data import Split, digits, linear_data, two_clouds
from labkit.learn.decay import Decay
from labkit.learn.deep import DeepMLP
from labkit.learn.diloco import diloco
from labkit.learn.hogwild import FileLock, Ones, counters_for, hogwild_inplace
from labkit.learn.lamb import LAMB
from labkit.learn.lars import LARS
from labkit.learn.local import local_sgd, local_sgd_at_once
from labkit.learn.mlp import MLP
from labkit.learn.noise import batch_variance, gradient_noise
from labkit.learn.noise_ball import ExpectedSGD
from labkit.learn.optimisers import AdamW, Momentum
from labkit.learn.policy import Asynchronous, StaleSynchronous, Synchronous
from labkit.learn.post_local import post_local_sgd
from labkit.learn.problems import LeastSquares, LogisticRegression, Problem
from labkit.learn.schedules import WarmUp, linear_rate, sqrt_rate
from labkit.learn.server import LostUpdate, Served, Worked, parameter_server, serve, work
from labkit.learn.sgd import Diverged, minibatches, sgd
from labkit.learn.sparse import SparseLeastSquares, sparse_data
from labkit.learn.stale import by_age, by_staleness, constant_delay, replay
from labkit.learn.sync import shard_weights, split, split_sizes, sync_sgd
from labkit.learn.text import Text, shakespeare, windows
from labkit.learn.walk import walk

__all__ = [
    "LAMB",
    "LARS",
    "MLP",
    "AdamW",
    "Asynchronous",
    "Decay",
    "DeepMLP",
    "Diverged",
    "ExpectedSGD",
    "FileLock",
    "Hyperbola",
    "LeastSquares",
    "LogisticRegression",
    "LostUpdate",
    "Momentum",
    "Ones",
    "Problem",
    "Served",
    "SparseLeastSquares",
    "Split",
    "StaleSynchronous",
    "Synchronous",
    "Text",
    "WarmUp",
    "Worked",
    "accumulate",
    "accumulating_sgd",
    "batch_variance",
    "by_age",
    "by_staleness",
    "constant_delay",
    "counters_for",
    "digits",
    "diloco",
    "fit_hyperbola",
    "gradient_noise",
    "hogwild_inplace",
    "linear_data",
    "linear_rate",
    "local_sgd",
    "local_sgd_at_once",
    "minibatches",
    "parameter_server",
    "post_local_sgd",
    "replay",
    "serve",
    "sgd",
    "shakespeare",
    "shard_weights",
    "sparse_data",
    "split",
    "split_sizes",
    "sqrt_rate",
    "sync_sgd",
    "two_clouds",
    "walk",
    "windows",
    "work",
]
