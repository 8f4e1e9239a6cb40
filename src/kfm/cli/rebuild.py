"""Make the output of a receipt again from what was captured then, and compare it byte for byte.
Nothing is published.
"""

from pathlib import Path

import msgspec

from kfm.access.boundary import made_by
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import reader_of
from kfm.cli.terminal import sign, write
from kfm.evidence.receipts import read_receipt
from kfm.model import IntegrityError, Json, Receipt, UsageError
from kfm.upkeep.rebuild import Rebuilt, rebuild, record_of_receipt
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import rebuilt_target
from kfm.workspace.wiring import open_world
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["MadeAgain", "made_again"]

_NEEDED = {"sources", "base_version", "base_generation", "tool_versions"}


class MadeAgain(Rebuilt, Answer, frozen=True, kw_only=True):
    """The table of a run, made again and compared."""

    run_id: str
    dataset_id: str

    @property
    def code(self) -> int:
        return 0 if self.equal else IntegrityError.exit_code

    def tell(self, call: Call) -> None:
        write(
            f"{sign('PASS' if self.equal else 'FAILED')} {self.path} of run {self.run_id}:"
            f" {'byte-equal' if self.equal else 'differs'}"
        )
        write(f"  receipt  {self.expected}\n  rebuilt  {self.made}")
        if not self.equal:
            other = [
                f"{tool} {then} then, {self.now[tool]} now"
                for tool, then in self.then.items()
                if tool in self.now and then != self.now[tool]
            ]
            write(f"  tools    {', '.join(other) or 'the same as then'}")


def made_again(call: Call, receipt: Path, reader: str | None) -> MadeAgain:
    try:
        told = msgspec.json.decode(read_receipt(receipt), type=Receipt)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{receipt.name} is not a receipt: {getattr(error, 'strerror', None) or error}.",
            expected="a file below receipts/",
            remedy="Check the path.",
        ) from error
    workspace = open_workspace(call.workspace)
    with open_world(workspace) as world:
        record, target = _asked(workspace, world, told)
        # what may not be read is not made again for anybody either
        made_by(world, told.run_id, reader_of(reader))
        found = rebuild(world, told, record, target)
    return answering(MadeAgain, found, run_id=told.run_id, dataset_id=told.dataset_id)


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
