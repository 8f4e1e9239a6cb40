"""Ask for a licence, or record the one that was given.

kfm licence ask ID                                writes the letter to the source
kfm licence set ID SPDX --proof FILE              records the answer with its proof, in data/registry/proofs
"""

from pathlib import Path
from typing import Any

from kfm.cli.call import Parser, again, emit
from kfm.config import change_entry
from kfm.errors import UsageError
from kfm.gates.kernel import is_spdx
from kfm.model import ids
from kfm.wiring import open_world
from kfm.workspace import open_workspace

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("action", choices=("ask", "set"))
    parser.add_argument("dataset", metavar="ID")
    parser.add_argument("licence", nargs="?", metavar="SPDX", help="set: the licence, an SPDX id such as CC-BY-4.0")
    parser.add_argument("--proof", type=Path, metavar="FILE", help="set: the mail or page that shows it was given")


def main(args: Any) -> int:
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
    if not args.licence or args.proof is None:
        raise UsageError("A licence needs its proof.", expected="kfm licence set ID SPDX --proof FILE", remedy="Name both.")
    if not is_spdx(args.licence) or args.licence.upper() in ("NOASSERTION", "NONE"):
        raise UsageError(f"{args.licence!r} is not an SPDX licence id.", expected="one such as CC-BY-4.0", remedy="See spdx.org/licenses.")
    try:
        proof = args.proof.read_bytes()
    except OSError as error:
        raise UsageError(f"{args.proof} cannot be read: {error.strerror}.", expected="the proof", remedy="Check the path.") from error
    kept = f"proofs/{args.dataset}-{ids.digest(proof)[7:23]}{args.proof.suffix}"
    with open_world(workspace) as world:
        world.data.create(f"registry/{kept}", proof)
    change_entry(workspace.path, args.dataset, {"licence": args.licence, "licence_proof": kept})
    if args.json:
        emit({"status": "recorded", "dataset_id": args.dataset, "licence": args.licence, "proof": kept})
        return 0
    print(f"{args.dataset} is {args.licence}, proof kept as data/registry/{kept}\n\nNext  {again(args, f'run {args.dataset}')}")
    return 0


def _letter(entry: Any, seen: str | None) -> str:
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
