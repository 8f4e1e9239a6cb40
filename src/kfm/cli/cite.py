"""Print how to cite a version: it names exactly these bytes for ever, and says how to check
them.
"""

from argparse import Namespace

from kfm.cli.call import Parser, emit, reader_flag, reader_of
from kfm.evidence.references import dataset_of
from kfm.evidence.version_records import origin_of
from kfm.judge.boundary import cited
from kfm.model.origin import worded
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("ref", metavar="REF", help="DATASET, DATASET@vHEX or DATASET@GENERATION")
    parser.add_argument("--format", choices=("text", "bibtex", "csl"), default="text")
    reader_flag(parser)


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    with open_world(workspace, asks=True) as world:
        entry = workspace.require(dataset_of(args.ref))
        ref = cited(world, args.ref, reader_of(args))
        row = world.store.read(lambda tx: tx.runs.maker_of(ref.dataset_id, ref.version_id))
        trust = world.keys.trust()
        origin = origin_of(world.data, ref.dataset_id, ref.version_id)
    year = row.timestamp[:4] if row is not None else "n.d."
    by = worded(
        origin,
        entry.custodian or ", ".join(o.split(" <")[0] for o in entry.owners) or "unknown custodian",
    )
    address = f"kfm://dataset/{ref.dataset_id}@{ref.version_id}"
    root = trust.fingerprint if trust is not None else "none"
    csl = {
        "id": f"{ref.dataset_id}-{ref.version_id}",
        "type": "dataset",
        "title": entry.title,
        "publisher": by,
        "version": ref.version_id,
        "issued": {"date-parts": [[int(year)]]} if year.isdigit() else {},
        "URL": address,
        "license": entry.licence,
        "note": (
            f"sha256:{ref.version_digest}, generation {ref.generation}, root {root}"
            + (f", origin {', '.join(origin)}" if origin else "")
        ),
    }
    if args.json or args.format == "csl":
        emit(csl)
    elif args.format == "bibtex":
        print(
            f"@misc{{{ref.dataset_id}_{ref.version_id[:9]},\n  title = {{{entry.title}}},\n  author"
            f" = {{{by}}},\n  year = {{{year}}},\n  version = {{{ref.version_id}}},\n  url ="
            f" {{{address}}},\n  note = {{{csl['note']}}}\n}}"
        )
    else:
        print(f"{by} ({year}). {entry.title}, version {ref.version_id}. {entry.licence}. {address}")
        print(
            f"sha256:{ref.version_digest}, generation {ref.generation}. Check: kfm bundle"
            f" {args.ref} -o f.zip; kfm verify f.zip --root {root}"
        )
    return 0
