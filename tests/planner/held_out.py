"""What each model of a measured all-reduce misses by on sizes and K it was not shown: ``python tests/planner/held_out.py``.

The sweeps (``sweeps.toml``: published times of all-reduces, numbers with their source) are split by publisher, the first
word of a source's key: publishers in order of the SHA-256 of that word go in turn to ``development``, which models and
thresholds were made on, and ``test``, looked at once, when they were done. The rule is older than the models. Sources
that were found later (``late``) are for the test, if their publisher is not already in the development half.

A size is left out of its sweep, a `Curve` made of all others, *its* choice of a model and its own held-out errors included,
and asked for the size: it may refuse. So refusals, too, are made without the number they are judged by. A sweep of which it
refuses every size is not predicted at all.
"""

from __future__ import annotations

import hashlib
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from labkit_book.planner import Curve, Sweep

HALVES = ("development", "test")
MODELS = ("alpha-beta", "two regimes", "interpolation")


def sources(half: str) -> list[dict[str, Any]]:
    """The sources of one half, each with ``sweeps``: name, K, hosts, points [[bytes, seconds]]."""
    every = tomllib.loads(Path(__file__).with_name("sweeps.toml").read_text())["sources"]
    words = {each["source"].split("-")[0] for each in every if not each.get("late")}
    order = sorted(words, key=lambda word: hashlib.sha256(word.encode()).hexdigest())
    development = order[::2]
    wanted = half == HALVES[0]
    return [each for each in every if (each["source"].split("-")[0] in development) == wanted]


def sweep(each: dict[str, Any]) -> Sweep:
    hosts = ((each["K"], each["hosts"]),) if "hosts" in each else ()
    return Sweep(tuple((each["K"], n, s) for n, s in each["points"] if n > 0), hosts)


def left_out(whole: Sweep) -> tuple[np.ndarray, list[str]]:
    """Relative error of each size, predicted from all others, and why the prediction is refused, if it is."""
    errors, doubts = [], []
    for n in sorted({n for _, n, _ in whole.points}):
        rest = Curve(Sweep(tuple(p for p in whole.points if p[1] != n), whole.hosts))
        (K,) = whole.Ks
        found = rest.predict(K, n)
        measured = float(np.median([s for _, size, s in whole.points if size == n]))
        errors.append(abs(found.seconds / measured - 1))
        doubts.append(found.doubt)
    return np.array(errors), doubts


def table(half: str) -> list[dict[str, Any]]:
    """A row for each sweep of at least 6 sizes. Errors are shares of 1."""
    rows = []
    for source in sources(half):
        for each in source["sweeps"]:
            whole = sweep(each)
            if len({n for _, n, _ in whole.points}) < 6:
                continue
            curve = Curve(whole)
            errors, doubts = left_out(whole)
            kept = errors[[not doubt for doubt in doubts]]
            row = {"source": source["source"], "name": each["name"], "K": each["K"], "sizes": len(errors)}
            row |= {name: curve.error(name) for name in MODELS}
            row |= {
                "chosen": curve.model,
                "kept": kept,
                "doubts": [d for d in doubts if d],
                "found": [*curve.found],
            }
            rows.append(row)
    return rows


def series(half: str) -> list[tuple[str, Curve]]:
    """Sweeps of one source whose names differ in their numbers only, of at least four different K, as one curve each."""
    found: dict[tuple[str, str], list[Sweep]] = {}
    for source in sources(half):
        for each in source["sweeps"]:
            found.setdefault((source["source"], re.sub(r"\d+", "#", each["name"])), []).append(sweep(each))
    joined = {key[0]: sum(each[1:], each[0]) for key, each in found.items() if len({s.Ks for s in each}) >= 4}
    return [(name, Curve(each)) for name, each in joined.items()]


def main() -> None:
    for half in sys.argv[1:] or HALVES:
        rows = table(half)
        print(
            f"\n{half}: {len(rows)} sweeps; median / worst error in % of sizes left out, by model; of the choice, refused"
        )
        for row in rows:
            kept, refused = row["kept"], len(row["doubts"])
            models = "".join(f"{100 * row[m][0]:7.1f} /{100 * row[m][1]:6.0f}" for m in MODELS)
            chosen = f"{100 * np.median(kept):5.1f} /{100 * kept.max():4.0f}" if len(kept) else "refused"
            print(f"{row['source'][:22]:22} K {row['K']:<4}{models}  {chosen:>11}  {refused:3} of {row['sizes']:<3} "
                  f"{row['chosen']:14} {', '.join(row['found'])}")  # fmt: skip
            if not len(kept) or refused > row["sizes"] / 3:
                print(f"{'':24}{row['doubts'][0]}")
        kept = np.concatenate([row["kept"] for row in rows])
        some = [row["kept"] for row in rows if len(row["kept"])]
        for m in MODELS:
            medians, worst = zip(*(row[m] for row in rows), strict=True)
            print(f"{m}: median of medians {100 * np.median(medians):.1f} %, worst {100 * max(worst):.0f} %")
        print(
            f"chosen: median of all {100 * np.median(kept):.1f} %, largest median of a sweep "
            f"{100 * max(np.median(k) for k in some):.1f} %, beyond 30 %: {sum(kept > 0.3)} of {len(kept)} predictions in "
            f"{sum(k.max() > 0.3 for k in some)} of {len(some)} sweeps; refused {sum(len(r['doubts']) for r in rows)} of "
            f"{sum(r['sizes'] for r in rows)} sizes, {len(rows) - len(some)} sweeps wholly"
        )
        for name, curve in series(half):
            errors = {m: curve.error(m, "K") for m in curve.models}
            said = ", ".join(f"{m} {100 * a:.1f} / {100 * b:.0f}" for m, (a, b) in errors.items())
            print(f"K left out, {name}, K = {curve.sweep.Ks}: {said}; used {curve.model_between}.")
            print(f"{'':24}{' '.join(curve.found.values())}")


if __name__ == "__main__":
    main()
