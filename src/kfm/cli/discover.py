"""Find what is new or changed upstream and draft it; nothing is published by this command.

Registered datasets that changed become proposals (`kfm review`), with catalog records and verdicts. Resources of the catalogues in
kfm.yml that nobody has registered become drafts below data/work/_discovered; `--adopt ID` registers one, and it is published only
when its licence, labels and every gate allow it. The same finding twice is one draft.
"""

from typing import Any

import msgspec

from kfm.cli.call import Parser, emit
from kfm.cli.run import run_dataset
from kfm.cli.terminal import say, show, sign
from kfm.config import entry_path, load_dataset
from kfm.errors import KfmError, UsageError
from kfm.wiring import open_world
from kfm.workspace import Workspace, open_workspace

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", nargs="*", metavar="DATASET", help="only these; default: every registered dataset and every catalogue")
    parser.add_argument("--catalogues", action="store_true", help="look at the catalogues only")
    parser.add_argument("--adopt", metavar="ID", help="register the draft of this dataset")
    parser.add_argument("--upstream", choices=("live", "replay", "sample"), default="live", help="where bytes come from")
    parser.set_defaults(dry_run=False, spec=None, propose_only=True, force=False, reason="")


def main(args: Any) -> int:
    workspace = open_workspace(args.workspace)
    if args.adopt:
        return _adopt(workspace, args)
    names = [] if args.catalogues else list(dict.fromkeys(args.dataset)) or workspace.registered()
    for name in args.dataset:
        workspace.require(name)
    outcomes = [o for name in names for o in run_dataset(workspace, name, args, "", 60.0)]
    drafts, codes = ([], []) if args.dataset else _catalogues(workspace, args)
    if args.json:
        emit({"datasets": [msgspec.to_builtins(o) for o in outcomes], "drafts": drafts})
    elif not names and not workspace.config.catalogues:
        say("No catalogue is named. Add `catalogues: [{url: …, kind: stac}]` to kfm.yml.")
    # A proposal that waits is what this command is for, and so is a denied one: only failures are failures.
    return max((*codes, *(o.exit_code for o in outcomes if o.exit_code not in (3, 7))), default=0)


def _catalogues(workspace: Workspace, args: Any) -> tuple[list[dict[str, Any]], list[int]]:
    from kfm.discover import find_drafts

    entries = [e for n in workspace.registered() if (e := workspace.entry(n)) is not None]
    found, codes = [], []
    for catalogue in workspace.config.catalogues:
        with open_world(workspace, upstream=args.upstream) as world:
            try:
                drafts = find_drafts(world, catalogue, entries)
            except KfmError as error:
                codes.append(error.exit_code)
                say(f"  {sign('FAILED')} {catalogue.url}: {error.happened} {error.remedy}")
                continue
        found += [msgspec.to_builtins(d) for d in drafts]
        if not args.json:
            fresh = [d for d in drafts if d.new]
            show(f"  {sign('PROPOSED' if fresh else 'NOOP')} {catalogue.url}  {len(drafts)} drafts, {len(fresh)} new")
            for draft in fresh[:20]:
                print(f"      {draft.dataset_id}: {draft.title}" + ("" if draft.licence else "  (no licence stated)"))
            if drafts:
                say(f"      kfm discover --adopt {drafts[0].dataset_id}")
    return found, codes


def _adopt(workspace: Workspace, args: Any) -> int:
    from kfm.discover import drafts_in, read_draft

    with open_world(workspace) as world:
        entry, known = read_draft(world, args.adopt), drafts_in(world)
    if entry is None:
        raise UsageError(
            f"There is no draft of {args.adopt}.", expected=f"one of {', '.join(known) or 'none yet'}", remedy="Run `kfm discover`."
        )
    if workspace.entry(args.adopt) is not None:
        raise UsageError(f"{args.adopt} is registered.", expected="an unregistered dataset", remedy=f"`kfm dataset show {args.adopt}`")
    path = entry_path(workspace.path, args.adopt)
    path.write_bytes(msgspec.yaml.encode(entry))
    try:
        load_dataset(workspace.path, args.adopt)
    except UsageError:
        path.unlink()
        raise
    if args.json:
        emit({"dataset_id": args.adopt, "registry": f"data/registry/{path.name}"})
    else:
        print(f"data/registry/{path.name} is written. Add `sensitivity` and `policy_label`, and a licence where none is stated.")
        print(f"\nNext  kfm propose {args.adopt}")
    return 0
