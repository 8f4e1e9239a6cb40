"""Grant the use of a dataset, or list its grants. A grant names a person, a purpose, the steward
who signs and the day it ends.

`--purpose publish` lets a restricted dataset's released version become official; other purposes are
for readers.
`--show COLUMN --despite WHAT --reason …` signs that a column of `release.show` is public although
it looks like a name, an address, coordinates or free text, or although places or values that are
withheld were found in it. What WHAT is, the denial says.
"""

import datetime as dt
from argparse import Namespace

import msgspec
from msgspec import UNSET

from kfm.cli.approve import signer_of
from kfm.cli.call import Parser, emit
from kfm.evidence.grants import Grant, grants_of, write_grant
from kfm.judge.permits import Permit, reconsider, write_permit
from kfm.model import LOOKS, DatasetEntry, UsageError, rfc3339
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("--to", metavar="NAME", help="the person; without it the grants are listed")
    parser.add_argument("--purpose", default="", help="what for; `publish` or words of your own")
    parser.add_argument("--expires", metavar="DATE", help="the day it ends")
    parser.add_argument(
        "--show", metavar="COLUMN", help="show a column although something was found in it"
    )
    parser.add_argument(
        "--despite", choices=(*LOOKS, "places", "values"), help="with --show: what was found"
    )
    parser.add_argument("--reason", default="", help="with --show: why; signed, public")
    parser.add_argument("--key", metavar="NAME|FILE", help="the steward's key")


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    entry = workspace.require(args.dataset)
    with open_world(workspace) as world:
        if args.show is not None:
            return _show(world, workspace, entry, args)
        if args.to is None:
            rows = [
                {**msgspec.to_builtins(g), "state": state}
                for g, state in grants_of(world, args.dataset)
            ]
            if args.json:
                emit({"grants": rows})
            else:
                for r in rows:
                    print(
                        f"  {r['person']:<20} {r['purpose']:<16} {r['steward']:<20}"
                        f" {r['expires'][:10]}  {r['state']}"
                    )
                print(f"{len(rows)} grants")
            return 0
        person, purpose = args.to.strip(), args.purpose.strip()
        if not person or not purpose or not args.expires:
            raise UsageError(
                "A grant names person, purpose and end.",
                expected="--to, --purpose and --expires",
                remedy="Add them.",
            )
        expires = _day(args.expires, world.clock.now())
        signer = signer_of(world, workspace, args.key)
        grant = Grant(
            dataset_id=args.dataset,
            person=person,
            purpose=purpose,
            steward=signer.name,
            expires=expires,
        )
        path = write_grant(world, grant, signer)
    if args.json:
        emit({"status": "granted", "path": path, **msgspec.to_builtins(grant)})
    else:
        print(
            f"{grant.steward} grants {grant.person} the use of {args.dataset} for {grant.purpose}"
            f" until {grant.expires[:10]}"
        )
    return 0


def _show(world: World, workspace: Workspace, entry: DatasetEntry, args: Namespace) -> int:
    """A steward's word that a column is shown, with the reason; what waited for it is judged
    again.
    """
    listed = (
        entry.release.show if entry.release is not None and entry.release.show is not UNSET else ()
    )
    if args.show not in listed:
        raise UsageError(
            f"`release.show` of {args.dataset} does not name {args.show}, so it stays withheld.",
            expected=f"a column that it names ({', '.join(listed) or 'it names none'})",
            remedy=(
                f"Add it to `release.show` in data/registry/{args.dataset}.yml first, or correct"
                " the name."
            ),
        )
    lacking = [
        flag
        for flag, given in (
            ("--despite WHAT", args.despite is not None),
            ("--reason", args.reason.strip()),
        )
        if not given
    ]
    if lacking:
        raise UsageError(
            f"To show {args.show} takes {' and '.join(lacking)}.",
            expected=f"--show {args.show} --despite WHAT --reason …",
            remedy=(
                "Say what was found in it and why it is shown all the same; `kfm explain deny` and"
                " `kfm dataset check` print the whole command."
            ),
        )
    signer = signer_of(world, workspace, args.key)
    said = {
        "person": signer.name,
        "reason": args.reason.strip(),
        "made_at": rfc3339(world.clock.now()),
    }
    permit = Permit(
        dataset_id=args.dataset, about="column", column=args.show, value=args.despite, **said
    )
    path = write_permit(world, permit, signer)
    judged_again = reconsider(world, args.dataset)
    if args.json:
        emit(
            {
                "status": "shown",
                "path": path,
                **msgspec.to_builtins(permit),
                "judged_again": judged_again,
            }
        )
    else:
        print(
            f"{signer.name} shows {args.show} of {args.dataset} although it has {args.despite}:"
            f" {permit.reason}"
        )
    return 0


def _day(text: str, now: dt.datetime) -> str:
    try:
        given = dt.datetime.fromisoformat(text)
        day = (given if given.tzinfo else given.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{text!r} is not a day.", expected="such as 2027-06-30", remedy="Correct it."
        ) from error
    if day <= now:
        raise UsageError(
            f"{text} has passed.",
            expected="a day after today",
            remedy="A grant that has ended lets nobody do anything.",
        )
    return rfc3339(day)
