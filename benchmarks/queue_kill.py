"""Take a worker or its database away under load, and count. `python -m benchmarks.queue_kill
--rounds 20 --json`.

Two workers share some thousand jobs of 5 ms. At a random moment one of them is killed (`kill`) or
frozen past its lease and continued (`freeze`), or the database is restarted without notice
(`restart`) or out of reach for a while (`cut`). Afterwards every job has left its keyed effect,
once.
"""

import argparse
import contextlib
import fcntl
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.proxy import Proxy
from benchmarks.queue_work import open_store, request

__all__ = ["SCENARIOS", "Bench", "Plan", "Round", "count", "main", "one_round", "run"]

ROOT = Path(__file__).parents[1]
SCENARIOS = {"sqlite": ("kill", "freeze"), "postgres": ("kill", "restart", "cut", "freeze")}
_LATE_S = 90.0  # how long a round may take beside the outage and a lease time


@dataclass(frozen=True)
class Plan:
    """What the rounds have in common."""

    jobs: int = 2000
    job_ms: float = 5.0
    lease_s: float = 15.0
    cut_s: float = 30.0
    again_s: float = 2.0  # after this a replacement of the killed worker starts


@dataclass
class Round:
    """One round, counted."""

    store: str
    scenario: str
    round: int
    at_job: int  # the fault came when so many had been worked
    lost: int = 0  # jobs without effect
    duplicate_effects: int = 0  # effects written more than once
    # from the fault (an outage: from its end) until what was held then is done; 0: nothing was held
    takeover_s: float = 0.0
    held: int = 0
    worked_twice: int = 0  # bodies that ran again: their first run left no effect
    # the longest time between two renewals of a worker that was not touched
    heartbeat_gap_s: float = 0.0
    seconds: float = 0.0
    # frozen inside a transaction of an embedded store: nobody can take over before it is continued
    blocked: bool = False
    how: str = ""
    wrong: str = ""

    def is_ok(self, lease_s: float) -> bool:
        return not (self.lost or self.duplicate_effects or self.wrong) and (
            self.blocked or self.takeover_s <= lease_s
        )


class Probe:
    """Looks at the tables by itself, past the store under test."""

    def __init__(self, where: str) -> None:
        self._server = where.startswith("postgresql:")
        self._place = "%s" if self._server else "?"
        if self._server:
            import psycopg

            self._db: Any = psycopg.connect(where, autocommit=True)
        else:
            import sqlite3

            self._db = sqlite3.connect(where, isolation_level=None, timeout=60)

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._db.execute(
            sql.replace("?", self._place), values
        ).fetchall()
        return found

    def effects(self) -> tuple[int, int]:
        (found,) = self.ask("select count(*), coalesce(sum(times), 0) from effect")
        return int(found[0]), int(found[1])

    def held(self, names: Sequence[str]) -> list[str]:
        owners = [f"worker/{n}" for n in names]
        marks = ", ".join("?" * len(owners))
        return [
            r[0]
            for r in self.ask(
                f"select job_id from job where state = 'running' and owner in ({marks})", *owners
            )
        ]

    def have_effect(self, job_ids: Sequence[str]) -> bool:
        return all(self.ask("select 1 from effect where job_id = ?", job_id) for job_id in job_ids)

    def renewals(self) -> dict[str, int]:
        return {
            str(name): int(at)
            for name, at in self.ask("select name, expires_ns from lease where holder is not null")
        }

    def is_connected(self, name: str) -> bool:
        """Whether the server still serves a connection of a worker that is gone."""
        return self._server and bool(
            self.ask("select 1 from pg_stat_activity where application_name = ?", name)
        )

    def close(self) -> None:
        self._db.close()


class Bench:
    """The workers of one round, and what is seen of them."""

    def __init__(self, folder: Path, plan: Plan, where: str) -> None:
        self.folder, self.plan, self.where = folder, plan, where
        self.file = folder / "jobs"
        self.file.touch()
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.touched: set[str] = set()
        self.probe = Probe(where)
        self._seen: dict[str, int] = {}
        self.gap_ns = 0
        self.held: list[str] = []
        self.at = self.seen_at = 0.0

    def expect(self, held: list[str], at: float) -> None:
        """These jobs were in the hands of whoever was taken away at that moment."""
        self.held, self.at = held, at

    def put(self) -> None:
        store = open_store(self.where)
        for first in range(0, self.plan.jobs, 200):
            some = [request(number) for number in range(first, min(first + 200, self.plan.jobs))]
            store.transaction(lambda tx: [tx.jobs.submit(r) for r in some])
        store.close()

    def start(self, name: str, where: str = "") -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "KFM_"))} | {
            "JOBFILE": str(self.file), "JOB_MS": str(self.plan.job_ms), "LEASE_S": str(self.plan.lease_s), "PGAPPNAME": name,
        }  # fmt: skip
        command = [
            sys.executable,
            "-m",
            "benchmarks.queue_work",
            "worker",
            where or self.where,
            name,
        ]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.workers[name] = subprocess.Popen(
                command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def worked(self) -> list[int]:
        return [
            int(line.split()[0])
            for line in self.file.read_bytes().splitlines()
            if line.count(b" ") == 2
        ]

    def watch(self) -> None:
        """Note how long it was between two renewals of a lease, and when others can see that what
        was held is done.
        """
        if self.held and not self.seen_at and self.probe.have_effect(self.held):
            self.seen_at = time.time()
        for name, at in self.probe.renewals().items():
            if name in self._seen and name.removeprefix("worker/") not in self.touched:
                self.gap_ns = max(self.gap_ns, at - self._seen[name])
            self._seen[name] = at

    def wait(self, is_so: Callable[[], bool], seconds: float, every: float = 0.02) -> bool:
        until = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > until or not any(w.poll() is None for w in self.workers.values()):
                return False
            time.sleep(every)
        return True

    def pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with contextlib.suppress(Exception):  # the server may be away
                self.watch()
            time.sleep(min(0.1, left))

    def kill(self, name: str) -> None:
        process = self.workers.pop(name)
        process.kill()
        process.wait()
        # its transaction is taken back, or was sent and stands
        while self.probe.is_connected(name):
            time.sleep(0.005)

    def end(self) -> list[str]:
        """Stop the workers as a person would; who had died before, or did not go."""
        wrong = [
            f"{n} ended by itself: {self._last_words(n)}"
            for n, w in self.workers.items()
            if w.poll() is not None
        ]
        for process in self.workers.values():
            process.terminate()
        for name, process in self.workers.items():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                wrong.append(f"{name} did not stop")
                process.kill()
                process.wait()
        self.workers.clear()
        return wrong

    def _last_words(self, name: str) -> str:
        return " ".join((self.folder / f"{name}.log").read_text(errors="replace").split())[-300:]

    def close(self) -> None:
        for process in self.workers.values():
            process.kill()
            process.wait()
        self.probe.close()


# ---- what happens --------------------------------------------------------------------------------
def _kill(bench: Bench, found: Round, chance: random.Random, world: "World") -> None:
    victim = chance.choice(("w1", "w2"))
    at = time.time()
    bench.kill(victim)
    bench.expect(bench.probe.held([victim]), at)
    bench.pause(bench.plan.again_s)
    bench.start("w3")


def _freeze(bench: Bench, found: Round, chance: random.Random, world: "World") -> None:
    victim = chance.choice(("w1", "w2"))
    bench.touched.add(victim)
    at = time.time()
    bench.workers[victim].send_signal(signal.SIGSTOP)
    time.sleep(0.05)  # what it has sent to a server is worked there
    bench.expect(bench.probe.held([victim]), at)
    found.blocked = _is_blocked(bench.folder)
    bench.pause(1.3 * bench.plan.lease_s)
    bench.workers[victim].send_signal(signal.SIGCONT)
    bench.pause(1.0)  # it says what it had to say


def _is_blocked(folder: Path) -> bool:
    """Whether it was stopped inside a transaction of an embedded store: others wait for it,
    whatever its lease says.
    """
    if not (folder / "turnstile.lock").exists():
        return False
    fd = os.open(folder / "turnstile.lock", os.O_RDONLY)
    try:
        for _ in range(20):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return False
            time.sleep(0.05)
        return True
    finally:
        os.close(fd)


def _restart(bench: Bench, found: Round, chance: random.Random, world: "World") -> None:
    held = bench.probe.held(["w1", "w2"])
    bench.probe.close()
    world.server.stop("immediate")
    time.sleep(chance.uniform(0, 1))
    world.server.start()
    bench.probe = Probe(bench.where)
    bench.expect(held, time.time())


def _cut(bench: Bench, found: Round, chance: random.Random, world: "World") -> None:
    names = ["w1"] if chance.random() < 0.5 else ["w1", "w2"]
    silent = chance.random() < 0.5
    found.how = f"{' and '.join(names)} {'unanswered' if silent else 'closed'}"
    bench.touched.update(names)
    for name in names:
        world.proxies[name].cut(silent=silent)
    time.sleep(0.05)
    bench.expect(bench.probe.held(names), time.time())
    bench.pause(bench.plan.cut_s)
    for name in names:
        world.proxies[name].mend()
    if len(names) == 2:  # nobody could take over before
        bench.at = time.time()


FAULTS: dict[str, Callable[[Bench, Round, random.Random, "World"], None]] = {
    "kill": _kill, "freeze": _freeze, "restart": _restart, "cut": _cut,
}  # fmt: skip


# ---- rounds --------------------------------------------------------------------------------------
class World:
    """Where a round's store is, made once for all rounds of a store."""

    def __init__(self, kind: str, folder: Path, stack: ExitStack) -> None:
        self.kind, self.folder = kind, folder
        self.server: Any = None
        self.proxies: dict[str, Proxy] = {}
        if kind == "postgres":
            from tests.given.services import private_server  # a real server, on this machine only

            self.server = stack.enter_context(private_server())
            socket = self.server.folder / ".s.PGSQL.5432"
            self.proxies = {name: stack.enter_context(Proxy(socket)) for name in ("w1", "w2")}

    @contextlib.contextmanager
    def bench(self, plan: Plan) -> Iterator[Bench]:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            where = str(folder / "store.sqlite")
            if self.kind == "postgres":
                from tests.given.services import schema_url

                where = schema_url(self.server)
            open_store(where).close()
            bench = Bench(folder, plan, where)
            try:
                yield bench
            finally:
                bench.close()

    def address(self, bench: Bench, worker: str) -> str:
        """Through its proxy, where there is one."""
        if worker not in self.proxies:
            return bench.where
        return f"postgresql://kfm@127.0.0.1:{self.proxies[worker].port}/postgres?{bench.where.partition('&')[2]}"


def one_round(world: World, scenario: str, number: int, plan: Plan, seed: int) -> Round:
    chance = random.Random(f"{seed}/{world.kind}/{scenario}/{number}")
    found = Round(world.kind, scenario, number, chance.randrange(int(0.95 * plan.jobs)))
    began = time.monotonic()
    with world.bench(plan) as bench:
        bench.put()
        for name in ("w1", "w2"):
            bench.start(name, world.address(bench, name) if scenario == "cut" else "")
        bench.wait(lambda: bench.file.read_bytes().count(b"\n") >= found.at_job, 60, 0.002)
        time.sleep(chance.uniform(0, 0.03))
        FAULTS[scenario](bench, found, chance, world)
        bench.wait(lambda: _is_done(bench), _LATE_S + plan.lease_s, 0.1)
        bench.pause(1.0)  # what comes late is counted too
        found.wrong = "; ".join(bench.end())
        count(bench, found)
    found.seconds = round(time.monotonic() - began, 1)
    return found


def _is_done(bench: Bench) -> bool:
    bench.watch()
    return bench.probe.effects()[0] >= bench.plan.jobs


def count(bench: Bench, found: Round) -> None:
    keys, times = bench.probe.effects()
    worked = bench.worked()
    found.lost, found.duplicate_effects, found.held = (
        bench.plan.jobs - keys,
        times - keys,
        len(bench.held),
    )
    found.worked_twice = len(worked) - len(set(worked))
    found.heartbeat_gap_s = round(bench.gap_ns / 1e9, 2)
    found.takeover_s = (
        round(max(0.0, (bench.seen_at or time.time()) - bench.at), 2) if bench.held else 0.0
    )


def run(
    stores: Sequence[str],
    scenario: str,
    rounds: int,
    plan: Plan,
    seed: int,
    tell: Callable[[Round], None],
) -> list[Round]:
    found: list[Round] = []
    for kind in stores:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kfm-queue-")))
            world = World(kind, folder, stack)
            for name in SCENARIOS[kind]:
                for number in range(rounds) if scenario in (name, "all") else ():
                    found.append(one_round(world, name, number, plan, seed))
                    tell(found[-1])
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rounds; exit 1 when something was lost, done twice, or taken over late."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.queue_kill",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--rounds", type=int, default=20, help="rounds of each scenario on each store (default 20)"
    )
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--store", choices=[*SCENARIOS, "both"], default="both")
    parser.add_argument(
        "--scenario", choices=["kill", "restart", "cut", "freeze", "all"], default="kill"
    )
    parser.add_argument(
        "--lease", type=float, default=15.0, metavar="S", help="lease time of a worker (default 15)"
    )
    parser.add_argument(
        "--cut",
        type=float,
        default=30.0,
        metavar="S",
        help="how long the database is out of reach (default 30)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    plan = Plan(jobs=args.jobs, lease_s=args.lease, cut_s=args.cut)
    stores = list(SCENARIOS) if args.store == "both" else [args.store]
    print(f"seed {args.seed}", file=sys.stderr)
    found = run(stores, args.scenario, args.rounds, plan, args.seed, lambda r: _tell(r, plan))
    ok = bool(found) and all(r.is_ok(plan.lease_s) for r in found)
    if args.json:
        print(
            msgspec.json.format(
                msgspec.json.encode({"rounds": [asdict(r) for r in found]}), indent=2
            ).decode()
        )
    else:
        _sum_up(found)
    return 0 if ok else 1


def _tell(r: Round, plan: Plan) -> None:
    print(
        f"{'ok ' if r.is_ok(plan.lease_s) else 'BAD'} {r.store:<8} {r.scenario:<7} {r.round:>3}  at {r.at_job:>5}  held {r.held:>3}  lost {r.lost}  "
        f"double {r.duplicate_effects}  takeover {r.takeover_s:5.2f} s  worked twice {r.worked_twice:>3}  heartbeat {r.heartbeat_gap_s:.1f} s  "
        f"{'frozen inside a transaction' if r.blocked else r.how} {r.wrong}",
        file=sys.stderr, flush=True,
    )  # fmt: skip


def _sum_up(found: Sequence[Round]) -> None:
    for store, scenario in dict.fromkeys((r.store, r.scenario) for r in found):
        own = [r for r in found if (r.store, r.scenario) == (store, scenario)]
        print(
            f"{store} {scenario}: {len(own)} rounds, {sum(r.lost for r in own)} lost, {sum(r.duplicate_effects for r in own)} effects twice, "
            f"taken over in at most {max(r.takeover_s for r in own):.1f} s"
        )


if __name__ == "__main__":
    sys.exit(main())
