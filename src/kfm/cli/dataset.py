"""Register, list, show and check datasets.

kfm dataset new ID --url URL [--format csv|json|geojson] [--licence SPDX] [--sensitivity public] [--policy-label public]
kfm dataset list | show ID | check [ID]
kfm dataset schema ID [--write]                the columns and types of what is official; --write states them in the registry
kfm dataset rename ID NEW | retire ID --reason "…"

check --json = {"findings": [{dataset_id, happened, expected, remedy}], "warnings": [{dataset_id,
warning}] where there are any}
schema --json = {"dataset_id", "stated": the registry names them, "version_id": null without a
version, "schema": [{name, type, …}], "written"}.
"""

from argparse import Namespace
from shlex import quote

import msgspec

from kfm.cli.call import Parser, again, emit
from kfm.cli.terminal import say
from kfm.judge.boundary import columns_of
from kfm.judge.permits import shown_despite
from kfm.judge.release import check_shown
from kfm.model import DatasetEntry, Json, KfmError, UsageError, check_dataset_id, shown_looks
from kfm.workspace.config import change_entry, check_source_url, entry_path, new_entry
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.zones.durable import create_durably

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument(
        "action", choices=("new", "list", "show", "check", "schema", "rename", "retire")
    )
    parser.add_argument("dataset_id", nargs="?", metavar="ID")
    parser.add_argument(
        "to", nargs="?", metavar="NEW", help="rename: the new id; the old one stays as an alias"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="schema: write it into data/registry/ID.yml; the comments above it stay",
    )
    parser.add_argument("--reason", default="", help="retire: why it is no longer run")
    parser.add_argument(
        "--url", help="where the file is; {since}, {until} and {partition} are filled at run time"
    )
    parser.add_argument(
        "--format",
        choices=("csv", "json", "geojson"),
        help="default: from the end of the URL's path",
    )
    parser.add_argument("--title", help="default: the id in words")
    parser.add_argument(
        "--licence",
        "--license",
        dest="licence",
        help="an SPDX id; without one nothing is published",
    )
    parser.add_argument(
        "--sensitivity", choices=("public", "restricted", "sensitive-location", "aggregate-only")
    )
    parser.add_argument("--policy-label", help="what policy reads; `public` for open data")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="COLUMN",
        help="a column of the business key; repeatable",
    )
    parser.add_argument("--time-column", help="rows outside a window are dropped by it")
    parser.add_argument(
        "--cadence",
        default="daily",
        help=(
            "how often it is looked at: real-time, daily, weekly, annual, static, a length or a"
            " cron line; default: daily"
        ),
    )
    parser.add_argument("--encoding", help="of the file, when it is not UTF-8")


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    if args.action == "new":
        return _new(workspace, args)
    if args.action == "list":
        return _list(workspace, args)
    if args.action in ("rename", "retire"):
        return _change(workspace, args)
    names = [args.dataset_id] if args.dataset_id else workspace.registered()
    if args.action in ("show", "schema"):
        if not args.dataset_id:
            usage = f"kfm dataset {args.action} ID"
            raise UsageError(
                "No dataset is named.",
                expected=usage,
                remedy="`kfm dataset list` shows what there is.",
            )
        if args.action == "schema":
            return _schema(workspace, args)
        emit(msgspec.to_builtins(workspace.require(args.dataset_id)))
        return 0
    return _check(workspace, names, args)


def _new(workspace: Workspace, args: Namespace) -> int:
    if not args.dataset_id or not args.url:
        raise UsageError(
            "A dataset needs an id and an address.",
            expected="kfm dataset new ID --url URL",
            remedy="Name both.",
        )
    check_dataset_id(args.dataset_id)
    check_source_url(args.url, "--url")
    form = args.format or _guess(args.url)
    path = workspace.path / "data" / "registry" / f"{args.dataset_id}.yml"
    if workspace.entry(args.dataset_id) is not None:
        raise UsageError(
            f"{args.dataset_id} is registered already.",
            expected="a new id",
            remedy=f"Edit data/registry/{path.name}.",
        )
    source: Json = {"kind": "http_file", "url": args.url, "format": form}
    source |= {
        k: v for k, v in (("time_column", args.time_column), ("encoding", args.encoding)) if v
    }
    plain: Json = {
        "dataset_id": args.dataset_id,
        "title": args.title or args.dataset_id.replace("_", " ").capitalize(),
    }
    plain |= {
        k: v
        for k, v in (
            ("licence", args.licence),
            ("sensitivity", args.sensitivity),
            ("policy_label", args.policy_label),
        )
        if v
    }
    plain |= {"source": source, "business_key": list(args.key), "cadence": args.cadence}
    new_entry(plain)
    create_durably(path, msgspec.yaml.encode(plain, order=None))
    missing = [k for k in ("licence", "sensitivity", "policy_label") if k not in plain]
    if args.json:
        emit({"status": "registered", "dataset_id": args.dataset_id, "missing": missing})
        return 0
    print(f"Registered {args.dataset_id} in data/registry/{path.name}")
    if missing:
        print(
            f"Nothing is published without {', '.join(missing)}: add"
            f" {'it' if len(missing) == 1 else 'them'} there."
        )
    print(f"\nNext  {again(args, f'run {args.dataset_id}')}")
    return 0


def _change(workspace: Workspace, args: Namespace) -> int:
    if not args.dataset_id or (args.action == "rename" and not args.to):
        what, usage = (
            "new id" if args.dataset_id else "dataset",
            ("rename ID NEW" if args.action == "rename" else 'retire ID --reason "…"'),
        )
        raise UsageError(
            f"No {what} is named.",
            expected=f"kfm dataset {usage}",
            remedy="`kfm dataset list` shows what there is.",
        )
    entry = workspace.require(args.dataset_id)
    if args.action == "retire":
        if not args.reason.strip():
            raise UsageError(
                "Retiring needs a reason.",
                expected='--reason "…"',
                remedy="Say why; it is kept in the registry.",
            )
        change_entry(workspace.path, args.dataset_id, {"retired": args.reason.strip()})
        said = {"status": "retired", "dataset_id": args.dataset_id, "reason": args.reason.strip()}
        words = (
            f"{args.dataset_id} is retired; what is official stays official, and nothing new is"
            " published"
        )
    else:
        new = check_dataset_id(args.to)
        if workspace.entry(new) is not None:
            raise UsageError(
                f"{new} is registered already.", expected="a new id", remedy="Choose another."
            )
        if (workspace.data / "catalog" / "channels" / args.dataset_id).is_dir() or (
            workspace.data / "raw" / args.dataset_id
        ).is_dir():
            remedy = (
                f"Register {new} with `aliases: [{args.dataset_id}]`, then `kfm dataset retire"
                f" {args.dataset_id}`: its history stays where it was signed."
            )
            raise UsageError(
                f"{args.dataset_id} has a history that is signed under its name.",
                expected="a dataset that was never run",
                remedy=remedy,
            )
        change_entry(
            workspace.path,
            args.dataset_id,
            {"dataset_id": new, "aliases": [*entry.aliases, args.dataset_id]},
            new,
        )
        said = {"status": "renamed", "dataset_id": new, "alias": args.dataset_id}
        words = f"{args.dataset_id} is {new} now; the old name is kept as an alias"
    if args.json:
        emit(said)
    else:
        print(words)
    return 0


def _schema(workspace: Workspace, args: Namespace) -> int:
    """What is official, or what the registry states where it does; written down, types are a
    person's to change.
    """
    entry = workspace.require(args.dataset_id)
    with open_world(workspace) as world:
        head = world.store.transaction(lambda tx: world.channel(entry.dataset_id).head(tx))
        columns = entry.schema
        if not columns and head.version_id is not None:
            columns = columns_of(world, entry.dataset_id)
        private = world.is_private(entry.dataset_id) or entry.release is not None
    if not columns:
        raise UsageError(
            f"{entry.dataset_id} has no version yet, so nothing was inferred.",
            expected="an official version, or `schema` in the registry",
            remedy=f"`kfm run {entry.dataset_id}` makes the first one.",
        )
    plain = [
        {
            k: v
            for k, v in msgspec.to_builtins(c).items()
            if (k, v) not in (("nullable", True), ("unit", None))
        }
        for c in columns
    ]
    writes = args.write and not entry.schema
    if writes and (private or entry.source.kind == "join"):
        raise UsageError(
            f"The columns of {entry.dataset_id} are not those of its records: what is"
            f" {'released' if private else 'joined'} has others.",
            expected="a dataset that is published as it is read",
            remedy=f"State `schema` in data/registry/{entry.dataset_id}.yml by hand.",
        )
    if writes:
        change_entry(workspace.path, entry.dataset_id, {"schema": plain})
    if args.json:
        facts = {
            "dataset_id": entry.dataset_id,
            "stated": bool(entry.schema),
            "version_id": head.version_id,
            "schema": plain,
        }
        emit(facts | {"written": bool(writes)})
        return 0
    for c in columns:
        required = "" if c.nullable else "  required"
        print(f"  {c.name:<24} {c.type}{'  ' + c.unit if c.unit else ''}{required}")
    where = f"data/registry/{entry_path(workspace.path, entry.dataset_id).name}"
    if writes:
        print(
            f"\nWritten to {where}; a capture that does not keep to it is set aside by row, or"
            " refused."
        )
    elif entry.schema:
        print(f"\nStated in {where}")
    else:
        print(
            f"\nInferred, as version {head.version_id} has it\n\nNext "
            f" {again(args, f'dataset schema {entry.dataset_id} --write')}"
        )
    return 0


def _guess(url: str) -> str:
    end = url.split("?")[0].rsplit(".", 1)[-1].lower()
    if end not in ("csv", "json", "geojson"):
        raise UsageError(
            "The address does not say which format the file has.",
            expected="--format csv, json or geojson",
            remedy="Name it.",
        )
    return end


def _list(workspace: Workspace, args: Namespace) -> int:
    entries = []
    for name in workspace.registered():
        try:
            entries.append(workspace.require(name))
        except KfmError as error:
            say(f"  {name}: {error.happened} {error.remedy}")
    if args.json:
        emit(
            {
                "datasets": [
                    {
                        "dataset_id": e.dataset_id,
                        "title": e.title,
                        "licence": e.licence,
                        "url": e.source.url,
                    }
                    for e in entries
                ]
            }
        )
        return 0
    for e in entries:
        print(f"  {e.dataset_id:<24} {e.licence or 'no licence':<14} {e.title}")
    if not entries:
        print("No dataset is registered.\n\nNext  kfm dataset new my_dataset --url https://…")
    return 0


def _check_release(workspace: Workspace, entry: DatasetEntry) -> list[str]:
    """Raise `UsageError` for a release that does not say what it shows; returns what a steward must
    say more about.
    """
    if entry.release is None:
        return []
    with open_world(workspace) as world:
        check_shown(world, entry)
        open_looks = [
            pair
            for pair in shown_looks(entry.release)
            if pair not in shown_despite(world, entry.dataset_id)
        ]
    sign = f"kfm grant {entry.dataset_id} --show {{}} --despite {{}} --reason … --key STEWARD"
    return [
        f"The column {column} looks like {look}: it is shown once a steward says why,"
        f" `{sign.format(quote(column), quote(look))}`."
        for column, look in open_looks
    ]


def _check(workspace: Workspace, names: list[str], args: Namespace) -> int:
    found, warned = [], list[dict[str, str]]()
    for name in names:
        try:
            warned += [
                {"dataset_id": name, "warning": said}
                for said in _check_release(workspace, workspace.require(name))
            ]
        except KfmError as error:
            found.append(
                {
                    "dataset_id": name,
                    "happened": error.happened,
                    "expected": error.expected,
                    "remedy": error.remedy,
                }
            )
    if args.json:
        emit({"findings": found} | ({"warnings": warned} if warned else {}))
    else:
        for f in found:
            print(f"  {f['dataset_id']}: {f['happened']} Expected {f['expected']}. {f['remedy']}")
        for w in warned:
            say(f"  warning: {w['dataset_id']}: {w['warning']}")
        print(f"{len(names)} checked, {len(found)} wrong")
    return 2 if found else 0
