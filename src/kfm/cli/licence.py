"""Ask for a licence, record the one that was given, or sign that a dataset may be public although
its licence says less.

kfm licence ask ID                                writes the letter to the source
kfm licence set ID SPDX --proof FILE              records the answer with its proof, in data/registry/proofs
kfm licence allow ID --reason … --key NAME        signs once that data under this licence (non-commercial, no derivatives, …) may be
                                                  public here; another licence voids it
kfm licence allow ID --records COLUMN=VALUE …     the same for records whose own column says that they are restricted
"""

from argparse import Namespace
from pathlib import Path

import msgspec

from kfm.cli.approve import signer_of
from kfm.cli.call import Parser, again, emit
from kfm.judge.gates.mandatory import is_spdx
from kfm.judge.permits import Permit, reconsider, write_permit
from kfm.model import DatasetEntry, UsageError, ids, restrictions, rfc3339
from kfm.model.paths import registry_path
from kfm.workspace.config import change_entry
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("action", choices=("ask", "set", "allow"))
    parser.add_argument("dataset", metavar="ID")
    parser.add_argument(
        "licence", nargs="?", metavar="SPDX", help="set: the licence, an SPDX id such as CC-BY-4.0"
    )
    parser.add_argument(
        "--proof",
        type=Path,
        metavar="FILE",
        help="set, allow: the mail or page that shows it was given",
    )
    parser.add_argument(
        "--records", metavar="COLUMN=VALUE", help="allow: the records that say this of themselves"
    )
    parser.add_argument("--reason", default="", help="allow: why; signed, public")
    parser.add_argument(
        "--key",
        metavar="NAME|FILE",
        help="allow: your key; default: KFM_KEY; else you are asked, on a terminal",
    )


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    entry = workspace.require(args.dataset)
    if args.action == "ask":
        with open_world(workspace) as world:
            rows = world.store.read(lambda tx: tx.runs.recent(args.dataset, 1))
        letter = _letter(entry, rows[0].timestamp[:10] if rows else None)
        if args.json:
            emit({"dataset_id": args.dataset, "letter": letter})
        else:
            print(letter)
        return 0
    if args.action == "allow":
        return _allow(workspace, entry, args)
    if not args.licence or args.proof is None:
        raise UsageError(
            "A licence needs its proof.",
            expected="kfm licence set ID SPDX --proof FILE",
            remedy="Name both.",
        )
    if not is_spdx(args.licence) or args.licence.upper() in ("NOASSERTION", "NONE"):
        raise UsageError(
            f"{args.licence!r} is not an SPDX licence id.",
            expected="one such as CC-BY-4.0",
            remedy="See spdx.org/licenses.",
        )
    with open_world(workspace) as world:
        kept, _ = _keep_proof(world, args)
    change_entry(workspace.path, args.dataset, {"licence": args.licence, "licence_proof": kept})
    if args.json:
        emit(
            {
                "status": "recorded",
                "dataset_id": args.dataset,
                "licence": args.licence,
                "proof": kept,
            }
        )
        return 0
    print(
        f"{args.dataset} is {args.licence}, proof kept as data/registry/{kept}\n\nNext "
        f" {again(args, f'run {args.dataset}')}"
    )
    return 0


def _keep_proof(world: World, args: Namespace) -> tuple[str, str]:
    """(where the proof is kept below data/registry, its digest)."""
    try:
        proof = args.proof.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{args.proof} cannot be read: {error.strerror}.",
            expected="the proof",
            remedy="Check the path.",
        ) from error
    kept = f"proofs/{args.dataset}-{ids.digest(proof)[7:23]}{args.proof.suffix}"
    world.data.create(registry_path(kept), proof)
    return kept, ids.digest(proof)


def _allow(workspace: Workspace, entry: DatasetEntry, args: Namespace) -> int:
    """Sign permits for every licence that needs one, or for the records with one value; what waited
    for it is judged again.
    """
    if not args.reason.strip():
        raise UsageError(
            "A permit needs a reason.",
            expected='--reason "…"',
            remedy="Say why; it is signed with it.",
        )
    column, sep, value = (args.records or "").partition("=")
    if args.records is not None and not (sep and column):
        raise UsageError(
            "--records is not COLUMN=VALUE.",
            expected="--records access=restricted",
            remedy="Correct it.",
        )
    with open_world(workspace) as world:
        stated = dict.fromkeys(
            str(e.licence)
            for e in world.family(args.dataset)
            if e.licence and is_spdx(e.licence) and restrictions(e.licence)
        )
        if args.records is None and not stated:
            raise UsageError(
                f"{args.dataset} needs no permit: {entry.licence or 'no licence'} is registered.",
                expected="a licence that does not let everybody use and pass it on",
                remedy="`kfm gates` says what else keeps it from being published.",
            )
        signer = signer_of(world, workspace, args.key)
        said = {
            "dataset_id": args.dataset,
            "person": signer.name,
            "reason": args.reason.strip(),
            "made_at": rfc3339(world.clock.now()),
        }
        if args.proof is not None:
            said["proof"] = _keep_proof(world, args)[1]
        if args.records is not None:
            permits = [Permit(about="records", column=column, value=value, **said)]
        else:
            permits = [Permit(about="licence", licence=licence, **said) for licence in stated]
        paths = [write_permit(world, permit, signer) for permit in permits]
        judged_again = reconsider(world, args.dataset)
    if args.json:
        emit(
            {
                "status": "allowed",
                "paths": paths,
                "permits": [msgspec.to_builtins(p) for p in permits],
                "judged_again": judged_again,
            }
        )
        return 0
    what = (
        f"records with {args.records}"
        if args.records is not None
        else f"data under {', '.join(stated)}"
    )
    print(
        f"{signer.name} signed that {what} of {args.dataset} may be public\n\nNext "
        f" {again(args, f'run {args.dataset}')}"
    )
    return 0


def _letter(entry: DatasetEntry, seen: str | None) -> str:
    where = entry.source.url or ", ".join(entry.source.datasets)
    last = f"It was last read on {seen}. " if seen else ""
    return f"""To: {entry.custodian or "the publisher of " + entry.title}
Subject: Under which licence may {entry.title} be used?

We keep the dataset "{entry.title}" fresh from

  {where}

{last}We find no licence stated there. Without one nobody may publish it, so it stays unpublished.

Would you tell us the licence, as an SPDX identifier (for example CC0-1.0 or CC-BY-4.0), and the page that states it?
A reply to this letter is enough; it is kept with the dataset as proof.
"""
