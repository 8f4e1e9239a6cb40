"""Make the output of a receipt again from what was captured then, and compare it byte for byte.
Nothing is published.
"""

from argparse import Namespace
from pathlib import Path

import msgspec

from kfm.cli.call import Parser, emit, reader_flag, reader_of
from kfm.cli.terminal import say, sign
from kfm.evidence.receipts import read_receipt
from kfm.judge.boundary import made_by
from kfm.model import IntegrityError, Json, Receipt, UsageError
from kfm.upkeep.rebuild import rebuild, record_of_receipt
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import rebuilt_target
from kfm.workspace.wiring import open_world
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["configure", "main"]

_NEEDED = {"sources", "base_version", "base_generation", "tool_versions"}


def configure(parser: Parser) -> None:
    parser.add_argument("receipt", type=Path, metavar="receipt.json", help="a file below receipts/")
    reader_flag(parser)


def main(args: Namespace) -> int:
    try:
        receipt = msgspec.json.decode(read_receipt(args.receipt), type=Receipt)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{args.receipt.name} is not a receipt: {getattr(error, 'strerror', None) or error}.",
            expected="a file below receipts/",
            remedy="Check the path.",
        ) from error
    workspace = open_workspace(args.workspace)
    with open_world(workspace) as world:
        record, target = _asked(workspace, world, receipt)
        # what may not be read is not made again for anybody either
        made_by(world, receipt.run_id, reader_of(args))
        found = rebuild(world, receipt, record, target)
    code = 0 if found.equal else 6
    if args.json:
        emit(
            {
                "run_id": receipt.run_id,
                "dataset_id": receipt.dataset_id,
                **msgspec.to_builtins(found),
            }
        )
        return code
    print(
        f"{sign('PASS' if found.equal else 'FAILED')} {found.path} of run {receipt.run_id}:"
        f" {'byte-equal' if found.equal else 'differs'}"
    )
    print(f"  receipt  {found.expected}\n  rebuilt  {found.made}")
    if code:
        other = {
            k: (v, found.now.get(k))
            for k, v in found.then.items()
            if k in found.now and v != found.now[k]
        }
        print(
            "  tools    "
            + (
                ", ".join(f"{k} {a} then, {b} now" for k, (a, b) in other.items())
                or "the same as then"
            )
        )
        say("exit 6")
    return code


def _asked(workspace: Workspace, world: World, receipt: Receipt) -> tuple[Json, Target]:
    """The record of the run and what it was asked to do."""
    try:
        record = record_of_receipt(world, receipt)
        target = rebuilt_target(workspace, record)
        missing = _NEEDED - record.keys()
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(receipt) from error
    if missing:
        raise _damaged(receipt)
    return record, target


def _damaged(receipt: Receipt) -> IntegrityError:
    return IntegrityError(
        f"run_record.json of run {receipt.run_id} is damaged.",
        expected="the record the run left",
        remedy="Restore it from a backup.",
    )
