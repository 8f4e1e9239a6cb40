"""Leases of windows, as a model that is explored whole (standard library only).

One partition of two windows, 0 and 1, and a row that upstream moves from one to the other, newer each
time. Two processes take a window, or both at once, capture what upstream says, claim, and make it
official; either may stand still for as long as it likes and wake up when its lease has run out. What
lies between these steps, and everything of one window, is in `protocol.py`: there a window is a
partition.

Invariant 1: nobody writes under a lease while another works who was given a moment of it later.
Invariant 2: a row that is official in another window does not give way to an older one.
"""

from collections import deque
from typing import NamedTuple

MUTATIONS = {
    "lapsed_unfenced": "who is given a moment leaves the tokens that were given for it before",
    "apart": "windows that share a moment are leased side by side",
    "numbers_again": "a window that was released is counted from the beginning",
    "unasked": "what became official meanwhile is not looked at",
    "looked_late": "what was official is noted at the claim, not before upstream is asked",
}
LEASES = ((0,), (1,), (0, 1))  # two windows, and the whole


class Row(NamedTuple):
    where: int
    revision: int


class Lease(NamedTuple):
    token: int = 0
    holder: int | None = None
    lapsed: bool = False


class Proc(NamedTuple):
    step: str = "idle"
    lease: int = 0
    token: int = 0
    seen: int = 0
    left: int = 0  # runs that may still begin: fewer than another's, it was given its lease later
    row: Row | None = None


class State(NamedTuple):
    up: Row
    official: Row
    made: tuple[int, ...] = ()  # the lease that each generation was made under
    leases: tuple[Lease, ...] = (Lease(),) * 3
    procs: tuple[Proc, ...] = (Proc(),) * 2
    moves: int = 2
    lapses: int = 1
    runs: int = 4


def put(seq, i, item):
    return (*seq[:i], item, *seq[i + 1 :])


def overlap(one: int, other: int) -> bool:
    return bool(set(LEASES[one]) & set(LEASES[other]))


class Model:
    def __init__(self, mutation: str = "") -> None:
        self.mutation = mutation

    def taken(self, s: State, p: int, k: int) -> State | None:
        near = [j for j in range(3) if (j == k if self.mutation == "apart" else overlap(j, k))]
        if any(s.leases[j].holder is not None and not s.leases[j].lapsed for j in near):
            return None
        number = 1 + (
            s.leases[k].token
            if self.mutation == "numbers_again"
            else max(lease.token for lease in s.leases)
        )
        leases = s.leases
        for j in near if self.mutation != "lapsed_unfenced" else ():
            leases = put(leases, j, Lease(number, leases[j].holder, True))
        leases = put(leases, k, Lease(number, p))
        proc = Proc("capture", k, number, len(s.made), s.runs)
        return s._replace(leases=leases, procs=put(s.procs, p, proc), runs=s.runs - 1)

    def fenced(self, s: State, p: int) -> bool:
        pr = s.procs[p]
        lease = s.leases[pr.lease]
        return (lease.token, lease.holder is None) != (pr.token, False)

    def next(self, s: State):
        for p, pr in enumerate(s.procs):
            yield from self.step(s, p, pr)
        if s.moves:
            up = Row(1 - s.up.where, s.up.revision + 1)
            yield (
                f"upstream moves the row to window {up.where}",
                s._replace(up=up, moves=s.moves - 1),
            )
        for k, lease in enumerate(s.leases) if s.lapses else ():
            if lease.holder is not None and not lease.lapsed:
                leases = put(s.leases, k, lease._replace(lapsed=True))
                yield f"lease {LEASES[k]} runs out", s._replace(leases=leases, lapses=s.lapses - 1)

    def step(self, s: State, p: int, pr: Proc):
        rest = s._replace(procs=put(s.procs, p, Proc()))
        if pr.step == "idle":
            for k in range(3) if s.runs else ():
                if (found := self.taken(s, p, k)) is not None:
                    yield f"{p} takes {LEASES[k]}", found
        elif pr.step == "capture":
            row = s.up if s.up.where in LEASES[pr.lease] else None
            yield (
                f"{p} captures {row}",
                s._replace(procs=put(s.procs, p, pr._replace(step="claim", row=row))),
            )
        elif self.fenced(s, p):
            yield f"{p} is fenced", rest
        elif pr.step == "claim":
            seen = len(s.made) if self.mutation == "looked_late" else pr.seen
            yield (
                f"{p} claims",
                s._replace(procs=put(s.procs, p, pr._replace(step="merge", seen=seen))),
            )
        else:
            yield self.merged(s, p, pr, rest)

    def merged(self, s: State, p: int, pr: Proc, rest: State):
        for q, other in enumerate(s.procs):
            later = q != p and other.step != "idle" and overlap(other.lease, pr.lease)
            if later and other.left < pr.left and not self.fenced(s, q):
                raise AssertionError(1, f"{p} writes under {LEASES[pr.lease]}, {q} was given it")
        kept = s.leases[pr.lease]
        freed = Lease(0 if self.mutation == "numbers_again" else kept.token)
        rest = rest._replace(leases=put(s.leases, pr.lease, freed))
        if pr.row is None:
            return f"{p}: no such row", rest._replace(made=(*s.made, pr.lease))
        overtaken = any(k != pr.lease for k in s.made[pr.seen :]) and self.mutation != "unasked"
        if overtaken and s.official != pr.row and s.official.where not in LEASES[pr.lease]:
            return f"{p}: its row is official elsewhere, superseded", rest
        if s.official.where not in LEASES[pr.lease] and s.official.revision > pr.row.revision:
            raise AssertionError(2, f"{s.official} gives way to {pr.row}")
        return f"{p}: {pr.row} is official", rest._replace(
            official=pr.row, made=(*s.made, pr.lease)
        )


def explore(mutation: str = "") -> tuple[int, list[str]]:
    """How many states there are, and the shortest way to one that breaks an invariant."""
    model, first = Model(mutation), State(Row(0, 0), Row(0, 0))
    came: dict[State, tuple[State, str] | None] = {first: None}
    todo = deque([first])
    while todo:
        state = todo.popleft()
        steps = model.next(state)
        while True:
            try:
                said, found = next(steps)
            except StopIteration:
                break
            except AssertionError as broken:
                return len(came), [
                    *trace(came, state),
                    f"invariant {broken.args[0]}: {broken.args[1]}",
                ]
            if found not in came:
                came[found] = (state, said)
                todo.append(found)
    return len(came), []


def trace(came, state: State) -> list[str]:
    said: list[str] = []
    while (before := came[state]) is not None:
        state, word = before
        said.append(word)
    return said[::-1]


if __name__ == "__main__":
    for name in ("", *MUTATIONS):
        states, broken = explore(name)
        print(f"{name or 'as designed'}: {states:,} states", *broken, sep="\n  ")
