"""Countersign channels, and check them against what a witness saw, so that no operator can rewrite
history unseen.

kfm witness sign --key NAME|FILE [--channel DATASET] -o DIR      adds DIR/<dataset>/<generation>.json for what is new
kfm witness check DIR                                            exit 6 when the channel says something else now
"""

from argparse import Namespace
from pathlib import Path

from kfm.cli.call import Parser, emit
from kfm.cli.terminal import say, sign
from kfm.evidence.folder_check import Verified
from kfm.keys.trust import unwrap
from kfm.keys.witness import check_witnesses, witness_statement
from kfm.model import Denied, IntegrityError, UsageError, ids
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from kfm.zones.durable import create_durably

__all__ = ["check", "configure", "main", "read_witness"]


def configure(parser: Parser) -> None:
    parser.add_argument("action", choices=("sign", "check"))
    parser.add_argument(
        "dir", nargs="?", type=Path, metavar="DIR", help="check: the folder of countersignatures"
    )
    parser.add_argument("--key", metavar="NAME|FILE", help="sign: the witness's key")
    parser.add_argument(
        "--channel", metavar="DATASET", help="sign: only this one; default: every channel"
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="sign: where the countersignatures go"
    )


def main(args: Namespace) -> int:
    folder = args.output if args.action == "sign" else args.dir
    if folder is None or (args.action == "sign" and not args.key):
        raise UsageError(
            "An argument is missing.",
            expected="kfm witness sign --key NAME -o DIR, or kfm witness check DIR",
            remedy="Name it.",
        )
    workspace = open_workspace(args.workspace)
    with open_world(workspace) as world:
        if args.action == "sign":
            channels = workspace.data / "catalog" / "channels"
            names = (
                [args.channel]
                if args.channel
                else sorted(p.name for p in channels.iterdir())
                if channels.is_dir()
                else []
            )
            made = sum(_sign(world, name, args.key, folder) for name in names)
            (
                emit({"signed": made})
                if args.json
                else print(f"{sign('PASS')} {made} generations countersigned in {folder}")
            )
            return 0
        agreed = check(world, folder, found := Verified())
    if args.json:
        emit({"agreed": agreed, "problems": found.problems})
        return found.exit_code
    for problem in found.problems:
        print(f"  {sign('FAILED')} {problem['where']}: {problem['what']}")
    print(
        f"{sign('FAILED' if found.problems else 'PASS')} {agreed} countersignatures agree,"
        f" {len(found.problems)} do not"
    )
    if found.exit_code:
        say(f"exit {found.exit_code}")
    return found.exit_code


def read_witness(folder: Path) -> dict[str, bytes]:
    """The countersignatures in a folder: `<dataset>/<generation:08>.json` -> bytes."""
    found = {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.glob("*/" + "[0-9]" * 8 + ".json"))
    }
    if not found:
        raise Denied(
            f"{folder} holds no countersignatures.",
            expected="<dataset>/<generation>.json",
            remedy="Make them with `kfm witness sign`.",
        )
    return found


def _digest(world: World, dataset_id: str, generation: int) -> str | None:
    path = world.channel(dataset_id).path(generation)
    return ids.digest(world.data.read(path)) if world.data.exists(path) else None


def check(world: World, folder: Path, found: Verified) -> int:
    """How many agree; what does not goes to `found`."""
    return check_witnesses(
        read_witness(folder),
        world.keys.require_trust(),
        lambda d, n: _digest(world, d, n),
        found.wrong,
    )


def _sign(world: World, dataset_id: str, key: str, folder: Path) -> int:
    """Countersign every generation that verifies, continues its predecessor, and is not
    countersigned yet.
    """
    witness, trust = world.keys.person(key), world.keys.require_trust()
    made, number, prev = 0, 1, None
    while (found := world.channel(dataset_id).predicate(number)) is not None:
        digest, target = (
            str(_digest(world, dataset_id, number)),
            folder / dataset_id / f"{number:08}.json",
        )
        seen = unwrap(target.read_bytes())["predicate"] if target.exists() else {"digest": digest}
        if found.prev != prev or seen.get("digest") != digest:
            raise IntegrityError(
                f"History was rewritten: generation {number} of {dataset_id} is not the one that"
                " was there before.",
                expected="a channel that only grows",
                remedy=(
                    "Nothing was signed. Ask the operator, and compare with `kfm witness check`."
                ),
            )
        if not target.exists():
            signed = witness.sign(witness_statement(dataset_id, number, digest, trust.fingerprint))
            trust.verified_by(signed, "witness")  # a key that is no witness is refused here
            create_durably(target.absolute(), signed)
            made += 1
        number, prev = number + 1, digest
    return made
