"""Values that are allowed and look like another unit: Gbit for GByte, seconds for milliseconds, bits for bytes.

A model too large for a worker whose memory nobody gave is one too. Each is one sentence that says what the value is, what
it looks like, and how that would be written. A plan is made all the same: 25 GB/s between hosts may be an InfiniBand of 200
Gbit/s, and more often is 25 Gbit/s misread.
"""

from __future__ import annotations

import re

from labkit.network.link import Link
from labkit_book.planner.case import Case
from labkit_book.planner.estimate import undisturbed
from labkit_book.planner.memory import LARGE, need
from labkit_book.planner.units import RATE, written

#: What Ethernet, InfiniBand and cloud machines are sold as, Gbit/s; hosts also have several ports of 100 or more.
LINE_RATES = (1, 2.5, 10, 25, 40, 50, 56, 100, 200, 400, 800)


def lint(case: Case, rate: str | None = None) -> list[str]:
    """What looks like a confusion of units, a sentence each.

    rate: the network's, as somebody typed it. If that is in bits, 25 GB/s passes, which is a line rate in either unit; so
    it does where nobody typed it.
    """
    sure = rate is None or bool(re.search(r"bit|b(/s|ps)", RATE.split(rate)[1]))
    network = case.network
    link = Link(case.alpha_s, case.beta_bytes_per_s or network.link.beta)
    found = _of_link("network", link, meant=sure and _sold(8 * link.beta / 1e9))
    if network.per_host > 1:
        found += _of_link("network inside hosts", network.inside, meant=True)
    if curve := network.curve:
        doubts = [curve.predict(K, case.nbytes).doubt for K in case.K_workers if K > 1]
        found += [f"sweep: {said}" for said in [curve.verdict, *dict.fromkeys(filter(None, doubts))][:4]]
    P, example_s, tokens, size = case.parameters, case.example_s, case.tokens or 1, case.element_bytes
    price, calm = case.price_per_worker_hour, undisturbed(case.law, max(case.K_workers))
    return found + [
        said
        for said, strange in {
            f"parameters: {P} is very few: if millions are meant write {P}M": P < 1000,
            f"precision: {size} bytes an element is more than any: fp{size} has {size // 8} bytes": size in (16, 32, 64),
            f"compute: {example_s:g} s for one example is very long: if milliseconds are meant write {example_s:g}ms":
                example_s >= 10 * tokens,
            f"compute: {1e3 * example_s:g} ms for one example of {P:g} parameters is 10^16 operations a second or more, "
            f"which no device makes: were seconds taken for milliseconds?": 6 * P * tokens / example_s > 1e16,
            f"price: {price:g} for one worker and hour is much: is it that of the whole cluster, or in cents?": price > 500,
            _memory(case): True,
            f"stragglers: the factor of the least disturbed worker is {calm:g} on average, where 1 is undisturbed: are "
            f"these seconds?": not 0.2 <= calm <= 5,
        }.items()
        if strange and said
    ]  # fmt: skip


def _memory(case: Case) -> str:
    """What no memory was given for, where a worker needs much or where a part of it is not known; or nothing."""
    if case.memory_bytes is not None:
        said = "memory: activations are not counted: say --activations, or a transformer's --layers, --hidden, --tokens"
        return said if case.activation_bytes is None and case.layers is None else ""
    stage = min(method.stage for method in case.methods)
    most = need(case, stage, max(case.K_workers)).state
    who = f"zero{stage}" if stage else "plain data parallelism"
    said = (
        f"memory: no memory of a worker was given; {who} needs {written(most, 'bytes', ' ')} a worker for parameters, "
        f"gradients and optimizer alone: say --memory or --gpu"
    )
    return said if most > LARGE else ""


def _sold(gigabits: float) -> bool:
    return gigabits in LINE_RATES or gigabits % 100 == 0


def _of_link(name: str, link: Link, meant: bool) -> list[str]:
    """meant: whether a line rate in bytes is one."""
    found, giga = [], link.beta / 1e9
    if giga in LINE_RATES and not meant:
        found.append(
            f"{name}: {giga:g} GB/s is {8 * giga:g} Gbit/s; links are also sold as {giga:g} Gbit/s: if bits are meant "
            f"write {giga:g}Gbit/s, which is {giga / 8:g} GB/s"
        )
    elif 8 * giga in (1.25, 3.125, 6.25):
        found.append(
            f"{name}: {8 * giga:g} Gbit/s is {giga:g} GB/s, but {8 * giga:g} GB/s is {64 * giga:g} Gbit/s, which "
            f"links are sold as: if bytes are meant write {8 * giga:g}GB/s"
        )
    elif link.beta < 1e5:
        found.append(f"{name}: {link.beta:g} bytes a second is very slow: is a unit such as Gbit/s missing?")
    if link.alpha > 0.01:
        found.append(f"{name}: {link.alpha:g} s for each message is very long: is a unit such as us missing?")
    return found
