"""Grant the use of a dataset, or list its grants. A grant names a person, a purpose, the steward who signs and the day it ends.

`--purpose publish` lets a restricted dataset's released version become official; other purposes are for readers.
"""

import datetime as dt
from typing import Any

import msgspec

from kfm.cli.approve import signer_of
from kfm.cli.call import Parser, emit
from kfm.clock import rfc3339
from kfm.errors import UsageError
from kfm.grants import Grant, grants_of, write_grant
from kfm.wiring import open_world
from kfm.workspace import open_workspace

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("--to", metavar="NAME", help="the person; without it the grants are listed")
    parser.add_argument("--purpose", default="", help="what for; `publish` or words of your own")
    parser.add_argument("--expires", metavar="DATE", help="the day it ends")
    parser.add_argument("--key", metavar="NAME|FILE", help="the steward's key")


def main(args: Any) -> int:
    workspace = open_workspace(args.workspace)
    workspace.require(args.dataset)
    with open_world(workspace) as world:
        if args.to is None:
            rows = [{**msgspec.to_builtins(g), "state": state} for g, state in grants_of(world, args.dataset)]
            if args.json:
                emit({"grants": rows})
            else:
                for r in rows:
                    print(f"  {r['person']:<20} {r['purpose']:<16} {r['steward']:<20} {r['expires'][:10]}  {r['state']}")
                print(f"{len(rows)} grants")
            return 0
        person, purpose = args.to.strip(), args.purpose.strip()
        if not person or not purpose or not args.expires:
            raise UsageError("A grant names person, purpose and end.", expected="--to, --purpose and --expires", remedy="Add them.")
        expires = _day(args.expires, world.clock.now())
        signer = signer_of(world, workspace, args.key)
        grant = Grant(dataset_id=args.dataset, person=person, purpose=purpose, steward=signer.name, expires=expires)
        path = write_grant(world, grant, signer)
    if args.json:
        emit({"status": "granted", "path": path, **msgspec.to_builtins(grant)})
    else:
        print(f"{grant.steward} grants {grant.person} the use of {args.dataset} for {grant.purpose} until {grant.expires[:10]}")
    return 0


def _day(text: str, now: dt.datetime) -> str:
    try:
        given = dt.datetime.fromisoformat(text)
        day = (given if given.tzinfo else given.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} is not a day.", expected="such as 2027-06-30", remedy="Correct it.") from error
    if day <= now:
        raise UsageError(f"{text} has passed.", expected="a day after today", remedy="A grant that has ended lets nobody do anything.")
    return rfc3339(day)
