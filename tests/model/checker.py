"""Explicit-state checker for `protocol.py`: breadth first, so the first trace found is a shortest
one; scenarios; report.
"""

from __future__ import annotations

import time

from tests.model.protocol import FIXES, MUTATIONS, Model, Violation


def explore(model, only=None):
    """Visit every reachable state. `only`: look for a violation of this invariant and pass over
    others.
    """
    start = model.initial()
    number, queue, parent, system_edges, rest, edges = {start: 0}, [start], [None], [], 0, 0

    def result(bad=None, at=None, last=None):
        names = [last] if last else []
        while at is not None and parent[at] is not None:
            at, label = parent[at]
            names.append(label)
        return {
            "states": len(queue),
            "edges": edges,
            "rest": rest,
            "bad": bad,
            "trace": names[::-1],
        }

    for me, s in enumerate(queue):
        last = None
        try:
            acts = model.system(s)
            if not acts:
                rest, last = rest + 1, "at rest"
                model.check_rest(s)
            own = []
            for k, (label, t) in enumerate(acts + model.world(s)):
                model.check_step(s, t)
                edges += 1
                n = number.get(t)
                if n is None:
                    n = number[t] = len(queue)
                    queue.append(t)
                    parent.append((me, label))
                if k < len(acts):
                    own.append(n)
            system_edges.append(own)
        except Violation as v:
            if only in (None, v.args[0]):
                return result(v.args, me, last)
            system_edges.append([])
    if cyclic(system_edges):
        return result((5, "the system can run in a circle for ever"))
    return result()


def cyclic(graph):
    """Without a circle of system actions, every fair execution of a finite graph comes to rest."""
    into = [0] * len(graph)
    for n in (n for out in graph for n in out):
        into[n] += 1
    free = [n for n, k in enumerate(into) if not k]
    for m in (m for n in free for m in graph[n]):  # `free` grows while it is read
        into[m] -= 1
        if not into[m]:
            free.append(m)
    return len(free) < len(graph)


B, NO, B0 = ((0, "b"),), frozenset(), frozenset({(0, "b")})
ABA, ABC, ABAB, BOTH = (*B, (0, "a")), (*B, (0, "c")), (*B, (0, "a"), (0, "b")), (*B, (1, "b"))
BAD, X = ((0, "x"), *B), frozenset("x")  # what the checks refuse, then what they take
F = {"crash": 1, "expire": 1}
# every scenario explores every interleaving of two workers with this much of the world
SCENARIOS: dict[str, dict[str, object]] = {
    "erasure": dict(F, script=B, erase=1), "erasure, rollback": {"script": B, "crash": 1, "erase": 1, "rollback": 1},
    "a bad input": dict(F, script=BAD, bad=X), "a bad input, a commit fails": {"script": BAD, "bad": X, "refuse": 2},
    "a-b-a, faults": dict(F, script=ABA, fail=1), "a-b-c, faults": dict(F, script=ABC),
    "a-b-a-b": {"script": ABAB, "tick": 1, "crash": 1}, "two partitions": dict(F, script=BOTH),
    "two partitions, rollback": {"script": BOTH, "crash": 1, "rollback": 1}, "rollback": dict(F, script=B, rollback=1, tick=1),
    "rollback, a-b-c": {"script": ABC, "crash": 1, "rollback": 1}, "withdrawal": dict(F, script=B, withdraw=1, tick=1),
    "withdrawal, a-b-a-b": {"script": ABAB, "crash": 1, "withdraw": 1},
    "rollback and withdrawal": {"script": B, "crash": 1, "rollback": 1, "withdraw": 1, "tick": 1},
    "approval, a-b-a": {"script": ABA, "approval": True, "approve": 2, "crash": 1, "tick": 1},
    "approval, faults": dict(F, script=B, approval=True, approve=2),
    "approval, two partitions": {"script": BOTH, "approval": True, "approve": 3, "crash": 1},
    "approval, rollback": {"script": B, "approval": True, "approve": 2, "crash": 1, "rollback": 1, "tick": 1},
    "denied, then allowed": {"script": B, "policy": (B0, NO), "crash": 1, "tick": 1},
    "allowed, then denied": dict(F, script=B, policy=(NO, B0)), "force": {"script": ABA, "force": 1, "crash": 1},
    "force, rollback": {"script": B, "force": 1, "rollback": 1, "crash": 1}, "reindex": dict(F, script=B, lose=1),
    "a commit fails": {"script": ABA, "refuse": 2}, "a commit fails, rollback": {"script": B, "refuse": 1, "rollback": 1, "crash": 1, "tick": 1},
    "reindex, a-b-a": {"script": ABA, "lose": 1, "crash": 1}, "reindex, rollback": {"script": B, "lose": 1, "rollback": 1, "crash": 1},
}  # fmt: skip
S01, S0 = {"staged": (0, 1), "plain": ()}, {"staged": (0,), "plain": (1,)}
EITHER = {"staged": (0,), "plain": (0, 1)}  # a backfill and an ordinary run want the same partition
SCENARIOS |= {
    "staged, faults": dict(F | S0, script=B, fail=1), "staged, two partitions": dict(F | S01, script=BOTH),
    "staged, a-b-c": dict(S0, script=ABC, crash=1), "staged, a-b-a": dict(S0, script=ABA, crash=1, expire=1),
    "staged or plain": dict(EITHER, script=ABC, crash=1), "staged or plain, faults": dict(F | EITHER, script=B),
    "staged beside plain": dict(S0, script=BOTH, crash=1), "staged, rollback": dict(F | S0, script=B, rollback=1, tick=1),
    "staged, two partitions, rollback": dict(S01, script=BOTH, crash=1, rollback=1),
    "staged, withdrawal": dict(F | S0, script=B, withdraw=1, tick=1),
    "staged or plain, withdrawal": dict(EITHER, script=ABAB[:2], crash=1, withdraw=1),
    "staged, reindex": dict(F | S0, script=B, lose=1), "staged, two partitions, reindex": dict(S01, script=BOTH, lose=1),
    "staged, denied, then allowed": dict(S0, script=B, policy=(B0, NO), crash=1, tick=1),
    "two staged, one denied": dict(S01, script=BOTH, policy=(B0, NO), crash=1),
    "staged, allowed, then denied": dict(F | S0, script=B, policy=(NO, B0)),
    "staged, a commit fails": dict(S01, script=BOTH, refuse=1), "staged, approval": dict(S01, script=BOTH, approval=True, approve=2, crash=1),
    "staged, a bad input": dict(F | S0, script=BAD, bad=X), "staged, force": dict(S0, script=B, force=1, rollback=1, crash=1),
}  # fmt: skip
SCENARIOS |= {
    "erasure, a-b-c": {"script": ABC, "crash": 1, "erase": 1},
    "erasure, a-b-a-b": {"script": ABAB, "erase": 1, "tick": 1}, "erasure, two partitions": {"script": BOTH, "expire": 1, "erase": 1},
    "erasure, reindex": {"script": B, "erase": 1, "lose": 1},
    "erasure, staged": dict(S0, script=B, crash=1, erase=1), "two rollbacks": {"script": ABC, "crash": 1, "rollback": 2},
}  # fmt: skip
SCENARIOS |= {
    "withdrawal, undone": {"script": B, "crash": 1, "withdraw": 1, "lift": 1, "tick": 1},
    "withdrawal, undone, a-b-a-b": {"script": ABAB, "withdraw": 1, "lift": 1},
    "staged, two withdrawals, one undone": dict(S0, script=B, withdraw=2, lift=1, tick=1),
}  # fmt: skip
SCENARIOS |= {
    "put aside": dict(F, script=B, aside=1), "put aside, a-b-c": {"script": ABC, "crash": 1, "aside": 1, "tick": 1},
    "put aside, rollback": {"script": B, "aside": 1, "rollback": 1, "tick": 1}, "staged, put aside": dict(S0, script=B, crash=1, aside=1, tick=1),
}  # fmt: skip
PEOPLE = {"script": B, "approval": True, "approve": 1, "crash": 1}
WITNESS = {  # the smallest world in which each amendment, or seeded mistake, matters
    "channel_head": {"script": B, "rollback": 1}, "settle": {"script": ABC}, "base_gen": {"script": BOTH, "rollback": 1},
    "stale_proposal": dict(PEOPLE, script=BOTH), "retrigger": {"script": BOTH, "crash": 1}, "promote_job": {"script": B, "crash": 1},
    "approved_noop": PEOPLE, "noop_closes": {"script": ABA, "crash": 1}, "denied_noop": {"script": B, "policy": (B0,), "tick": 1},
    "hold": {"script": B, "rollback": 1}, "withdraw_one": {"script": B, "withdraw": 1, "crash": 1}, "again": {"script": B, "tick": 1},
    "pin": {"script": BOTH, "crash": 1}, "cas": {"script": ABC}, "force_closes": {"script": B, "force": 1, "crash": 1},
    "receipt_once": {"script": B, "crash": 1}, "void_epoch": {"script": B, "lose": 1}, "reindex_outbox": {"script": B, "lose": 1},
    "projection": {"script": B, "rollback": 1}, "no_fence": {"script": B, "expire": 1}, "epochless": {"script": B, "fail": 1},
    "ack_early": {"script": B, "crash": 1}, "noop_any_key": {"script": ABA}, "project_early": {"script": B},
    "approval_reusable": {"script": ABAB, "approval": True, "approve": 2, "tick": 1}, "deliver_early": {"script": B},
    "replace_gen": {"script": B, "lose": 1}, "lineage_late": {"script": B}, "unsealed": {"script": B},
    "early_read": {"script": ABA}, "stage_unpinned": dict(S01, script=BOTH, crash=1), "parts_early": dict(S0, script=BOTH),
    "part_lost": dict(S0, script=BOTH), "older_wins": dict(S0, script=ABC),
    "lift_shared": dict(S0, script=B, withdraw=2, lift=1, tick=1),
    "stage_unheld": dict(S0, script=B, withdraw=1), "stage_unsettled": dict(EITHER, script=ABC),
    "erase_intent": {"script": B, "erase": 1, "crash": 1}, "erase_again": {"script": B, "erase": 1, "expire": 1, "tick": 1},
    "erase_early": {"script": ABC, "erase": 1, "crash": 1}, "rollback_back": {"script": B, "rollback": 2},
    "erase_open": {"script": BOTH, "erase": 1}, "erase_unsettled": {"script": BOTH, "erase": 1, "expire": 1},
    "set_denied_again": dict(S0, script=B, policy=(B0,), tick=1), "stage_unacked": dict(S0, script=B, crash=1),
    "memory_first": {"script": B, "refuse": 1}, "aside_told": {"script": B, "aside": 1},
    "aside_late": {"script": B, "aside": 1}, "check_first": {"script": BAD, "bad": X},
    "resume_unchecked": {"script": BAD, "bad": X, "crash": 1},
}  # fmt: skip


def show(name, r, steps):
    bad = (
        f"invariant {r['bad'][0]}: {r['bad'][1]} (after {len(r['trace'])} actions)"
        if r["bad"]
        else "holds"
    )
    print(
        f"  {name:34}{r['states']:>9,} states {r['edges']:>10,} actions {r['rest']:>6,} at rest  {bad}",
        flush=True,
    )
    for number, label in enumerate(
        r["trace"] + ["VIOLATION: " + r["bad"][1]] if steps and r["bad"] else (), 1
    ):
        print(f"      {number:3} {label}")


def main(args):
    began, wrong, steps = time.time(), [], "--traces" in args
    if "--written" in args:  # the text before any amendment; each invariant looked for on its own
        print("design as first written, shortest violation of each invariant")
        for number in range(1, 14):
            found = [explore(Model(set(), sc), number) for sc in WITNESS.values()]
            best = min((r for r in found if r["bad"]), key=lambda r: len(r["trace"]), default=None)
            total = {k: sum(r[k] for r in found) for k in ("states", "edges", "rest")}
            show(f"invariant {number}", best or dict(total, bad=None, trace=[]), True)
        return 0
    print("amended design: every invariant in every reachable state")
    for name, sc in SCENARIOS.items():
        if "--deep" in args:
            sc = dict(sc, crash=sc["crash"] + 1)
        r = explore(Model(set(FIXES), sc))
        show(name, r, True)
        wrong += [name] if r["bad"] else []
    for title, names, design in (
        ("each amendment taken away: the model must object", FIXES, lambda f: set(FIXES) - {f}),
        (
            "seeded mutations of the amended design: the model must object",
            MUTATIONS,
            lambda m: set(FIXES) | {m},
        ),
    ):
        print(title)
        for name in names:
            r = explore(Model(design(name), WITNESS[name]))
            show(name, r, steps)
            wrong += [] if r["bad"] else [name]
    print(
        f"{'UNEXPECTED: ' + ', '.join(wrong) if wrong else 'all as expected'}, {time.time() - began:.0f} s"
    )
    return 1 if wrong else 0
