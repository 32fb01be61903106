"""Values that are allowed and look like another unit: Gbit for GByte, seconds for milliseconds, bits for bytes.

Each suspicion is one sentence that says what the value is, what it looks like, and how that would be written. A plan is
made all the same: 25 GB/s between hosts may be an InfiniBand of 200 Gbit/s, and more often is 25 Gbit/s misread.
"""

from __future__ import annotations

from labkit.cost.plan.case import Case
from labkit.cost.plan.inputs import TwoLevel, undisturbed

#: What Ethernet, InfiniBand and cloud machines are sold as, Gbit/s.
LINE_RATES = (1, 2.5, 10, 25, 40, 50, 56, 100, 200, 400, 800)


def suspicions(case: Case, sure: bool = False) -> list[str]:
    """What looks like a confusion of units, a sentence each.

    sure: the network's rate was written in bits, or by whoever knew that it is in bytes: then 25 GB/s, which is a line rate
    in either unit, passes.
    """
    job, network, found = case.job, case.cluster.network, []
    links = {"network": network} if not isinstance(network, TwoLevel) else {
        "network": network.across, "network inside hosts": network.inside
    }  # fmt: skip
    for name, link in links.items():
        giga = link.beta / 1e9
        known = sure and 8 * giga in LINE_RATES
        if giga in LINE_RATES and name == "network" and not known:
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
            found.append(
                f"{name}: {link.beta:g} bytes per second is very slow: is a unit such as Gbit/s missing?"
            )
        if link.alpha > 0.01:
            found.append(
                f"{name}: {link.alpha:g} s for each message is very long: is a unit such as us missing?"
            )
    if job.P < 1000:
        found.append(f"parameters: {job.P} is very few: if millions are meant write {job.P}M")
    if job.itemsize in (16, 32, 64):
        found.append(
            f"precision: {job.itemsize} bytes an element is more than any: fp{job.itemsize} has "
            f"{job.itemsize // 8} bytes"
        )
    if job.example_s >= 10:
        found.append(
            f"compute: {job.example_s:g} s for one example is very long: if milliseconds are meant write "
            f"{job.example_s:g}ms"
        )
    elif 6 * job.P / job.example_s > 1e16:
        found.append(
            f"compute: {1e3 * job.example_s:g} ms for one example of {job.P:g} parameters is 10^16 operations a second or "
            f"more, which no device makes: were seconds taken for milliseconds?"
        )
    if case.cluster.price_per_hour > 500:
        found.append(
            f"price: {case.cluster.price_per_hour:g} for one worker and hour is much: is it that of the whole cluster, "
            f"or in cents?"
        )
    calm = undisturbed(job.law, max(case.K))
    if not 0.2 <= calm <= 5:
        found.append(
            f"stragglers: the factor of the least disturbed worker is {calm:g} on average, where 1 is undisturbed: "
            f"are these seconds?"
        )
    return found
