"""Make an earlier version official again. What it leaves is held: it comes back only by `kfm run
--force`.
"""

from argparse import Namespace
from pathlib import Path

import msgspec

from kfm.cli.call import Parser, clock_flag, emit, heed_clock, offer
from kfm.evidence.references import dataset_of, resolve
from kfm.model import Receipt, UsageError
from kfm.run.rollback import rollback
from kfm.upkeep.judge_official import check_version
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument(
        "dataset", nargs="?", metavar="DATASET", help="may be left out with --receipt"
    )
    parser.add_argument(
        "--to", metavar="REF", help="the version; default: the one before the present"
    )
    parser.add_argument(
        "--receipt",
        type=Path,
        metavar="FILE",
        help="instead of --to: the version that this receipt of a run names",
    )
    parser.add_argument("--reason", default="", help="why; recorded in the channel")
    clock_flag(parser)


def main(args: Namespace) -> int:
    if not args.reason.strip():
        raise UsageError(
            "A rollback needs a reason.",
            expected='--reason "…"',
            remedy="Say why; it is signed into the channel.",
        )
    workspace = open_workspace(args.workspace)
    dataset_id: str | None = args.dataset
    to: str | None = args.to
    if args.receipt is not None:
        dataset_id, to = _named_by(args.receipt, dataset_id, to)
    if dataset_id is None:
        raise UsageError(
            "No dataset is named.",
            expected="DATASET, or --receipt FILE",
            remedy="`kfm dataset list` shows what there is.",
        )
    workspace.require(dataset_id)
    with open_world(workspace) as world:
        heed_clock(world, args.clock_ok, dataset_id)
        text = to if to is None or "@" in to else f"{dataset_id}@{to}"
        if text is not None and dataset_of(text) != dataset_id:
            raise UsageError(
                f"{to} is no version of {dataset_id}.",
                expected=f"{dataset_id}@…",
                remedy="Correct --to.",
            )
        version = resolve(world, text).version_id if text else None
        made = rollback(
            world,
            dataset_id,
            version,
            args.reason.strip(),
            lambda found: check_version(world, dataset_id, found),
        )
        offer(args.workspace, world, dataset_id)
    if args.json:
        emit(
            {
                "status": "rolled_back",
                "dataset_id": dataset_id,
                "version_id": made.version_id,
                "generation": made.generation,
            }
        )
        return 0
    print(f"{dataset_id} is {str(made.version_id)[:9]}… again, generation {made.generation}")
    print(f"\nNext  kfm get {dataset_id}")
    return 0


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
