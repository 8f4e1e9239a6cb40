"""Print the journal of a run: what it intended, what it did, in order."""

from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import show
from kfm.evidence.run_files import run_journal
from kfm.model import LedgerRow, UsageError, WalRecord
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Journal", "find_run", "journal"]


class Journal(Answer, frozen=True, kw_only=True):
    """The records of a run in their order; their hash chain was checked."""

    run_id: str
    dataset_id: str
    state: str
    wal_id: str
    records: list[WalRecord]

    def tell(self, call: Call) -> None:
        show(f"run {self.run_id}  {self.dataset_id}  {self.state}  journal {self.wal_id[:12]}…\n")
        for r in self.records:
            payload = r.payload if len(r.payload) <= 60 else r.payload[:57] + "…"
            show(
                f"  {r.seq:>3}  {r.ts[11:23]}  {r.phase:<8} {r.step_id:<10} {r.status:<12} {payload}"
            )


def find_run(world: World, text: str) -> LedgerRow:
    """The run of an id, or of its beginning."""
    exact: LedgerRow | None = world.store.read(lambda tx: tx.runs.get(text))
    if exact is not None:
        return exact
    rows: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(None, 100_000))
    fitting = [r for r in rows if len(text) >= 8 and r.run_id.startswith(text)]
    if len(fitting) != 1:
        raise UsageError(
            f"{text} names {len(fitting) or 'no'} runs.",
            expected="one run",
            remedy="`kfm runs` lists them.",
        )
    return fitting[0]


def journal(call: Call, run: str) -> Journal:
    with open_world(open_workspace(call.workspace)) as world:
        row = find_run(world, run)
        return Journal(
            run_id=row.run_id,
            dataset_id=row.dataset_id,
            state=row.state,
            wal_id=row.wal_id,
            records=list(run_journal(world, row)),
        )
