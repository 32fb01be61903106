"""The arguments of ``python -m labkit plan``, and its help."""

from __future__ import annotations

import argparse
from typing import NoReturn

from labkit.cost.plan.spelling import LAWS, METHODS

#: The job that ``--example`` plans: a ResNet-50 on hosts of 4 with 25 Gbit/s between them; its target is an assumption.
EXAMPLE = [
    "--parameters", "25.6M", "--precision", "fp32", "--example-ms", "4", "--b", "32", "--network", "25Gbit/s",
    "--latency", "20us", "--inside", "10GB/s", "--inside-latency", "5us", "--per-host", "4", "--price", "2.5/h",
    "--stragglers", "lognormal:0.05", "--steps-min", "7000", "--critical-batch", "4096", "--K", "1-256",
]  # fmt: skip

EPILOG = """\
methods:
  {methods}

stragglers, the law of the factor by which a step's computation is longer:
  {laws}

--json prints one object, the same keys every time ("schema": "labkit-plan-1"):
  inputs      what was planned; a job file for --from has the same form (job, cluster, target,
              K_workers, methods, goal), units in the keys: alpha_s, beta_bytes_per_s, ...
  best        the row that the goal asks for
  why         binds (the largest part of its bill), shares (of 1), sentence, too_close (others
              that chance could put in its place)
  rows        method, K_workers, b_examples, B_examples,
              step_s = compute_s + wait_s + communicate_s,
              communicate_s = latency_s + bandwidth_s + coding_s, error_s (of a simulated step),
              steps, steps_factor, time_s, worker_s, price_currency, efficiency (of 1),
              speedup (times), examples_per_s, allreduce, binds, assumption
  break_even  method, steps_factor at which it ties with rival
  flips       dial, unit, now, best, at (null: never up to until), other, until
  left_out    method, K_workers, why
  warnings    values that look like another unit
"""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in a sentence, as a ValueError, and nothing else."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parser() -> argparse.ArgumentParser:
    """The parser of ``labkit plan``; ValueError for arguments that there are not."""
    listed = ["\n  ".join(f"{name:<18}{what}" for name, what in each.items()) for each in (METHODS, LAWS)]
    made = Parser(
        prog="python -m labkit plan",
        description="Which way to train, on how many workers, and why: time to accuracy = steps(B) x seconds per step.",
        epilog=EPILOG.format(methods=listed[0], laws=listed[1]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--parameters", metavar="25.6M", help="parameters of the model")
    add("--precision", metavar="fp32", help="of the gradient on the wire: fp32 (default), bf16, ... or bytes")
    add("--example-ms", metavar="4", help="computation of one example, forward and backward, on one worker")
    add("--batch-ms", metavar="128", help="or: of a whole batch of --b examples")
    add("--overhead-ms", metavar="2", help="the part of a step that does not depend on the batch")
    add("--b", type=int, metavar="32", help="examples per worker and step: weak scaling, B = K b")
    add(
        "--B",
        type=int,
        metavar="1024",
        help="or: examples per step of all workers: strong scaling, b = B / K",
    )
    add("--K", metavar="1-64", help="numbers of workers: 8, or 1,2,4, or 1-64 (powers of two and both ends)")
    add(
        "--network",
        metavar="25Gbit/s",
        help="rate of a link (between hosts): bit or B; bare numbers are bytes/s",
    )
    add("--latency", metavar="20us", help="of a message on it; bare numbers are seconds")
    add("--inside", metavar="10GB/s", help="rate of a link inside a host of several workers")
    add("--inside-latency", metavar="5us", help="of a message inside a host")
    add("--per-host", type=int, metavar="4", help="workers of a host, which share its port")
    add("--hosts", type=int, metavar="8", help="hosts; K is hosts x per-host")
    add("--allreduce", metavar="best", help="best, or ring, halving, ...; on hosts ring or hierarchical")
    add("--price", metavar="2.5/h", help="of one worker, in any currency")
    add("--stragglers", metavar="LAW", help="law of the workers' speeds, below; none is the default")
    add(
        "--backward-share",
        type=float,
        metavar="0.67",
        help="share of the computation that is the backward pass",
    )
    add("--steps-min", metavar="7000", help="steps to the accuracy asked with batches without limit")
    add("--critical-batch", metavar="4096", help="the batch that needs twice as many")
    add("--examples", metavar="115M", help="or: examples to compute, whatever the batch")
    add("--methods", metavar="LIST", help="of those below, with commas; default: one of each")
    add(
        "--steps-factor",
        action="append",
        metavar="M=F",
        help="method M needs F times the steps, as local:8=1.2",
    )
    add("--coding-ms", metavar="3", help="to encode and decode a gradient, for the methods that compress")
    add(
        "--goal", metavar="time", help="time (default), price, knee (least time x price) or 'efficiency>=0.8'"
    )
    add("--from", dest="file", metavar="FILE", help="a job file in JSON; other arguments take precedence")
    add("--json", action="store_true", help="print JSON, as described below")
    add(
        "--no-flips",
        action="store_true",
        help="don't look for where the ranking flips, which takes most of the time",
    )
    add("--example", action="store_true", help="plan an example job and show its arguments")
    add("--published", action="store_true", help="the planner beside published scaling efficiencies")
    return made
