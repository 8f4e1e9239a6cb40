"""Register, list, show and check datasets.

kfm dataset new ID --url URL [--format csv|json|geojson] [--licence SPDX] [--sensitivity public] [--policy-label public]
kfm dataset list | show ID | check [ID]
kfm dataset rename ID NEW | retire ID --reason "…"
"""

from typing import Any

import msgspec

from kfm.cli.call import Parser, again, emit
from kfm.cli.terminal import say
from kfm.config import change_entry, check_source_url, new_entry
from kfm.errors import KfmError, UsageError
from kfm.model.ids import check_dataset_id
from kfm.workspace import open_workspace

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("action", choices=("new", "list", "show", "check", "rename", "retire"))
    parser.add_argument("dataset_id", nargs="?", metavar="ID")
    parser.add_argument("to", nargs="?", metavar="NEW", help="rename: the new id; the old one stays as an alias")
    parser.add_argument("--reason", default="", help="retire: why it is no longer run")
    parser.add_argument("--url", help="where the file is; {since}, {until} and {partition} are filled at run time")
    parser.add_argument("--format", choices=("csv", "json", "geojson"), help="default: from the end of the URL's path")
    parser.add_argument("--title", help="default: the id in words")
    parser.add_argument("--licence", "--license", dest="licence", help="an SPDX id; without one nothing is published")
    parser.add_argument("--sensitivity", choices=("public", "restricted", "sensitive-location", "aggregate-only"))
    parser.add_argument("--policy-label", help="what policy reads; `public` for open data")
    parser.add_argument("--key", action="append", default=[], metavar="COLUMN", help="a column of the business key; repeatable")
    parser.add_argument("--time-column", help="rows outside a window are dropped by it")
    parser.add_argument(
        "--cadence",
        default="daily",
        help="how often it is looked at: real-time, daily, weekly, annual, static, a length or a cron line; default: daily",
    )
    parser.add_argument("--encoding", help="of the file, when it is not UTF-8")


def main(args: Any) -> int:
    workspace = open_workspace(args.workspace)
    if args.action == "new":
        return _new(workspace, args)
    if args.action == "list":
        return _list(workspace, args)
    if args.action in ("rename", "retire"):
        return _change(workspace, args)
    names = [args.dataset_id] if args.dataset_id else workspace.registered()
    if args.action == "show":
        if not args.dataset_id:
            raise UsageError("No dataset is named.", expected="kfm dataset show ID", remedy="`kfm dataset list` shows what there is.")
        emit(msgspec.to_builtins(workspace.require(args.dataset_id)))
        return 0
    return _check(workspace, names, args)


def _new(workspace: Any, args: Any) -> int:
    if not args.dataset_id or not args.url:
        raise UsageError("A dataset needs an id and an address.", expected="kfm dataset new ID --url URL", remedy="Name both.")
    check_dataset_id(args.dataset_id)
    check_source_url(args.url, "--url")
    form = args.format or _guess(args.url)
    path = workspace.path / "data" / "registry" / f"{args.dataset_id}.yml"
    if workspace.entry(args.dataset_id) is not None:
        raise UsageError(f"{args.dataset_id} is registered already.", expected="a new id", remedy=f"Edit data/registry/{path.name}.")
    source: dict[str, Any] = {"kind": "http_file", "url": args.url, "format": form}
    source |= {k: v for k, v in (("time_column", args.time_column), ("encoding", args.encoding)) if v}
    plain: dict[str, Any] = {"dataset_id": args.dataset_id, "title": args.title or args.dataset_id.replace("_", " ").capitalize()}
    plain |= {k: v for k, v in (("licence", args.licence), ("sensitivity", args.sensitivity), ("policy_label", args.policy_label)) if v}
    plain |= {"source": source, "business_key": list(args.key), "cadence": args.cadence}
    new_entry(plain)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.yaml.encode(plain, order=None))
    missing = [k for k in ("licence", "sensitivity", "policy_label") if k not in plain]
    if args.json:
        emit({"status": "registered", "dataset_id": args.dataset_id, "missing": missing})
        return 0
    print(f"Registered {args.dataset_id} in data/registry/{path.name}")
    if missing:
        print(f"Nothing is published without {', '.join(missing)}: add {'it' if len(missing) == 1 else 'them'} there.")
    print(f"\nNext  {again(args, f'run {args.dataset_id}')}")
    return 0


def _change(workspace: Any, args: Any) -> int:
    if not args.dataset_id or (args.action == "rename" and not args.to):
        what, usage = "new id" if args.dataset_id else "dataset", "rename ID NEW" if args.action == "rename" else 'retire ID --reason "…"'
        raise UsageError(f"No {what} is named.", expected=f"kfm dataset {usage}", remedy="`kfm dataset list` shows what there is.")
    entry = workspace.require(args.dataset_id)
    if args.action == "retire":
        if not args.reason.strip():
            raise UsageError("Retiring needs a reason.", expected='--reason "…"', remedy="Say why; it is kept in the registry.")
        change_entry(workspace.path, args.dataset_id, {"retired": args.reason.strip()})
        said = {"status": "retired", "dataset_id": args.dataset_id, "reason": args.reason.strip()}
        words = f"{args.dataset_id} is retired; what is official stays official, and nothing new is published"
    else:
        new = check_dataset_id(args.to)
        if workspace.entry(new) is not None:
            raise UsageError(f"{new} is registered already.", expected="a new id", remedy="Choose another.")
        if (workspace.data / "catalog" / "channels" / args.dataset_id).is_dir() or (workspace.data / "raw" / args.dataset_id).is_dir():
            remedy = f"Register {new} with `aliases: [{args.dataset_id}]`, then `kfm dataset retire {args.dataset_id}`: its history stays where it was signed."
            raise UsageError(
                f"{args.dataset_id} has a history that is signed under its name.", expected="a dataset that was never run", remedy=remedy
            )
        change_entry(workspace.path, args.dataset_id, {"dataset_id": new, "aliases": [*entry.aliases, args.dataset_id]}, new)
        said = {"status": "renamed", "dataset_id": new, "alias": args.dataset_id}
        words = f"{args.dataset_id} is {new} now; the old name is kept as an alias"
    if args.json:
        emit(said)
    else:
        print(words)
    return 0


def _guess(url: str) -> str:
    end = url.split("?")[0].rsplit(".", 1)[-1].lower()
    if end not in ("csv", "json", "geojson"):
        raise UsageError("The address does not say which format the file has.", expected="--format csv, json or geojson", remedy="Name it.")
    return end


def _list(workspace: Any, args: Any) -> int:
    entries = []
    for name in workspace.registered():
        try:
            entries.append(workspace.require(name))
        except KfmError as error:
            say(f"  {name}: {error.happened} {error.remedy}")
    if args.json:
        emit({"datasets": [{"dataset_id": e.dataset_id, "title": e.title, "licence": e.licence, "url": e.source.url} for e in entries]})
        return 0
    for e in entries:
        print(f"  {e.dataset_id:<24} {e.licence or 'no licence':<14} {e.title}")
    if not entries:
        print("No dataset is registered.\n\nNext  kfm dataset new my_dataset --url https://…")
    return 0


def _check(workspace: Any, names: list[str], args: Any) -> int:
    found = []
    for name in names:
        try:
            workspace.require(name)
        except KfmError as error:
            found.append({"dataset_id": name, "happened": error.happened, "remedy": error.remedy})
    if args.json:
        emit({"findings": found})
    else:
        for f in found:
            print(f"  {f['dataset_id']}: {f['happened']} {f['remedy']}")
        print(f"{len(names)} checked, {len(found)} wrong")
    return 2 if found else 0
