"""Make an earlier version official again."""

from pathlib import Path
from typing import Literal

import msgspec

from kfm.access.references import dataset_of, resolve
from kfm.acts.rollback import rollback
from kfm.cli.answer import Answer, Call
from kfm.cli.call import again, heed_clock, offer
from kfm.cli.terminal import show, write
from kfm.model import Receipt, UsageError
from kfm.upkeep.judge_official import check_version
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["RolledBack", "rolled_back"]


class RolledBack(Answer, frozen=True, kw_only=True):
    """A version that is official again."""

    status: Literal["rolled_back"]
    dataset_id: str
    version_id: str | None
    generation: int

    def tell(self, call: Call) -> None:
        show(
            f"{self.dataset_id} is {str(self.version_id)[:9]}… again, generation {self.generation}"
        )
        write(f"\nNext  {again(call, f'get {self.dataset_id}')}")


def rolled_back(
    call: Call,
    dataset: str | None,
    to: str | None,
    receipt: Path | None,
    reason: str,
    clock_ok: bool,
) -> RolledBack:
    if not reason.strip():
        raise UsageError(
            "A rollback needs a reason.",
            expected='--reason "…"',
            remedy="Say why; it is signed into the channel.",
        )
    workspace = open_workspace(call.workspace)
    if receipt is not None:
        dataset, to = _named_by(receipt, dataset, to)
    if dataset is None:
        raise UsageError(
            "No dataset is named.",
            expected="DATASET, or --receipt FILE",
            remedy="`kfm dataset list` shows what there is.",
        )
    dataset_id = dataset
    workspace.require(dataset_id)
    with open_world(workspace) as world:
        heed_clock(world, clock_ok, dataset_id)
        text = to if to is None or "@" in to else f"{dataset_id}@{to}"
        if text is not None and dataset_of(text) != dataset_id:
            raise UsageError(
                f"{to} is no version of {dataset_id}.",
                expected=f"{dataset_id}@…",
                remedy=f"`kfm history {dataset_id}` lists its versions.",
            )
        version = resolve(world, text).version_id if text else None
        made = rollback(
            world,
            dataset_id,
            version,
            reason.strip(),
            lambda found: check_version(world, dataset_id, found),
        )
        offer(call.workspace, world, dataset_id)
    return RolledBack(
        status="rolled_back",
        dataset_id=dataset_id,
        version_id=made.version_id,
        generation=made.generation,
    )


def _named_by(file: Path, dataset_id: str | None, to: str | None) -> tuple[str, str]:
    """The dataset and the version that a receipt names. Whether it may be official again is asked
    as of any other.
    """
    if to is not None:
        raise UsageError(
            "--to and --receipt exclude one another.", expected="one of them", remedy="Drop one."
        )
    try:
        receipt = msgspec.json.decode(file.read_bytes(), type=Receipt)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}.",
            expected="a receipt",
            remedy="Check the path.",
        ) from error
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{file} is no receipt: {error}.",
            expected="receipts/…/RUN.json",
            remedy="Check the path.",
        ) from error
    dataset = dataset_id or receipt.dataset_id
    prefix = f"kfm://dataset/{dataset}@"
    named = {
        o.id.removeprefix(prefix).partition("/")[0]
        for o in receipt.outputs
        if o.id.startswith(prefix)
    }
    if receipt.dataset_id != dataset or len(named) != 1:
        raise UsageError(
            f"The receipt of run {receipt.run_id} names no version of {dataset}.",
            expected="the receipt of a run that made one official",
            remedy=f"`kfm runs {dataset}` lists its runs.",
        )
    return dataset, f"{dataset}@{named.pop()}"
