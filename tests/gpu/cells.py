"""Run those cells of a lab that compute on a device, on any device: python tests/gpu/cells.py DEVICE [LAB ...]

A lab's cells are run as they stand, in a simulated world whose workers have that device: the last ones named here, and of
those before them what they need. Says on standard error, as JSON, what went wrong in each lab, or "" where its own
assertions held.
"""

from __future__ import annotations

import json
import os
import symtable
import sys
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "book" / "tools"), str(Path(__file__).parent)]

import myst  # noqa: E402
import pretend  # noqa: E402

import labkit  # noqa: E402
from labkit import machine  # noqa: E402

#: By lab, a line of each of its last cells.
LAST = {
    "10_1_empirical_risk": ("np.array_equal(g, by_torch[0])",),
    "10_2_minibatch_sgd": ("gap_of_torch = ",),
    "2_2_overlap": ("shares = when_ready(",),
    "10_4_asynchronous_sgd": ("assert off < 1e-12",),
    "10_5_all_reduce": ("tensors = launch(add_up_tensors",),
    "10_6_stale_gradients": ("shrinks = all_at_once(",),
    "10_7_local_steps": ("launch(in_torch",),
    "10_7_finale": ("path = launch(anchors", "real = launch(anchors"),
    "10_8_large_batches": ("def sharp(net, w)", "def at_the_edge("),
}
#: By lab, what is asked after them, where the lab's own next cells would take long.
ASKED = {
    "10_8_large_batches": "assert sharp(net, fresh(0)) > 100 and (at_the_edge(0, 0.4, 0.0, T=25) > 3).all()"
}


def names(code: str) -> tuple[set[str], set[str]]:
    """The names that a cell's code makes, and those that it takes from cells before it."""
    made, taken = set(), set()
    tables = [symtable.symtable(code, "cell", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        outermost = table.get_type() == "module"
        made |= {
            s.get_name() for s in table.get_symbols() if outermost and (s.is_assigned() or s.is_imported())
        }
        taken |= {s.get_name() for s in table.get_symbols() if outermost or s.is_global()}
    return made, taken - made


def needed(cells: list[str], last: tuple[str, ...]) -> list[str]:
    """The cells in which the lines ``last`` stand, and before them those that make what they take, in order."""
    chosen = {i for i, code in enumerate(cells) if any(line in code for line in last)}
    assert len(chosen) == len(last), f"not one cell for each of {last}"
    pending = sorted(chosen)
    while pending:
        i = pending.pop()
        for name in names(cells[i])[1]:
            makers = [j for j in range(i) if name in names(cells[j])[0]]
            if makers and makers[-1] not in chosen:
                chosen.add(makers[-1])
                pending.append(makers[-1])
    return [cells[i] for i in sorted(chosen)]


def run(lab: str, device: str) -> None:
    """Run the lab's cells on the device; whatever they raise is raised."""

    def launch(f: Any, K: int, *args: Any, world: Any = "simulated", **kwargs: Any) -> Any:
        def there(comm: Any, *args: Any, **kwargs: Any) -> Any:
            comm.device = device
            if device.startswith("pretend"):
                pretend.stay_in_this_thread()
            return f(comm, *args, **kwargs)

        simulated = world if isinstance(world, labkit.Simulated) else "simulated"
        return labkit.launch(there, K, *args, world=simulated, **kwargs)

    space: dict[str, Any] = {"__name__": "lab"}
    cells = list(myst.codes((ROOT / "notebooks" / f"{lab}.md").read_text(encoding="utf-8")))
    for code in needed([*cells, ASKED.get(lab, "")], (*LAST[lab], *filter(None, [ASKED.get(lab)]))):
        exec(compile(code, lab, "exec"), space)
        space["launch"] = launch


def main(device: str, labs: list[str]) -> None:
    import matplotlib

    matplotlib.use("agg")
    os.chdir(ROOT / "notebooks")
    if device.startswith("pretend"):
        pretend.use()
        pretend.stay_in_this_thread()
    machine.device = lambda: device
    for lab in labs or LAST:
        try:
            run(lab, device)
            print(json.dumps({lab: ""}), file=sys.stderr, flush=True)
        except Exception:
            print(json.dumps({lab: traceback.format_exc()}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
