"""Who is to blame when a group of workers stands still.

Each waiting rank points at the ranks it waits for. Following the arrows ends either at a rank that is not waiting
(it returned, or is busy with its own code): that one is missing; or in a circle: a deadlock that all its members share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from labkit.comm.errors import ranks_phrase

RUNNING, SENDING, RECEIVING, MEETING, FINISHED = range(5)
ANY = -1  # the peer of a receive from anyone


@dataclass(frozen=True)
class State:
    """What one rank is doing.

    op: one of RUNNING, SENDING, RECEIVING, MEETING (in a barrier), FINISHED.
    peers: the ranks it cannot go on without (empty: nothing is missing, it will go on by itself). A receive from
        anyone names all that may still come, and one of them is enough.
    point: how many synchronisation points it has reached; name: of the last one; inside: whether it is still in it.
    """

    op: int
    peers: tuple[int, ...] = ()
    point: int = 0
    name: str = ""
    inside: bool = False

    @property
    def stuck(self) -> bool:
        return bool(self.peers) and self.op in (SENDING, RECEIVING, MEETING)


def standstill(states: list[State]) -> bool:
    """Whether nothing can ever happen again: somebody is stuck, and nobody is on the way."""
    return any(s.stuck for s in states) and all(s.stuck or s.op == FINISHED for s in states)


def blame(states: list[State]) -> tuple[tuple[int, ...], str]:
    """The ranks to blame for what the stuck ranks wait for, and one sentence that says so."""
    states = [_still_hoping(s, states) for s in states]
    missing: set[int] = set()
    for k, s in enumerate(states):
        if s.stuck:
            missing |= _roots(states, k)
    if not missing:
        circle = _circle(states)
        chain = ", ".join(f"rank {k} {_doing(states[k])}" for k in circle)
        return tuple(sorted(circle)), (
            f"deadlock: {ranks_phrase(circle)} wait for one another in a circle ({chain}); "
            f"let one side of each pair receive first, or use sendrecv"
        )
    finished = {k for k in missing if states[k].op == FINISHED} or missing
    culprit = min(finished, key=lambda k: (states[k].point, k))
    culprits = tuple(k for k in sorted(finished) if states[k].point == states[culprit].point)
    waiting = [k for k, s in enumerate(states) if s.stuck]
    did = "returned" if states[culprit].op == FINISHED else "did not come on"
    late = [k for k in waiting if states[k].inside and states[k].point > states[culprit].point]
    if late:
        s = states[late[0]]
        return culprits, (
            f"{ranks_phrase(culprits)} {did} without joining synchronisation point {s.point} ({s.name}), "
            f"in which {ranks_phrase(late)} wait{'s' * (len(late) == 1)}"
        )
    k = next(k for k in waiting if culprit in states[k].peers)
    if states[k].op == RECEIVING and len(states[k].peers) > 1:
        return culprits, (
            f"{ranks_phrase(culprits)} {did} without sending what rank {k} waits to receive from any of them"
        )
    what = "receiving what" if states[k].op == SENDING else "sending what"
    end = "to send it" if states[k].op == SENDING else "to receive from it"
    where = f", at synchronisation point {states[k].point} ({states[k].name})" if states[k].inside else ""
    return culprits, f"rank {culprit} {did} without {what} rank {k} waits {end}{where}"


def _still_hoping(s: State, states: list[State]) -> State:
    """Who receives from anyone waits for those that have not returned, as long as there are any."""
    there = tuple(k for k in s.peers if states[k].op != FINISHED)
    return replace(s, peers=there) if s.op == RECEIVING and there else s


def _doing(s: State) -> str:
    if s.op == MEETING:
        return "waits in a barrier"
    if len(s.peers) > 1:
        return "waits to receive from anyone"
    return f"waits to {'send to' if s.op == SENDING else 'receive from'} rank {s.peers[0]}"


def _roots(states: list[State], k: int) -> set[int]:
    seen, todo, roots = {k}, [k], set()
    while todo:
        s = states[todo.pop()]
        for p in s.peers:
            if not states[p].stuck:
                roots.add(p)
            elif p not in seen:
                seen.add(p)
                todo.append(p)
    return roots


def _circle(states: list[State]) -> list[int]:
    k = next(k for k, s in enumerate(states) if s.stuck)
    path: list[int] = []
    while k not in path:
        path.append(k)
        k = states[k].peers[0]
    return path[path.index(k) :]


def odd_ones(point: int, brought: dict[int, str]) -> tuple[tuple[int, ...], str]:
    """Who disagrees at a synchronisation point, by majority.

    brought: per rank, what it came with (``"ring all-reduce of 100 float32"``). The ranks outside the largest group
    of equals are to blame; where two groups are equally large, all are.
    """
    groups: dict[str, list[int]] = {}
    for k in sorted(brought):
        groups.setdefault(brought[k], []).append(k)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    tie = len(ordered[0][1]) == len(ordered[1][1])
    odd = [k for _, ranks in (ordered if tie else ordered[1:]) for k in ranks]
    parts = [f"{ranks_phrase(r)} came to {what}" for what, r in reversed(ordered)]
    return tuple(sorted(odd)), f"the ranks disagree at synchronisation point {point}: {', but '.join(parts)}"
