"""Find what is new or changed upstream and draft it; nothing is published by this command.

Registered datasets that changed become proposals (`kfm review`), with catalog records and verdicts.
Resources of the catalogues in kfm.yml that nobody has registered become drafts below
data/work/_discovered; `--adopt ID` registers one, and it is published only when its licence, labels
and every gate allow it. The same finding twice is one draft.
"""

import time
from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, again, emit, upstream_flag
from kfm.cli.run import Wanted, run_dataset, still_kept, tell
from kfm.cli.terminal import say, show, sign
from kfm.model import Json, KfmError, UsageError
from kfm.upkeep.discover import drafts_in, find_drafts, read_draft, usable_address
from kfm.workspace.config import entry_path, load_dataset
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome
from kfm.zones.durable import create_durably

__all__ = ["configure", "main"]

# a proposal that waits is what this command is for, and so is a denied one: only failures are
# failures
_FINDINGS = (3, 7)


def configure(parser: Parser) -> None:
    parser.add_argument(
        "dataset",
        nargs="*",
        metavar="DATASET",
        help="only these; default: every registered dataset and every catalogue",
    )
    parser.add_argument("--catalogues", action="store_true", help="look at the catalogues only")
    parser.add_argument("--adopt", metavar="ID", help="register the draft of this dataset")
    upstream_flag(parser)


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    if args.adopt:
        return _adopt(workspace, args)
    names = (
        []
        if args.catalogues
        else list(dict.fromkeys(args.dataset)) or still_kept(workspace, workspace.registered())
    )
    for name in args.dataset:
        workspace.require(name)
    outcomes = [o for name in names for o in _looked(workspace, name, args)]
    drafts, left_out, codes = ([], [], []) if args.dataset else _catalogues(workspace, args)
    if args.json:
        emit(
            {
                "datasets": outcomes,
                "drafts": drafts,
                "left_out": left_out,
            }
        )
    elif not names and not workspace.config.catalogues:
        say("No catalogue is named. Add `catalogues: [{url: …, kind: stac}]` to kfm.yml.")
    return max(
        (*codes, *(o.exit_code for o in outcomes if o.exit_code not in _FINDINGS)), default=0
    )


def _looked(workspace: Workspace, name: str, args: Namespace) -> list[Outcome]:
    """Propose one dataset; a finding is told without the exit code that a run would end with."""
    began = time.monotonic()
    wanted = Wanted(
        where=args.workspace,
        as_json=True,
        verbose=args.verbose,
        upstream=args.upstream,
        propose_only=True,
    )
    outcomes = run_dataset(workspace, name, wanted)
    for outcome in outcomes if not args.json else ():
        told = (
            msgspec.structs.replace(outcome, exit_code=0)
            if outcome.exit_code in _FINDINGS
            else outcome
        )
        tell(told, time.monotonic() - began)
        if told is not outcome and outcome.remedy and not outcome.reasons:
            say(f"      {outcome.remedy}")
    return outcomes


def _catalogues(workspace: Workspace, args: Namespace) -> tuple[list[Json], list[Json], list[int]]:
    entries = [e for n in workspace.registered() if (e := workspace.entry(n)) is not None]
    found, omitted, codes = [], [], []
    for catalogue in workspace.config.catalogues:
        with open_world(workspace, upstream=args.upstream) as world:
            try:
                drafts, left_out = find_drafts(world, catalogue, entries)
            except KfmError as error:
                codes.append(error.exit_code)
                say(f"  {sign('FAILED')} {catalogue.url}: {error.happened} {error.remedy}")
                continue
        found += [msgspec.to_builtins(d) for d in drafts]
        omitted += [{"catalogue": catalogue.url, **msgspec.to_builtins(o)} for o in left_out]
        if not args.json:
            fresh = [d for d in drafts if d.new]
            left = f", {len(left_out)} left out" if left_out else ""
            show(
                f"  {sign('PROPOSED' if fresh else 'NOOP')} {catalogue.url}  {len(drafts)} drafts,"
                f" {len(fresh)} new{left}"
            )
            for draft in fresh[:20]:
                print(
                    f"      {draft.dataset_id}: {draft.title}"
                    + ("" if draft.licence else "  (no licence stated)")
                )
                print(f"        {draft.source_url}")
            for omission in left_out[:20]:
                print(f"      left out: {omission.name}. {omission.why}")
            if drafts:
                say(f"      {again(args, f'discover --adopt {drafts[0].dataset_id}')}")
    return found, omitted, codes


def _adopt(workspace: Workspace, args: Namespace) -> int:
    with open_world(workspace) as world:
        entry, known = read_draft(world, args.adopt), drafts_in(world)
    if entry is None:
        raise UsageError(
            f"There is no draft of {args.adopt}.",
            expected=f"one of {', '.join(known) or 'none yet'}",
            remedy="Run `kfm discover`.",
        )
    if workspace.entry(args.adopt) is not None:
        raise UsageError(
            f"{args.adopt} is registered.",
            expected="an unregistered dataset",
            remedy=f"`kfm dataset show {args.adopt}`",
        )
    address = usable_address(str(entry["source"]["url"]))  # the draft may be older than the rule
    path = entry_path(workspace.path, args.adopt)
    create_durably(path, msgspec.yaml.encode(entry))
    try:
        load_dataset(workspace.path, args.adopt)
    except UsageError:
        path.unlink()
        raise
    if args.json:
        emit(
            {
                "dataset_id": args.adopt,
                "registry": f"data/registry/{path.name}",
                "source_url": address,
            }
        )
    else:
        print(f"data/registry/{path.name} is written; it is fetched from {address}")
        print("Add `sensitivity` and `policy_label`, and a licence where none is stated.")
        print(f"\nNext  {again(args, f'propose {args.adopt}')}")
    return 0
