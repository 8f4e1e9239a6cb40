"""Print the journal of a run: what it intended, what it did, in order; its hash chain is
checked.
"""

from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, emit
from kfm.evidence.journal import check_chain
from kfm.evidence.run_files import read_run_file
from kfm.model import IntegrityError, LedgerRow, UsageError, WalRecord
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "find_run", "journal_of", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run id, or its beginning")


def find_run(world: World, text: str) -> LedgerRow:
    rows: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(None, 100_000))
    fitting = [r for r in rows if r.run_id == text] or [
        r for r in rows if len(text) >= 8 and r.run_id.startswith(text)
    ]
    if len(fitting) != 1:
        raise UsageError(
            f"{text} names {len(fitting) or 'no'} runs.",
            expected="one run",
            remedy="`kfm runs` lists them.",
        )
    return fitting[0]


def journal_of(world: World, row: LedgerRow) -> list[WalRecord]:
    """From the store, or from the archive beside the receipts; the same records either way."""
    records: list[WalRecord] = world.store.read(lambda tx: tx.journals.get(row.wal_id))
    if not records:
        raw = read_run_file(world.data, row.dataset_id, row.run_id, "wal.jsonl") or b""
        try:
            records = [msgspec.json.decode(line, type=WalRecord) for line in raw.splitlines()]
        except msgspec.DecodeError as error:
            raise IntegrityError(
                f"The archived journal of run {row.run_id} is damaged.",
                expected="intact records",
                remedy="Restore wal.jsonl from a backup.",
            ) from error
    check_chain(records)
    return records


def main(args: Namespace) -> int:
    with open_world(open_workspace(args.workspace)) as world:
        row = find_run(world, args.run)
        records = journal_of(world, row)
    if args.json:
        emit(
            {
                "run_id": row.run_id,
                "wal_id": row.wal_id,
                "records": [msgspec.to_builtins(r) for r in records],
            }
        )
        return 0
    print(f"run {row.run_id}  {row.dataset_id}  {row.state}  journal {row.wal_id[:12]}…\n")
    for r in records:
        payload = r.payload if len(r.payload) <= 60 else r.payload[:57] + "…"
        print(f"  {r.seq:>3}  {r.ts[11:23]}  {r.phase:<8} {r.step_id:<10} {r.status:<12} {payload}")
    return 0
