"""Executable specification of the kfm run protocol; `checker.py` explores it (standard library
only).

    python protocol.py            amended design, one ablation per amendment, seeded mutations
    python protocol.py --traces   the same, with the shortest trace of every violation
    python protocol.py --deep     one crash more in every scenario (minutes, some GB)
    python protocol.py --written  only: the design without any amendment, one shortest trace per broken invariant

A backfill's run ends STAGED: part durable, job acked, lease of its partition free. An assembling
run (no partition, lease of the dataset) pins base and STAGED parts, is promoted like any run, and
the transaction that makes it COMMITTED makes its parts so.

One action = one durable operation: a store transaction, or the creation of one file. Whatever a
process only remembers is lost by a crash. A frozen process is one that is not scheduled: an action
of its own may come any time later, also after its lease was taken over (zombie). `design` is a set
of switches: FIXES are the amendments, MUTATIONS are seeded mistakes. Files that are
content-addressed and unread before a store row names them (raw, parts, processed) commute with
every other action; they are merged into the action that names them. README.md explains invariants
and results.
"""

from __future__ import annotations

import sys
from collections import namedtuple

FIXES = {  # switch -> what the amended text says (without it: the text as first written)
    "channel_head": "NOOP compares with the head generation of the channel, not with the last COMMITTED ledger row",
    "settle": "a run whose promote has named a generation is settled (finished or voided) before another claims",
    "base_gen": "promote may only name the generation right after the one its candidate was assembled on",
    "stale_proposal": "a proposal on an older generation is SUPERSEDED and triggered again, never a NOOP",
    "retrigger": "closing a promote as SUPERSEDED puts its partition's job in the same transaction",
    "promote_job": "PROPOSED and its promote job are one transaction",
    "approved_noop": "a NOOP that names an approved proposal puts its promote job",
    "noop_closes": "a NOOP closes unfinished runs of its partition as SUPERSEDED",
    "denied_noop": "a key REJECTED under the same spec, policy and base is a NOOP that names the denial",
    "hold": "a rollback holds what it left: the same content is a NOOP that names the rollback until forced",
    "withdraw_one": "the withdrawal generation itself carries the suppression rule",
    "again": "a put on a running job marks it; its ack queues it again",
    "pin": "the PLAN of assemble pins base generation and parts",
    "cas": "every ledger transition names the state it leaves",
    "force_closes": "--force closes an unfinished journal as SUPERSEDED, which raises the epoch",
    "receipt_once": "a sealed receipt that exists is read back, never sealed again",
    "void_epoch": "reindex appends a void generation, which takes the number any lost intent had named",
    "reindex_outbox": "reindex rebuilds the outbox too",
    "projection": "every tick renders again a projection whose generation is not the head's",
    "erase_intent": "an erasure is a plan that is durable before its generation; whoever comes next finishes it before any other work",
    "aside_told": "a promote job that failed too often before it named a generation is put aside and says so; the next run takes it up",
    "check_first": "the PLAN is journaled when the input has passed its checks, not with the claim; what is refused has none",
    "erase_again": "what a frozen holder writes after an erasure, and no run names, is found and destroyed too",
}
MUTATIONS = {
    "no_fence": "store writes do not check the token",
    "epochless": "wal_id without epoch: a retrigger finds a finished journal",
    "ack_early": "a job is acked when taken",
    "noop_any_key": "NOOP against any committed key, not only the head's",
    "project_early": "projections before the commit point",
    "approval_reusable": "an approval is good for any generation",
    "deliver_early": "the outbox is delivered without looking for the generation",
    "replace_gen": "the generation file is replaced instead of created exclusively",
    "lineage_late": "lineage and outbox are written after the commit point",
    "early_read": "the channel is read before the claim's transaction, not inside it",
    "unsealed": "receipts are sealed after the commit point",
    "stage_unpinned": "an assembling run that is resumed takes the parts there happen to be, not those its PLAN pinned",
    "parts_early": "parts are COMMITTED when their assembling run is proposed",
    "part_lost": "an assembling run that is superseded takes its parts with it",
    "older_wins": "a newer part of a partition does not supersede the older one, which is assembled",
    "stage_unheld": "neither the pin nor the judgement of an assembling run looks at what withdrawals keep out",
    "stage_unsettled": "a claim closes a staged part without settling or closing the assembling run that pins it",
    "set_denied_again": "a denied set of parts is assembled again",
    "rollback_back": "a rollback goes to the last other version, also to one that a rollback left",
    "erase_early": "the bytes are destroyed when the plan is durable, before its generation is there",
    "erase_unsettled": "an erasure closes a run that has named the next generation without taking the number",
    "erase_open": "an erasure leaves the runs open whose bytes it destroys",
    "memory_first": "a process goes on as if a commit that was refused had been taken",
    "lift_shared": "undoing a withdrawal lets in what another withdrawal keeps out too",
    "aside_late": "a promote job is put aside although its run has named a generation",
    "resume_unchecked": "a run that is resumed after its claim goes on as if its input had passed the checks",
    "stage_unacked": "STAGED and the ack of its job are two transactions, the ack first",
}

# kind: P promote, F forced promote, R rollback, W withdraw, L undoing a withdrawal, E withdraw and
# erase, V void; rule: content withdrawn before it was ever official
Gen = namedtuple("Gen", "kind version run ev prev rule", defaults=((),))
# ledger row + fold of its journal; an assembling run has no partition: c is what its parts bring,
# pins are their runs
Run = namedtuple(
    "Run",
    "p c basev state part base cand intent promo forced pol staged pins planned",
    defaults=(0, (), 0),
)
# volatile: lost by a crash
Proc = namedtuple("Proc", "pc p run tp td c base ver ev out staged", defaults=(0,))
State = namedtuple(
    "State",
    "up chan runs jobs leases procs recs cands outbox sent lineage proj pol appr rules lastc parts left ops ticked epoch down "
    # plans: generations that are to erase, negative when they have; op: (next step, number) of the
    # operator who erases; bytes: content on disk
    "plans op bytes",
)
IDLE = Proc("idle", None, None, None, None, None, None, None, None, None)
D = 2  # lease index of the dataset; 0 and 1 are the partitions
OPEN = ("CLAIMED", "PROPOSED")
ASIDE = 2  # `promo` of a run whose promote job failed too often; 1: the job waits or is worked
BUDGET = (
    "change",
    "crash",
    "expire",
    "rollback",
    "withdraw",
    "policy",
    "approve",
    "tick",
    "force",
    "lose",
    "fail",
    "erase",
    "refuse",
    "lift",
    "aside",
)
FILE_STEPS = {"cand", "seal", "star", "proj", "void", "cap"}  # need no store


class Violation(Exception):
    """An invariant is broken; args: number, sentence."""


def need(ok, number, sentence):
    if not ok:
        raise Violation(number, sentence)


def put_at(seq, i, item):
    return (*seq[:i], item, *seq[i + 1 :])


class Model:
    """The protocol under one design (set of switches) and one scenario (fault budget, upstream
    script, policy).
    """

    def __init__(self, design, scenario):
        self.on = design
        self.sc = scenario
        self.script = scenario.get("script", ())
        # successive policies: sets of denied (partition, content)
        self.policy = scenario.get("policy", (frozenset(),))
        self.people = scenario.get("approval", False)
        self.staged = scenario.get("staged", ())  # partitions whose jobs a backfill may take
        self.bad = scenario.get("bad", frozenset())  # content that the checks of an input refuse
        self.plain = scenario.get("plain", (0, 1))  # partitions whose jobs an ordinary run may take
        self.order = ["line", "seal", "star", "proj", "done"]  # promote after its intent
        for mutation, order in (("project_early", "line seal proj star done"), ("lineage_late", "seal star line proj done"),
                                ("unsealed", "line star seal proj done")):  # fmt: skip
            self.order = order.split() if mutation in design else self.order

    def initial(self):
        first = Gen("P", ("a", "a"), -1, None, 0)
        size = {**self.sc, "change": len(self.script), "policy": len(self.policy) - 1}
        left = tuple(size.get(k, 0) for k in BUDGET)
        none = frozenset()
        kept = frozenset({(0, "a"), (1, "a")}) if self.sc.get("erase") else none
        return State(("a", "a"), (first,), (), (("-", 0, 0),) * 2, ((0, 0),) * 3, (IDLE, IDLE), (), none, none, none,
                     none, 0, 0, none, none, ("a", "a"), ("a", "a"), left, 0, 0, 0, 0, none, None, kept)  # fmt: skip

    # ---- small functions--------------------------------------------------------------------------
    def held(self, s, ghost=False):
        """What rollbacks (until forced) and withdrawals (for ever) keep out: a fold over the
        channel.
        """
        hold, by = set(), {}
        for i, g in enumerate(s.chan):
            if g.kind in "RWE":
                left = s.chan[i - 1].version
                gone = {(p, left[p]) for p in (0, 1) if left[p] != g.version[p]}
                if g.kind in "WE":
                    by[i] = gone | set(g.rule)
                else:
                    hold |= gone
            # a person undoes one withdrawal; what another keeps out as well stays out
            if g.kind == "L":
                lifted = by.pop(g.rule[0])
                if "lift_shared" in self.on and not ghost:
                    by = {k: kept - lifted for k, kept in by.items()}
            if g.kind == "F":
                hold -= self.brings(s.runs[g.run])
        suppress = set().union(*by.values())
        if not ghost:
            hold = hold if "hold" in self.on else set()
            suppress = suppress if "withdraw_one" in self.on else set(s.rules)
        return hold, suppress

    def brings(self, r):
        """What a run would bring: (partition, content)."""
        return set(r.c) if r.p is None else {(r.p, r.c)}

    def staged_now(self, s):
        """The parts an assemble takes: every STAGED one, in the order of partitions."""
        found = sorted((r.p, i) for i, r in enumerate(s.runs) if r.state == "STAGED")
        return tuple(i for _, i in (reversed(found) if "older_wins" in self.on else found))

    def assembling(self, s, pins=None):
        """Open assembling runs, all or those that pin one of `pins`."""
        return [(i, r) for i, r in enumerate(s.runs)
                if r.p is None and r.state in OPEN and (pins is None or set(pins) & set(r.pins))]  # fmt: skip

    def set_denied(self, s, pins):
        """Whether this set was denied under the policy and base version of now."""
        c = tuple((s.runs[i].p, s.runs[i].c) for i in pins)
        return any(
            (r.p, r.c, r.basev, r.pol, r.state) == (None, c, s.chan[-1].version, s.pol, "REJECTED")
            for r in s.runs
        )

    def wants_assembly(self, s):
        """Whether an assembling run has anything to do: its job is that parts are STAGED."""
        pins, n = self.staged_now(s), len(s.chan) - 1
        waits = any(r.state == "PROPOSED" and (r.promo or ((r.pins, r.base) == (pins, n) and not self.approved(s, i, n)))
                    for i, r in self.assembling(s))  # fmt: skip
        return (
            bool(pins)
            and not waits
            and ("set_denied_again" in self.on or not self.set_denied(s, pins))
        )

    def denied(self, s, version, run=None):
        blind = "stage_unheld" in self.on and run is not None and run.p is None
        bad = self.policy[s.pol] | (set() if blind else self.held(s)[1])
        return any((p, version[p]) in bad for p in (0, 1))

    def approved(self, s, i, base):
        """An approval binds version, base generation and evidence (of run i); each is good for one
        generation only.
        """
        if "approval_reusable" in self.on:
            return any(version == s.runs[i].cand for version, _, _ in s.appr)
        return not self.people or (s.runs[i].cand, base, i) in s.appr

    def put(self, s, p, force=0):
        st, again, f = s.jobs[p]
        if st == "-":
            job = ("q", 0, force)
        elif st == "q":
            job = ("q", 0, max(f, force))
        elif force and not s.leases[p][1]:  # the holder is dead: the forced command takes over
            job = ("r", again, 1)
        else:  # running: as first written the existing row is returned and nothing is remembered
            job = ("r", max(again, 1 + force), f) if "again" in self.on else (st, again, f)
        return s._replace(jobs=put_at(s.jobs, p, job))

    def ack(self, s, p):
        st, again, _ = s.jobs[p]
        if st == "-" or "ack_early" in self.on:
            return s
        return s._replace(jobs=put_at(s.jobs, p, ("q", 0, again - 1) if again else ("-", 0, 0)))

    def run_is(self, s, i, **change):
        return s._replace(runs=put_at(s.runs, i, s.runs[i]._replace(**change)))

    def proc(self, s, w, pr):
        return s._replace(procs=put_at(s.procs, w, pr))

    def take(self, s, k):
        n = s.leases[k][0] + 1
        return s._replace(leases=put_at(s.leases, k, (n, 1))), (s.epoch, n)

    def free(self, s, *ks):
        for k in ks:
            s = s._replace(leases=put_at(s.leases, k, (s.leases[k][0], 0)))
        return s

    def fenced(self, s, pr, *ks):
        """True when the process must stop: one of the leases it writes under has a newer token."""
        stale = any(
            tok != (s.epoch, s.leases[k][0])
            for k, tok in ((k, pr.td if k == D else pr.tp) for k in ks)
        )
        if stale and "no_fence" in self.on:
            raise Violation(8, "a store write was accepted from a superseded token")
        return stale

    def over(self, s, w, pr):
        """The promote part ends: a settler goes back to its own job, another process is idle."""
        back = pr._replace(pc="cap", run=None, td=None, base=None, ver=None, ev=None, out=None)
        return self.proc(s, w, back if pr.out == "settle" else IDLE)

    def drop(self, s, w):
        """The process stops (fenced, or killed): leases that are still its own run out."""
        pr = s.procs[w]
        own = [
            k
            for k, t in ((pr.p, pr.tp), (D, pr.td))
            if t is not None and t == (s.epoch, s.leases[k][0])
        ]
        return self.proc(self.free(s, *own), w, IDLE)

    # ---- system actions --------------------------------------------------------------------------
    def system(self, s):
        """Every action of workers; relay and scheduler act when the workers rest (their actions
        commute, see README).
        """
        out = []
        first_idle = True
        for w, pr in enumerate(s.procs):
            name = "AB"[w]
            if pr.pc == "idle":
                # idle workers are interchangeable: only the first one takes work
                if first_idle and not s.down:
                    out += self.takes(s, w, name)
                first_idle = False
            elif not s.down or pr.pc in FILE_STEPS:
                nxt = getattr(self, "do_" + pr.pc)(s, w, pr)
                if nxt is not None:
                    out.append((f"{name}: {nxt[0]}", nxt[1]))
        if s.op is not None:
            out += self.operates(s)
        if s.down == 1 and "void_epoch" in self.on:
            g = Gen("V", s.chan[-1].version, None, None, hash(s.chan[-1]))
            out.append(("reindex: void generation", s._replace(chan=(*s.chan, g), down=2)))
        elif s.down:
            out.append(("reindex: store rebuilt, new epoch", self.rebuild(s)))
        if "deliver_early" in self.on or not out:
            out += self.relay(s)
        if not out and "erase_again" in self.on and (again := s.bytes & self.destroyed(s)):
            out.append(
                (
                    "doctor: what a frozen holder wrote after the erasure is destroyed",
                    s._replace(bytes=s.bytes - again),
                )
            )
        if not out and s.proj != len(s.chan) - 1 and "projection" in self.on:
            out.append(
                ("tick: projection rendered from the head", s._replace(proj=len(s.chan) - 1))
            )
        if not out and s.ticked != s.ops:
            out.append(
                ("tick: both partitions", self.put(self.put(s, 0), 1)._replace(ticked=s.ops))
            )
        return out

    def relay(self, s):
        out = []
        for run, gen in sorted(s.outbox):
            done = s._replace(outbox=s.outbox - {(run, gen)})
            own = gen < len(s.chan) and s.chan[gen].run == run
            if not own and "deliver_early" not in self.on:
                out.append(
                    (f"relay: row of run {run} dropped, generation {gen} is not its own", done)
                )
            elif gen in s.sent:
                out.append((f"relay: row of generation {gen} marked", done))
            else:  # the receiver sees the key (gen) once however often it is sent
                out.append(
                    (f"relay: effect of generation {gen} sent", s._replace(sent=s.sent | {gen}))
                )
                need(own, 7, f"external effect of generation {gen} before its commit point")
        return out[:1]

    def rebuild(self, s):
        made = {g.run for g in s.chan}
        made |= {i for r in made if r is not None and r >= 0 for i in s.runs[r].pins}
        runs = tuple(r._replace(state="COMMITTED") if i in made else r if r.state not in (*OPEN, "STAGED") else
                     r._replace(state="SUPERSEDED", promo=0) for i, r in enumerate(s.runs))  # fmt: skip
        rows = frozenset((g.run, i) for i, g in enumerate(s.chan) if g.kind in "PF" and i)
        head = s.chan[-1].version
        return s._replace(runs=runs, jobs=(("-", 0, 0),) * 2, leases=((0, 0),) * 3, epoch=s.epoch + 1, down=0, lastc=head,
                          parts=head, lineage=frozenset(r for r, _ in rows), ops=s.ops + 1,
                          outbox=rows if "reindex_outbox" in self.on else frozenset())  # fmt: skip

    def takes(self, s, w, name):
        """Work an idle process can take: a job that is queued or whose lease ran out, a promote
        job.
        """
        out = []
        if self.unfinished(s):  # before any other work, and alone with the dataset
            return (
                []
                if any(held for _, held in s.leases)
                else [(f"{name}: erasure finished", self.erased(s))]
            )
        for p in (0, 1):
            st, again, f = s.jobs[p]
            if st != "-" and not s.leases[p][1]:
                t, tok = self.take(s, p)
                t = t._replace(
                    jobs=put_at(
                        t.jobs, p, ("-", 0, 0) if "ack_early" in self.on else ("r", again, f)
                    )
                )
                for staged in ((0,) if p in self.plain else ()) + (
                    (1,) if p in self.staged else ()
                ):
                    u = self.proc(t, w, IDLE._replace(pc="cap", p=p, tp=tok, staged=staged))
                    out.append(
                        (
                            f"{name}: take job and lease of partition {p}{' for a backfill' if staged else ''}",
                            u,
                        )
                    )
        if self.staged and not s.leases[D][1] and self.wants_assembly(s):
            t, tok = self.take(s, D)
            out.append(
                (
                    f"{name}: assemble: take lease of dataset",
                    self.proc(t, w, IDLE._replace(pc="apin", td=tok)),
                )
            )
        asked = any(
            st != "-" for st, _, _ in s.jobs
        )  # a run of the dataset takes up what lies aside
        for i, r in enumerate(s.runs):
            due = r.promo == 1 or (r.promo == ASIDE and asked)
            if r.state == "PROPOSED" and due and not s.leases[D][1]:
                t, tok = self.take(s, D)
                t = self.run_is(t, i, promo=1)
                t = self.proc(t, w, IDLE._replace(pc="judge", p=r.p, run=i, td=tok))
                out.append((f"{name}: take promote job of run {i}, lease of dataset", t))
        return out

    # ---- erasure ---------------------------------------------------------------------------------
    def unfinished(self, s):
        """Plans whose generation is there: the bytes are owed."""
        return {k for k in s.plans if 0 < k < len(s.chan) and s.chan[k].kind == "E"}

    def destroyed(self, s):
        """What finished erasures removed: content that is never to lie here again."""
        found = set()
        for k, g in enumerate(s.chan):
            if g.kind == "E" and -k in s.plans:
                found |= {
                    (p, s.chan[k - 1].version[p])
                    for p in (0, 1)
                    if s.chan[k - 1].version[p] != g.version[p]
                }
        return found

    def operates(self, s):
        """The operator who erases: plan, ★, then the bytes if nobody else is at work, else the next
        tick does it.
        """
        step, k = s.op
        head, n = s.chan[-1], len(s.chan)
        if step == "erase":
            if s.down or any(held for _, held in s.leases):
                return [
                    (
                        "operator: a run is at work, the erasure is left to the next tick",
                        s._replace(op=None),
                    )
                ]
            return [("operator: erasure finished", self.erased(s)._replace(op=None))]
        if k == n:
            g = Gen("E", put_at(head.version, head.version.index("b"), "-"), None, None, hash(head))
            return [
                (
                    f"operator: ★ withdrawal that erases 'b', generation {k}",
                    s._replace(chan=(*s.chan, g), op=("erase", k)),
                )
            ]
        plans = s.plans - {k} | (
            {n} if "b" in head.version and "erase_intent" in self.on else set()
        )
        return [(f"operator: {k} is taken by another, look again",
                 s._replace(plans=frozenset(plans), op=("star", n) if "b" in head.version else None))]  # fmt: skip

    def erased(self, s):
        """Under every lease: runs that have not ended end, in one transaction, then everything but
        the official version is destroyed.
        """
        if (
            any(r.state in OPEN and (r.intent or 0) >= len(s.chan) for r in s.runs)
            and "erase_unsettled" not in self.on
        ):
            # a frozen holder may still write it
            s = s._replace(
                chan=(*s.chan, Gen("V", s.chan[-1].version, None, None, hash(s.chan[-1])))
            )
        head = s.chan[-1].version
        s = s._replace(leases=tuple((number + 1, 0) for number, _ in s.leases))
        for i, r in enumerate(s.runs) if "erase_open" not in self.on else ():
            if r.state not in (*OPEN, "STAGED"):
                continue
            made = {g.run for g in s.chan if g.run is not None and g.run >= 0}
            # the parts of what became official with it
            own = i in made or any(i in s.runs[k].pins for k in made)
            s = self.run_is(s, i, state="COMMITTED" if own else "SUPERSEDED", promo=0)
            s = s if own or r.p is None else self.put(s, r.p)
        plans = s.plans - self.unfinished(s) | {-k for k in self.unfinished(s)}
        return s._replace(
            plans=plans, bytes=frozenset((p, c) for p, c in enumerate(head) if c != "-")
        )

    # ---- update ----------------------------------------------------------------------------------
    def do_cap(self, s, w, pr):
        c = s.up[pr.p]
        seen = len(s.chan) - 1 if "early_read" in self.on else None
        return f"capture {c!r} of partition {pr.p}", self.proc(
            s, w, pr._replace(pc="claim", c=c, base=seen)
        )

    def do_claim(self, s, w, pr):
        """One transaction: settle? NOOP (acks)? resume? else close what is open and claim a new
        run.
        """
        p, c, on = pr.p, pr.c, self.on
        if self.fenced(s, pr, p):
            return "fenced at claim", self.drop(s, w)
        n, force = len(s.chan) - 1 if pr.base is None else pr.base, s.jobs[p][2]
        head = s.chan[n]  # read inside the transaction, after its look for open intents
        mine = [(i, r) for i, r in enumerate(s.runs) if r.p == p and r.state in OPEN]
        parts = [(i, r) for i, r in enumerate(s.runs) if r.p == p and r.state == "STAGED"]
        if "stage_unsettled" not in on:
            mine += self.assembling(s, [i for i, _ in parts])
        for i, r in mine:
            if r.intent is not None and "settle" in on:
                return f"must settle run {i} first", self.proc(
                    s, w, pr._replace(pc="wantD", run=i, out="settle")
                )
        same_key = [r for r in s.runs if (r.p, r.c, r.basev, r.pol) == (p, c, head.version, s.pol)]
        why = None
        if not force:
            if "noop_any_key" in on:
                known = c == "a" or any((r.p, r.c, r.state) == (p, c, "COMMITTED") for r in s.runs)
            else:
                known = (head.version[p] if "channel_head" in on else s.lastc[p]) == c
            hold = set.union(*self.held(s))
            waiting = [i for i, r in mine if r.state == "PROPOSED" and r.c == c and
                       (r.base == n or "stale_proposal" not in on)]  # fmt: skip
            if known:
                now = s.chan[-1].version[p]
                need(
                    now == c,
                    6,
                    f"NOOP 'unchanged' for {c!r}, but generation {len(s.chan) - 1} holds {now!r}",
                )
                why = "NOOP unchanged"
            elif (p, c) in hold:
                why = "NOOP held by rollback or withdrawal"
            elif waiting:
                i = waiting[0]
                if "approved_noop" in on and s.runs[i].base == n and self.approved(s, i, n):
                    s = self.run_is(s, i, promo=1)
                why, mine, parts = "NOOP names the proposal", [], []
            elif "denied_noop" in on and any(r.state == "REJECTED" for r in same_key):
                why = "NOOP names the denial"
            elif pr.staged and any((r.c, r.pol) == (c, s.pol) for _, r in parts):
                why, mine, parts = (
                    "NOOP already staged",
                    [x for x in mine if x[1].p is not None],
                    [],
                )
            elif "epochless" in on and any(r.state not in OPEN for r in same_key):
                why = "journal of this wal_id is finished: nothing to do"
        if why:
            if "noop_closes" in on:
                for i, _ in mine + parts:
                    s = self.run_is(s, i, state="SUPERSEDED", promo=0)
            return why + ", ack", self.proc(self.free(self.ack(s, p), p), w, IDLE)
        for i, r in mine:
            if (
                r.state == "CLAIMED"
                and r.c == c
                and r.base in (None, n)
                and (r.forced or not force)
                and r.staged == pr.staged
            ):
                return f"resume run {i}", self.proc(
                    s, w, pr._replace(pc="wantD" if r.part else self.first(), run=i)
                )
        need(
            force or not any(r.state == "REJECTED" for r in same_key),
            5,
            f"denied key ({p}, {c!r}) is executed again",
        )
        for i, r in mine + ([] if "older_wins" in on else parts):
            if "force_closes" in on or not force or (r.c, r.basev) != (c, head.version):
                s = self.run_is(s, i, state="SUPERSEDED", promo=0)
        new = Run(p, c, head.version, "CLAIMED", 0, None, None, None, 0, force, s.pol, pr.staged)
        new = new._replace(planned=int("check_first" not in on))
        s = s._replace(runs=(*s.runs, new))
        need(len(s.runs) <= (16 if self.staged else 9), 5, "endless re-execution")
        return f"claim run {len(s.runs) - 1} for {c!r}", self.proc(
            s, w, pr._replace(pc="check", run=len(s.runs) - 1)
        )

    def first(self):
        """Where a run without a part goes on. What its checks made was in scratch: they are
        repeated, also when the PLAN is there.
        """
        return "part" if "resume_unchecked" in self.on else "check"

    def do_check(self, s, w, pr):
        """The bytes are read whole. Refused: FAILED with its report, job done, lease free; else the
        PLAN, once. One transaction either way.
        """
        r = s.runs[pr.run]
        if self.fenced(s, pr, pr.p) or ("cas" in self.on and r.state != "CLAIMED"):
            return "fenced at the checks", self.drop(s, w)
        if pr.c in self.bad:
            need(not r.planned, 13, f"run {pr.run} has a PLAN, and its input was refused")
            s = self.free(self.ack(self.run_is(s, pr.run, state="FAILED"), pr.p), pr.p)
            return f"input of run {pr.run} in quarantine, FAILED, ack", self.proc(s, w, IDLE)
        return f"input of run {pr.run} passed, PLAN", self.proc(
            self.run_is(s, pr.run, planned=1), w, pr._replace(pc="part")
        )

    def do_part(self, s, w, pr):
        if self.sc.get("erase"):
            s = s._replace(bytes=s.bytes | {(pr.p, pr.c)})  # files are not fenced
        if self.fenced(s, pr, pr.p) or ("cas" in self.on and s.runs[pr.run].state != "CLAIMED"):
            return "fenced at part", self.drop(s, w)
        need(
            s.runs[pr.run].planned and pr.c not in self.bad,
            13,
            f"run {pr.run} makes a part, and its input was not checked",
        )
        s = self.run_is(s, pr.run, part=1)._replace(parts=put_at(s.parts, pr.p, pr.c))
        if pr.staged and "stage_unacked" in self.on:
            return f"ack of run {pr.run}", self.proc(self.ack(s, pr.p), w, pr._replace(pc="stage"))
        if pr.staged:  # part durable, STAGED, job acked, lease free: one transaction
            return f"run {pr.run} STAGED, ack", self.proc(
                self.free(self.ack(self.run_is(s, pr.run, state="STAGED"), pr.p), pr.p), w, IDLE
            )
        return f"part of run {pr.run} DONE", self.proc(s, w, pr._replace(pc="wantD"))

    def do_stage(self, s, w, pr):
        """Only of the mutation `stage_unacked`."""
        if self.fenced(s, pr, pr.p) or s.runs[pr.run].state != "CLAIMED":
            return "fenced at staging", self.drop(s, w)
        return f"run {pr.run} STAGED", self.proc(
            self.free(self.run_is(s, pr.run, state="STAGED"), pr.p), w, IDLE
        )

    # ---- assemble of staged parts ----------------------------------------------------------------
    def do_apin(self, s, w, pr):
        """One transaction: settle? leave out what is kept out; NOOP? resume? else close what is
        open and pin base and parts.
        """
        if self.fenced(s, pr, D):
            return "fenced at pin", self.drop(s, w)
        n, head = len(s.chan) - 1, s.chan[-1]
        for i, r in self.assembling(s):
            if r.intent is not None:
                return f"must settle run {i} first", self.proc(s, w, pr._replace(pc="judge", run=i))
        keep = set.union(*self.held(s))
        for i in self.staged_now(s) if "stage_unheld" not in self.on else ():
            if (s.runs[i].p, s.runs[i].c) in keep and not s.runs[i].forced:
                s = self.run_is(s, i, state="SUPERSEDED")
        pins = self.staged_now(s)
        c = tuple((s.runs[i].p, s.runs[i].c) for i in pins)
        for i, r in self.assembling(s):
            if r.state == "PROPOSED" and (r.pins, r.base) == (pins, n):
                s = self.run_is(s, i, promo=1) if self.approved(s, i, n) else s
                return "NOOP names the proposal", self.proc(self.free(s, D), w, IDLE)
            same = r.pins == pins or "stage_unpinned" in self.on
            if r.state == "CLAIMED" and r.base == n and same and pins:
                return f"resume run {i}", self.proc(
                    s, w, pr._replace(pc="cand", run=i, base=n, ver=self.with_parts(s, n, pins))
                )
            s = self.superseded(s, i)
        if not pins:
            return "NOOP nothing is staged", self.proc(self.free(s, D), w, IDLE)
        again = self.set_denied(s, pins)
        if again and "set_denied_again" not in self.on:
            return "NOOP names the denial", self.proc(self.free(s, D), w, IDLE)
        need(not again, 5, f"denied set {c} is executed again")
        forced = max(s.runs[i].forced for i in pins)
        s = s._replace(
            runs=(
                *s.runs,
                Run(None, c, head.version, "CLAIMED", 1, n, None, None, 0, forced, s.pol, 0, pins),
            )
        )
        need(len(s.runs) <= 16, 5, "endless re-execution")
        i = len(s.runs) - 1
        return f"PLAN of run {i} pins parts {pins} on generation {n}", self.proc(
            s, w, pr._replace(pc="cand", run=i, base=n, ver=self.with_parts(s, n, pins)))  # fmt: skip

    def with_parts(self, s, base, pins):
        version = s.chan[base].version
        for i in pins:
            version = put_at(version, s.runs[i].p, s.runs[i].c)
        return version

    def superseded(self, s, i):
        """An assembling run ends SUPERSEDED; its parts stay STAGED, which is what asks for the next
        assemble.
        """
        s = self.run_is(s, i, state="SUPERSEDED", promo=0)
        for k in s.runs[i].pins if "part_lost" in self.on else ():
            s = self.run_is(s, k, state="SUPERSEDED")
        return s

    def do_aprop(self, s, w, pr):
        if self.fenced(s, pr, D) or s.runs[pr.run].state != "CLAIMED":
            return "fenced at proposal", self.drop(s, w)
        if pr.base != len(s.chan) - 1:
            return f"run {pr.run} SUPERSEDED: base {pr.base} is not the head", self.proc(
                self.free(self.superseded(s, pr.run), D), w, IDLE
            )
        no = self.denied(s, pr.ver, s.runs[pr.run])
        if self.same(s, pr, no):
            for i in (pr.run, *s.runs[pr.run].pins):
                s = self.run_is(s, i, state="NOOP")
            return f"run {pr.run} NOOP: the same version", self.proc(self.free(s, D), w, IDLE)
        s = self.run_is(
            s,
            pr.run,
            state="REJECTED" if no else "PROPOSED",
            cand=pr.ver,
            pol=s.pol,
            promo=int(not no and not self.people),
        )
        for i in s.runs[pr.run].pins if "parts_early" in self.on and not no else ():
            s = self.run_is(s, i, state="COMMITTED")
        return f"run {pr.run} {s.runs[pr.run].state}", self.proc(self.free(s, D), w, IDLE)

    # ---- assemble --------------------------------------------------------------------------------
    def do_wantD(self, s, w, pr):
        if self.fenced(s, pr, pr.p):
            return "fenced before the dataset lease", self.drop(s, w)
        if s.leases[D][1]:
            return None  # another process holds it: wait
        s, tok = self.take(s, D)
        settling = pr.out == "settle"
        return "take lease of dataset", self.proc(
            s, w, pr._replace(pc="judge" if settling else "pin", td=tok)
        )

    def do_pin(self, s, w, pr):
        r = s.runs[pr.run]
        if self.fenced(s, pr, pr.p, D) or ("cas" in self.on and r.state != "CLAIMED"):
            return "fenced at assemble", self.drop(s, w)
        base = len(s.chan) - 1 if r.base is None else r.base
        if "pin" in self.on:
            s, ver = self.run_is(s, pr.run, base=base), put_at(s.chan[base].version, pr.p, pr.c)
        else:
            ver = s.parts  # base + every committed part there happens to be
        return f"PLAN of assemble on generation {base}", self.proc(
            s, w, pr._replace(pc="cand", base=base, ver=ver)
        )

    def do_cand(self, s, w, pr):
        s = s._replace(cands=s.cands | {(pr.run, pr.ver)})
        need(
            len({v for i, v in s.cands if i == pr.run}) == 1,
            9,
            f"run {pr.run} yields a second version_id when resumed",
        )
        return f"file: candidate {pr.ver} of run {pr.run}", self.proc(
            s, w, pr._replace(pc="prop" if pr.p is not None else "aprop")
        )

    def do_prop(self, s, w, pr):
        if self.fenced(s, pr, pr.p, D) or ("cas" in self.on and s.runs[pr.run].state != "CLAIMED"):
            return "fenced at proposal", self.drop(s, w)
        # born stale: nobody could ever approve it
        if "stale_proposal" in self.on and pr.base != len(s.chan) - 1:
            s = self.run_is(s, pr.run, state="SUPERSEDED")
            s = s._replace(jobs=put_at(s.jobs, pr.p, ("q", 0, s.jobs[pr.p][2])))
            return (
                f"run {pr.run} SUPERSEDED: base {pr.base} is not the head, job queued again",
                self.drop(s, w),
            )
        no = self.denied(s, pr.ver)
        if self.same(s, pr, no):
            s = self.run_is(s, pr.run, state="NOOP", cand=pr.ver)
            return f"run {pr.run} NOOP: the same version, ack", self.proc(
                self.free(self.ack(s, pr.p), pr.p, D), w, IDLE
            )
        auto = "promote_job" in self.on and not self.people
        s = self.run_is(s, pr.run, state="REJECTED" if no else "PROPOSED", base=pr.base, cand=pr.ver, pol=s.pol,
                        promo=int(auto and not no))  # fmt: skip
        s = self.free(self.ack(s, pr.p), pr.p, D)
        # as first written: the same command starts the promote
        go_on = not no and not auto and not self.people
        then = IDLE._replace(pc="self", p=pr.p, run=pr.run) if go_on else IDLE
        return f"run {pr.run} {s.runs[pr.run].state}, ack", self.proc(s, w, then)

    def same(self, s, pr, no):
        """What is official already makes no generation: only force, a rollback, a withdrawal or a
        void repeats a version.
        """
        return not no and pr.ver == s.chan[-1].version and not s.runs[pr.run].forced

    def do_self(self, s, w, pr):
        if s.leases[D][1]:
            return None
        s, tok = self.take(s, D)
        return "promote: take lease of dataset", self.proc(s, w, pr._replace(pc="judge", td=tok))

    # ---- promote ---------------------------------------------------------------------------------
    def do_judge(self, s, w, pr):
        """Re-judge on current policy, then the intent: the number of the generation this run may
        create.
        """
        r, n = s.runs[pr.run], len(s.chan) - 1
        if self.fenced(s, pr, D):
            return "fenced at promote", self.drop(s, w)
        if r.state != "PROPOSED" and ("cas" in self.on or r.state != "SUPERSEDED"):
            return "nothing to promote", self.over(self.free(s, D), w, pr)
        if r.intent is not None and n >= r.intent:  # resumed, and the number is taken
            own = s.chan[r.intent].run == pr.run
            return ("generation is its own: go on" if own else "generation is another's"), self.proc(
                s, w, pr._replace(pc="proj" if own else "done", base=r.intent, ver="C" if own else "S"))  # fmt: skip
        if self.denied(s, r.cand, r):
            if r.intent is not None:  # a frozen holder may still write that number: take it
                return "denied on resume", self.proc(s, w, pr._replace(pc="void", base=r.intent))
            return "denied: REJECTED", self.over(
                self.free(self.run_is(s, pr.run, state="REJECTED", promo=0), D), w, pr
            )
        if r.intent is None:
            if "base_gen" in self.on and r.base != n:
                s = self.superseded(s, pr.run)
                s = self.put(s, r.p) if "retrigger" in self.on and r.p is not None else s
                return f"base {r.base} is not the head {n}: SUPERSEDED", self.over(
                    self.free(s, D), w, pr
                )
            if not self.approved(s, pr.run, n):
                return "approval is void", self.over(
                    self.free(self.run_is(s, pr.run, promo=0), D), w, pr
                )
            s = self.run_is(s, pr.run, intent=n + 1)
        k = s.runs[pr.run].intent
        return f"intent of run {pr.run}: generation {k}", self.proc(
            s, w, pr._replace(pc=self.order[0], base=k, ver=None)
        )

    def after(self, pc):
        return self.order[self.order.index(pc) + 1]

    def do_line(self, s, w, pr):
        if self.fenced(s, pr, D):
            return "fenced at lineage", self.drop(s, w)
        s = s._replace(lineage=s.lineage | {pr.run}, outbox=s.outbox | {(pr.run, pr.base)})
        return f"lineage and outbox of run {pr.run}", self.proc(
            s, w, pr._replace(pc=self.after("line"))
        )

    def do_seal(self, s, w, pr):
        old = dict(s.recs).get(pr.run)
        mine = ("sealed under", pr.td)  # envelope bytes (time, token) differ between attempts
        if old is None:
            s = s._replace(recs=tuple(sorted((*s.recs, (pr.run, mine)))))
        ev = old if old is not None and "receipt_once" in self.on else mine
        return f"file: receipts of run {pr.run}", self.proc(
            s, w, pr._replace(pc=self.after("seal"), ev=ev)
        )

    def do_star(self, s, w, pr):
        """The commit point: exclusive creation. No store transaction can cover it, so nothing here
        checks a token.
        """
        k, n, r = pr.base, len(s.chan), s.runs[pr.run]
        after = self.after("star")
        if k == n or "replace_gen" in self.on:
            g = Gen("F" if r.forced else "P", r.cand, pr.run, pr.ev, hash(s.chan[k - 1]))
            self.check_commit(s, pr, r, k)
            chan = (*s.chan, g) if k == n else put_at(s.chan, k, g)
            return f"★ generation {k} = {r.cand} by run {pr.run}", self.proc(
                s._replace(chan=chan), w, pr._replace(pc=after, ver="C"))  # fmt: skip
        own = s.chan[k].run == pr.run
        return f"★ {k} is taken by {'itself' if own else 'another'}", self.proc(
            s, w, pr._replace(pc=after if own else "done", ver="C" if own else "S"))  # fmt: skip

    def check_commit(self, s, pr, r, k):
        """Invariants 3, 4, 8, 11 at the moment a generation appears."""
        hold, suppress = self.held(s, ghost=True)
        inside = {(p, r.cand[p]) for p in (0, 1)}
        need(not inside & suppress, 3, f"generation {k} brings back what a withdrawal removed")
        need(r.forced or not inside & hold, 3, f"generation {k} undoes a rollback")
        if k == len(s.chan) and "base_gen" in self.on:
            need(
                r.forced or r.cand != s.chan[-1].version,
                6,
                f"generation {k} repeats a version that nobody asked to repeat",
            )
        rec = dict(s.recs).get(pr.run)
        need(
            rec is not None and rec == pr.ev,
            4,
            f"generation {k} names evidence that is not the sealed receipt",
        )
        need(
            not self.people or (r.cand, k - 1, pr.run) in s.appr,
            4,
            f"generation {k} has no approval bound to its base",
        )
        if not s.down:
            need(
                r.state == "PROPOSED" and r.intent == k,
                8,
                f"generation {k} is written by a run closed as {r.state}",
            )
            need(
                pr.run in s.lineage and (pr.run, k) in s.outbox,
                11,
                f"generation {k} without lineage and outbox rows",
            )

    def do_proj(self, s, w, pr):
        need(
            pr.base < len(s.chan), 7, f"projection of generation {pr.base} before the commit point"
        )
        s = s._replace(proj=pr.base)
        return f"file: projection of generation {pr.base}", self.proc(
            s, w, pr._replace(pc=self.after("proj"))
        )

    def do_void(self, s, w, pr):
        k = pr.base
        if k == len(s.chan):
            s = s._replace(
                chan=(*s.chan, Gen("V", s.chan[-1].version, None, None, hash(s.chan[-1]))),
                ops=s.ops + 1,
            )
            return f"void generation {k}", self.proc(s, w, pr._replace(pc="done", ver="X"))
        own = s.chan[k].run == pr.run
        return f"void {k}: taken", self.proc(
            s, w, pr._replace(pc="proj" if own else "done", ver="C" if own else "X")
        )

    def do_done(self, s, w, pr):
        r = s.runs[pr.run]
        if self.fenced(s, pr, D) or ("cas" in self.on and r.state != "PROPOSED"):
            return "fenced after ★", self.drop(s, w)
        s = self.run_is(
            s,
            pr.run,
            promo=0,
            state={"C": "COMMITTED", "S": "SUPERSEDED", "X": "REJECTED"}[pr.ver],
            pol=s.pol,
        )
        if pr.ver == "C":
            for p, c in self.brings(r):
                s = s._replace(lastc=put_at(s.lastc, p, c))
            # its parts, in the same transaction
            for i in r.pins if "parts_early" not in self.on else ():
                need(
                    s.runs[i].state == "STAGED",
                    5,
                    f"part {i} of run {pr.run} was closed as {s.runs[i].state}",
                )
                s = self.run_is(s, i, state="COMMITTED")
            for i, o in enumerate(s.runs):
                if (
                    o.state == "PROPOSED"
                    and o.intent is None
                    and o.base < len(s.chan) - 1
                    and "stale_proposal" in self.on
                ):
                    s = self.superseded(s, i)
                    s = self.put(s, o.p) if o.p is not None else s
        elif pr.ver == "S" and "part_lost" in self.on:
            s = self.superseded(s, pr.run)
        elif pr.ver == "S" and "retrigger" in self.on and r.p is not None:
            s = self.put(s, r.p)
        return f"run {pr.run} {s.runs[pr.run].state}", self.over(self.free(s, D), w, pr)

    # ---- the world: upstream, operators, faults (each as often as the scenario's budget says) ----
    def world(self, s):
        left, head, n, out = dict(zip(BUDGET, s.left)), s.chan[-1], len(s.chan), []

        def add(kind, label, t, ops=0):
            t = t._replace(left=put_at(t.left, BUDGET.index(kind), left[kind] - 1), ops=t.ops + ops)
            out.append((label, t))

        for w, pr in enumerate(s.procs):
            if left["crash"] and pr.pc != "idle":
                add("crash", f"CRASH of {'AB'[w]} (next was: {pr.pc})", self.drop(s, w))
            if (
                left["fail"]
                and pr.pc in ("check", "part")
                and not s.down
                and pr.tp == (s.epoch, s.leases[pr.p][0])
            ):
                # and the back-off of its job, in one transaction
                t = self.run_is(s, pr.run, state="FAILED")
                t = t._replace(jobs=put_at(t.jobs, pr.p, ("q", 0, t.jobs[pr.p][2])))
                add(
                    "fail",
                    f"{'AB'[w]}: step error, run {pr.run} FAILED, job backs off",
                    self.drop(t, w),
                )
            asm = (
                pr.pc == "cand"
                and pr.p is None
                and not s.down
                and s.runs[pr.run].state == "CLAIMED"
            )
            if left["fail"] and asm and not self.fenced(s, pr, D):
                add(
                    "fail",
                    f"{'AB'[w]}: assemble fails, run {pr.run} FAILED",
                    self.drop(self.run_is(s, pr.run, state="FAILED"), w),
                )
            mine = pr.run is not None and pr.td == (s.epoch, s.leases[D][0])
            r = s.runs[pr.run] if mine and s.runs[pr.run].state == "PROPOSED" else None
            # a generation that is named may be written by a frozen holder: that is tried for ever
            may = r is not None and (r.intent is None or "aside_late" in self.on)
            if left["aside"] and may and not s.down:
                word = ASIDE if "aside_told" in self.on else 0
                add(
                    "aside",
                    f"{'AB'[w]}: promote of run {pr.run} fails once too often, its job is put aside",
                    self.drop(self.run_is(s, pr.run, promo=word), w),
                )
            if left["refuse"] and not s.down and pr.pc not in ("idle", *FILE_STEPS):
                for label, t in self.refused(s, w, pr):
                    add("refuse", f"{'AB'[w]}: {label}", t)
        for k in (0, 1, D):
            if left["expire"] and s.leases[k][1]:
                add(
                    "expire",
                    f"lease of {'dataset' if k == D else f'partition {k}'} runs out",
                    self.free(s, k),
                )
        if s.down:
            return out
        if left["change"]:
            p, c = self.script[len(self.script) - left["change"]]
            add(
                "change",
                f"upstream: partition {p} is now {c!r}, event",
                self.put(s._replace(up=put_at(s.up, p, c)), p),
            )
        if left["erase"] and "b" in head.version and s.op is None:
            plans = s.plans | {n} if "erase_intent" in self.on else s.plans
            t = s._replace(plans=plans, op=("star", n))
            if "erase_early" in self.on:
                t = t._replace(bytes=t.bytes - {(head.version.index("b"), "b")})
            add("erase", f"operator: plans to erase 'b' by generation {n}", t, 1)
        if left["crash"] and s.op is not None:
            add("crash", f"CRASH of the operator (next was: {s.op[0]})", s._replace(op=None))
        hold, suppress = self.held(s, ghost=True)
        older = [
            g.version
            for g in s.chan
            if left["rollback"] and g.version != head.version and "-" not in g.version
        ]
        older = [
            v
            for v in older
            if "rollback_back" in self.on or not set(enumerate(v)) & (hold | suppress)
        ]
        if self.sc.get("erase"):
            # its files are there, else it is refused
            older = [v for v in older if set(enumerate(v)) <= s.bytes]
        if older:
            need(
                not set(enumerate(older[-1])) & (hold | suppress),
                3,
                "a rollback brings back what a rollback left or a withdrawal removed",
            )
            t = s._replace(chan=(*s.chan, Gen("R", older[-1], None, None, hash(head))))
            add("rollback", f"operator: rollback to {older[-1]}, generation {n}", t, 1)
        if left["withdraw"] and "b" in head.version:
            p = head.version.index("b")
            t = s._replace(
                chan=(*s.chan, Gen("W", put_at(head.version, p, "-"), None, None, hash(head)))
            )
            add(
                "withdraw",
                f"operator: withdrawal of 'b', generation {n}",
                t._replace(rules=s.rules | {(p, "b")}),
                1,
            )
            if "withdraw_one" not in self.on and left["crash"]:
                add(
                    "withdraw",
                    "operator: withdrawal generation, CRASH before the suppression rule",
                    t,
                    1,
                )
        undone = {g.rule[0] for g in s.chan if g.kind == "L"}
        for i in [
            i for i, g in enumerate(s.chan) if left["lift"] and g.kind == "W" and i not in undone
        ]:
            acts = [k for k, g in enumerate(s.chan) if g.kind != "V"]
            # else the next run brings it back
            back = s.chan[i - 1].version if acts[-1] == i else head.version
            t = s._replace(
                chan=(*s.chan, Gen("L", back, None, None, hash(head), (i,))),
                rules=s.rules - set(enumerate(s.chan[i - 1].version)),
            )
            add("lift", f"steward: undoes the withdrawal of generation {i}, generation {n}", t, 1)
        parts = [(r.p, "b") for r in s.runs if (r.state, r.c) == ("STAGED", "b")]
        if left["withdraw"] and parts and "b" not in head.version:
            t = s._replace(
                chan=(*s.chan, Gen("W", head.version, None, None, hash(head), tuple(parts)))
            )
            add(
                "withdraw",
                f"operator: withdrawal of staged 'b', generation {n}",
                t._replace(rules=s.rules | set(parts)),
                1,
            )
        if left["policy"]:
            add(
                "policy",
                f"policy now denies {sorted(self.policy[s.pol + 1])}",
                s._replace(pol=s.pol + 1),
                1,
            )
        for i, r in enumerate(s.runs):
            if left["approve"] and r.state == "PROPOSED" and (r.cand, r.base, i) not in s.appr:
                t = s._replace(appr=s.appr | {(r.cand, r.base, i)})
                add(
                    "approve",
                    f"steward approves run {i} after generation {r.base}",
                    self.run_is(t, i, promo=1),
                    1,
                )
                if left["crash"]:
                    add("approve", f"steward approves run {i}, CRASH before the promote job", t, 1)
        for p in (0, 1) if left["tick"] else ():
            add("tick", f"retrigger of partition {p}", self.put(s, p))
        if left["force"]:
            add("force", "retrigger of partition 0 with --force", self.put(s, 0, 1))
        if left["lose"]:
            add("lose", "store lost", s._replace(down=1))
        return out

    def refused(self, s, w, pr):
        """A commit that fails: the store took nothing, or took it and could not say so. The process
        stops; memory follows the store.
        """
        step = getattr(self, "do_" + pr.pc)(s, w, pr)
        if step is None:
            return
        if "memory_first" in self.on and (step[1].procs[w].run or 0) < len(s.runs):
            yield f"{step[0]}: refused, and it goes on", s._replace(procs=step[1].procs)
            return
        yield f"{step[0]}: refused", self.drop(s, w)
        yield f"{step[0]}: taken, not confirmed", self.drop(step[1], w)
        mine = (
            pr.run is not None
            and s.runs[pr.run].state == "CLAIMED"
            and s.runs[pr.run].p == pr.p
            and pr.p is not None
        )
        if mine and pr.tp == (s.epoch, s.leases[pr.p][0]):  # it can still say that it failed
            t = self.run_is(s, pr.run, state="FAILED")
            t = t._replace(jobs=put_at(t.jobs, pr.p, ("q", 0, t.jobs[pr.p][2])))
            yield f"{step[0]}: refused, run {pr.run} FAILED", self.drop(t, w)

    # ---- invariants ------------------------------------------------------------------------------
    def check_step(self, s, t):
        """1: the channel only grows, and the hash chain holds."""
        need(t.chan[: len(s.chan)] == s.chan, 1, "a generation was changed after its creation")
        if len(t.chan) > len(s.chan):
            need(
                len(t.chan) == len(s.chan) + 1 and t.chan[-1].prev == hash(s.chan[-1]),
                1,
                "gap or broken chain",
            )

    def check_rest(self, s):
        """At rest: no process can act, every trigger that was accepted has been answered."""
        need(all(pr.pc == "idle" for pr in s.procs), 10, "a process waits for ever")
        need(all(j[0] == "-" for j in s.jobs), 10, "a job is never done")
        head, n = s.chan[-1], len(s.chan) - 1
        for i, r in enumerate(s.runs):
            need(r.state != "CLAIMED", 5, f"run {i} stays CLAIMED for ever")
            made = any(
                g.run == i or (g.run is not None and g.run >= 0 and i in s.runs[g.run].pins)
                for g in s.chan
            )
            need((r.state == "COMMITTED") == made, 5, f"run {i} is {r.state}, the channel differs")
            if r.state == "STAGED":
                waits = any(o.state == "PROPOSED" for _, o in self.assembling(s, [i]))
                need(
                    waits or self.set_denied(s, self.staged_now(s)),
                    5,
                    f"part {i} stays STAGED though nothing is missing",
                )
            if r.state == "PROPOSED":
                need(
                    (self.people and (r.cand, r.base, i) not in s.appr) or r.promo == ASIDE,
                    5,
                    f"run {i} stays PROPOSED though nothing is missing",
                )
        keep = set.union(*self.held(s, ghost=True))
        for p in (0, 1):
            c = s.up[p]
            waits = any(
                (r.state, r.base) == ("PROPOSED", n) and (p, c) in self.brings(r) for r in s.runs
            )
            # what lies aside is shown to a person, whatever it stands on
            waits |= any(r.promo == ASIDE and (p, c) in self.brings(r) for r in s.runs)
            # of a set that is denied as a whole: see above
            waits |= any((r.p, r.c, r.state) == (p, c, "STAGED") for r in s.runs)
            want = put_at(head.version, p, c)
            excused = (
                c in self.bad
                or (p, c) in keep
                or waits
                or any((q, want[q]) in self.policy[s.pol] for q in (0, 1))
            )
            need(
                head.version[p] == c or excused,
                2,
                f"upstream says {c!r} for {p}, official is {head.version[p]!r}",
            )
        for k, g in enumerate(s.chan):
            if g.kind in "PF" and k:
                need(k in s.sent, 7, f"external effect of generation {k} never happens")
                need(g.run in s.lineage, 11, f"no lineage rows for generation {k}")
        if self.sc.get("erase"):
            left = {
                (p, s.chan[k - 1].version[p])
                for k, g in enumerate(s.chan)
                if g.kind == "E"
                for p in (0, 1)
            } - set(enumerate(head.version))
            gone = {(p, c) for p, c in left if c == "b"} & s.bytes
            need(
                not gone,
                12,
                f"a generation says that {sorted(gone)} was erased, and its bytes are here",
            )
            lost = {(p, c) for p, c in enumerate(head.version) if c != "-"} - s.bytes
            need(not lost, 12, f"{sorted(lost)} is official, and its bytes were destroyed")
        need(s.proj == n, 3, f"catalog projections show generation {s.proj}, the head is {n}")


if __name__ == "__main__":
    from tests.model.checker import main

    sys.exit(main(sys.argv[1:]))
