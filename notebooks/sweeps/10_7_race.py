"""What the finale's methods are worth in steps: one grid of rates for all, five seeds, two workers.

Every method trains the finale's model for 160 steps of eight windows a worker; "14 steps" is the synchronous method tuned
for a run that is over after 14. Each has the rate of GRID whose loss on unseen text is lowest at its end, on one seed
that is not among the seeds of the result. A seed draws initial parameters and every worker's windows.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from labkit import evidence, launch
from labkit.collectives import ring
from labkit.compress import OverComm, PowerSGD, rngs
from labkit_book.labs.char_model import CharTransformer
from labkit_book.labs.text import shakespeare, windows

K, H, R, T, FEW = 2, 20, 4, 160, 14
GRID = (1.5e-3, 3e-3, 6e-3, 12e-3)

text = shakespeare()
V = len(text.vocabulary)
unseen = [torch.from_numpy(a) for a in next(windows(text.validation, 32, 128, np.random.default_rng(7)))]
like = CharTransformer(V, length=32, width=96, layers=2)
shapes = tuple(tuple(p.shape) for p in like.parameters())


def synchronous(comm, params, optimiser):
    def step():
        g = parameters_to_vector(p.grad for p in params)
        ring.allreduce_inplace(comm, g)
        vector_to_parameters(g / comm.K, [p.grad for p in params])
        optimiser.step()

    return step


def local(lr, momentum):
    def method(comm, params, optimiser):
        anchor, t = parameters_to_vector(params).detach(), 0  # where all last agreed
        outer = torch.optim.SGD([anchor], lr=lr, momentum=momentum, nesterov=momentum > 0)

        def step():
            nonlocal t
            optimiser.step()
            t += 1
            if t % H == 0:
                g = anchor - parameters_to_vector(params).detach()
                ring.allreduce_inplace(comm, g)
                anchor.grad = g / comm.K
                outer.step()
                vector_to_parameters(anchor.clone(), params)

        return step

    return method


def powersgd(comm, params, optimiser):
    wire, scheme, draws = OverComm(comm), PowerSGD(shapes, R), rngs(0, comm.rank)
    memory = [scheme.start(sum(p.numel() for p in params), np.float32, draws)]

    def step():
        g = parameters_to_vector(p.grad for p in params).numpy()
        out, memory[0] = scheme.mean(wire, g, memory[0], draws)
        vector_to_parameters(torch.from_numpy(out.mean), [p.grad for p in params])
        optimiser.step()

    return step


#: Of each method: how it steps, how many steps, after which it is looked at.
LATER = tuple(range(20, T + 1, 20))
METHODS = {
    "14 steps": (synchronous, (*range(2, FEW + 1, 2),)),
    "synchronous": (synchronous, (5, 10, 15, *LATER)),
    "local steps": (local(1.0, 0.0), LATER),
    "DiLoCo": (local(0.7, 0.9), LATER),
    "PowerSGD": (powersgd, (5, 10, 15, *LATER)),
}


def run(comm, method, looks, eta, seed, initial):
    """Rank 0's losses on unseen text after the steps ``looks``."""
    model = CharTransformer(V, length=32, width=96, layers=2)
    vector_to_parameters(initial.clone(), model.parameters())
    params = list(model.parameters())
    step = method(comm, params, torch.optim.AdamW(params, eta, betas=(0.9, 0.99)))
    own = windows(text.train, 32, 8, np.random.default_rng([107, seed, comm.rank]))
    losses = []
    for t in range(max(looks)):
        x, y = map(torch.from_numpy, next(own))
        model.loss(x, y).backward()
        step()
        model.zero_grad()
        if t + 1 in looks and comm.rank == 0:
            with torch.no_grad():
                losses.append(round(model.loss(*unseen).item(), 4))
    return losses


def sweep():
    torch.set_num_threads(1)
    seeds = list(evidence.seeds(5))
    other = max(seeds) + 1
    found = {"grid": GRID, "K": K, "H": H, "r": R, "methods": {}}
    for name, (method, looks) in METHODS.items():

        def losses(eta, seed, method=method, looks=looks):
            torch.manual_seed(seed)
            initial = parameters_to_vector(
                CharTransformer(V, length=32, width=96, layers=2).parameters()
            ).detach()
            job = (method, looks, eta, seed, initial)
            return launch(run, K, *job, timeout_s=3600).results[0]

        tuned = evidence.tune(lambda eta, of=losses: of(eta, other)[-1], GRID)
        found["methods"][name] = {
            "rate": tuned.best,
            "tried": tuned.scores,
            "steps": looks,
            "losses": [losses(tuned.best, s) for s in seeds],
        }
        print(name, tuned, [one[-1] for one in found["methods"][name]["losses"]], flush=True)
    return found
