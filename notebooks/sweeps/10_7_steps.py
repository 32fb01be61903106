"""Steps that each method of lab 10.7 needs on the digits: one grid of rates for all, five seeds, one rule of arrival.

A run is 80 steps of four workers with 32 examples each. It has arrived when the loss on unseen digits is at most GOAL and
stays there for STAY steps. Each method's rate is the one of GRID that arrives first, on a seed that is not
among those of the result; rates at which the run does not arrive come after all others, in the order of their last
losses. A seed draws initial parameters, batches and random codes.
"""

from __future__ import annotations

import math
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from labkit import evidence, launch
from labkit.collectives import all_gather, ring
from labkit.comm.errors import RankError
from labkit.compress import QSGD, ErrorFeedback, Identity, PowerSGD, RandomK, Sign, TopK
from labkit.learn import MLP, Diverged, digits, minibatches, split
from labkit_book.labs.fewer_bytes import DGC, compressed_sgd

K, H, GOAL, STAY, T = 4, 8, 0.3, 10, 80
GRID = (0.2, 0.4, 0.8, 1.6, 3.2)
SHAPES = [(512, 64), (512,), (10, 512), (10,)]

data = digits(np.random.default_rng(0))
net = MLP(data.X.astype(np.float32), data.y, hidden=512, classes=10)
test = MLP(data.X_test.astype(np.float32), data.y_test, 512, 10)

METHODS = {
    "plain": Identity(),
    "QSGD, s = 7": QSGD(7, bucket=512),
    "top 1 %": ErrorFeedback(TopK(0.01)),
    "random 5 %": ErrorFeedback(RandomK(0.05)),
    "sign": ErrorFeedback(Sign()),
    "DGC 1 %": DGC(0.01, momentum=0.9, warmup=6),
    "PowerSGD, r = 2": PowerSGD(SHAPES, r=2),
    "local SGD, H = 8": H,
    "sign, owners": (Sign(),),
    "top 1 %, owners": (TopK(0.01),),
    "top 1 %, no EF": TopK(0.01),
    "random 5 %, no EF": RandomK(0.05),
    "sign, no EF": Sign(),
    "PowerSGD, no EF": PowerSGD(SHAPES, r=2, feedback=False),
}


def striped(comm, g, how, memory):
    """The page's compressed reduce-scatter."""
    d, workers = len(g), comm.K
    width = -(-d // workers)
    owed, owned = memory or (np.zeros((workers, width), g.dtype), np.zeros(width, g.dtype))

    def read(message):
        return how.decode(message, width, g.dtype)

    stripes = np.pad(g, (0, workers * width - d)).reshape(workers, width) + owed
    letters = np.array([how.encode(x, None) for x in stripes])
    owed = stripes - [read(m) for m in letters]
    inbox = letters.copy()
    for shift in range(1, workers):
        to, source = (comm.rank + shift) % workers, (comm.rank - shift) % workers
        comm.sendrecv(letters[to], to, inbox[source], source)
    mean = np.mean([read(m) for m in inbox], axis=0) + owned
    letter = how.encode(mean, None)
    every = all_gather(comm, letter, workers * len(letter)).reshape(workers, -1)
    return np.concatenate([read(m) for m in every])[:d], (owed, mean - read(letter))


def local_sgd(comm, start, eta, shards, h):
    """h steps alone, then all go on from the mean of where they are; the iterates after every meeting."""
    w, path = start, [start]
    for t, shard in enumerate(shards, start=1):
        w = w - np.float32(eta) * net.grad(w, shard[comm.rank])
        if t % h == 0:
            w = ring.allreduce(comm, w) / np.float32(comm.K)
            if not np.isfinite(w).all():
                raise Diverged(t - 1, eta)
            path.append(w)
    return np.array(path)


def by_owners(comm, start, eta, shards, how):
    w, memory, path = start, None, [start]
    for shard in shards:
        step, memory = striped(comm, net.grad(w, shard[comm.rank]), how, memory)
        w = w - np.float32(eta) * step
        path.append(w)
    return np.array(path)


def path(how, eta, seed):
    """Iterates of one run: after every step, of local SGD after every meeting. Empty where it diverges."""
    start = net.init(np.random.default_rng([1, seed])).astype(np.float32)
    batches = minibatches(net.N, 32 * K, np.random.default_rng([2, seed]), epochs=8, drop_last=True)
    shards = [split(batch, K) for batch in batches][:T]
    try:
        if isinstance(how, int):
            return launch(local_sgd, K, start, eta, shards, how).results[0]
        if isinstance(how, tuple):
            return launch(by_owners, K, start, eta, shards, *how).results[0]
        return launch(compressed_sgd, K, net, start, eta, shards, how, seed=seed).results[0].iterates
    except RankError as error:
        if "Diverged" in str(error):
            return []
        raise


def losses_and_shares(how, eta, seed):
    """(losses, per cent right) on unseen digits along the path."""
    iterates = path(how, eta, seed)
    return [test.loss(w) for w in iterates], [100 * test.accuracy(w) for w in iterates]


def steps(losses, how):
    """Steps until the loss is at most GOAL and stays there for STAY steps; inf if that does not happen."""
    every = how if isinstance(how, int) else 1
    arrived = evidence.reach_and_stay(losses, GOAL, math.ceil(STAY / every))
    return math.inf if arrived is None else arrived * every


def sweep():
    seeds = list(evidence.seeds(5))
    other = max(seeds) + 1
    found = {"grid": GRID, "goal": GOAL, "stay": STAY, "T": T, "methods": {}}
    for name, how in METHODS.items():

        def score(eta, how=how):
            losses, _ = losses_and_shares(how, eta, other)
            need = steps(losses, how)
            return need if math.isfinite(need) or not losses else T + float(np.mean(losses[-10:]))

        tuned = evidence.tune(score, GRID)
        runs = [losses_and_shares(how, tuned.best, s) for s in seeds]
        arrived = [steps(losses, how) for losses, _ in runs]
        found["methods"][name] = {
            "rate": tuned.best,
            "tried": [round(s, 3) if math.isfinite(s) else None for s in tuned.scores],
            "steps": [s if math.isfinite(s) else None for s in arrived],
            "right": [round(float(np.mean(shares[-10:])), 2) for _, shares in runs],
            "losses": [[round(float(x), 4) for x in losses] for losses, _ in runs],
            "shares": [[round(float(x), 2) for x in shares] for _, shares in runs],
        }
        print(name, tuned.best, found["methods"][name]["tried"], arrived, flush=True)
    return found
