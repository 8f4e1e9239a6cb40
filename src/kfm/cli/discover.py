"""Find what is new or changed upstream and draft it; nothing is published by this command."""

import time

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.call import again
from kfm.cli.run import Wanted, run_dataset, still_kept, tell
from kfm.cli.terminal import say, show, sign, write
from kfm.extras.github.drafts import drafted
from kfm.extras.github.proposals import Requested
from kfm.model import KfmError, UsageError
from kfm.upkeep.discover import (
    Draft,
    LeftOut,
    drafts_in,
    find_drafts,
    read_draft,
    usable_address,
)
from kfm.workspace.config import entry_path, load_dataset
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome
from kfm.zones.durable import create_durably

__all__ = ["Adopted", "Discovered", "discovered"]

# a proposal that waits is what this command is for, and so is a denied one: only failures are
# failures
_FINDINGS = (3, 7)
_SHOWN = 20


class Omitted(LeftOut, frozen=True, kw_only=True):
    """What a catalogue offers and no draft was made of."""

    catalogue: str


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """A catalogue that could not be read."""

    catalogue: str
    happened: str
    remedy: str
    exit_code: int


class Discovered(Answer, frozen=True, kw_only=True):
    """What changed upstream, proposed, and what nobody has registered, drafted."""

    datasets: list[Outcome]  # each is told in words as it ends
    drafts: list[Draft]
    left_out: list[Omitted]
    unread: list[Unread]
    pulls: list[Requested] = []  # of --pull-requests

    @property
    def code(self) -> int:
        failed = [o.exit_code for o in self.datasets if o.exit_code not in _FINDINGS]
        return max((*failed, *(each.exit_code for each in self.unread)), default=0)


class Adopted(Answer, frozen=True, kw_only=True):
    """A draft that is registered now."""

    dataset_id: str
    registry: str
    source_url: str

    def tell(self, call: Call) -> None:
        write(f"{self.registry} is written; it is fetched from {self.source_url}")
        write("Add `sensitivity` and `policy_label`, and a licence where none is stated.")
        write(f"\nNext  {again(call, f'propose {self.dataset_id}')}")


def discovered(
    call: Call,
    dataset: list[str],
    catalogues: bool,
    adopt: str | None,
    pull_requests: bool,
    upstream: str | None,
) -> Discovered | Adopted:
    workspace = open_workspace(call.workspace)
    if adopt:
        return _adopt(workspace, adopt)
    for name in dataset:
        workspace.require(name)
    names = list(dict.fromkeys(dataset))
    if not names and not catalogues:
        names = still_kept(workspace, workspace.registered())
    found = Discovered(
        datasets=[o for name in names for o in _looked(call, workspace, name, upstream)],
        drafts=[],
        left_out=[],
        unread=[],
        pulls=[],
    )
    if not dataset:
        _read_catalogues(call, workspace, upstream, found)
    if not names and not workspace.config.catalogues:
        say("No catalogue is named. Add `catalogues: [{url: …, kind: stac}]` to kfm.yml.")
    if pull_requests:
        found.pulls.extend(drafted(workspace, names, found.drafts))
        for each in found.pulls if not call.json else ():
            show(f"  {sign('PROPOSED')} {each.dataset_id:<22} {each.url or each.reason}")
    return found


def _looked(call: Call, workspace: Workspace, name: str, upstream: str | None) -> list[Outcome]:
    """Propose one dataset; a finding is told without the exit code that a run would end with."""
    began = time.monotonic()
    wanted = Wanted(
        where=call.workspace,
        as_json=True,
        verbose=call.verbose,
        upstream=upstream,
        propose_only=True,
    )
    outcomes = run_dataset(workspace, name, wanted)
    for outcome in outcomes if not call.json else ():
        told = (
            msgspec.structs.replace(outcome, exit_code=0)
            if outcome.exit_code in _FINDINGS
            else outcome
        )
        tell(told, time.monotonic() - began)
        if told is not outcome and outcome.remedy and not outcome.reasons:
            say(f"      {outcome.remedy}")
    return outcomes


def _read_catalogues(
    call: Call, workspace: Workspace, upstream: str | None, found: Discovered
) -> None:
    """Draft what every catalogue offers, and tell it as it is read."""
    entries = [e for n in workspace.registered() if (e := workspace.entry(n)) is not None]
    for catalogue in workspace.config.catalogues:
        with open_world(workspace, upstream=upstream) as world:
            try:
                drafts, left_out = find_drafts(world, catalogue, entries)
            except KfmError as error:
                unread = Unread(
                    catalogue=catalogue.url,
                    happened=error.happened,
                    remedy=error.remedy,
                    exit_code=error.exit_code,
                )
                found.unread.append(unread)
                say(f"  {sign('FAILED')} {catalogue.url}: {error.happened} {error.remedy}")
                continue
        found.drafts.extend(drafts)
        found.left_out.extend(
            Omitted(catalogue=catalogue.url, **msgspec.structs.asdict(each)) for each in left_out
        )
        if not call.json:
            _tell_catalogue(catalogue.url, drafts, left_out)


def _tell_catalogue(url: str, drafts: list[Draft], left_out: list[LeftOut]) -> None:
    fresh = [d for d in drafts if d.new]
    left = f", {len(left_out)} left out" if left_out else ""
    show(
        f"  {sign('PROPOSED' if fresh else 'NOOP')} {url}  {len(drafts)} drafts,"
        f" {len(fresh)} new{left}"
    )
    for draft in fresh[:_SHOWN]:
        unstated = "" if draft.licence else "  (no licence stated)"
        show(f"      {draft.dataset_id}: {draft.title}{unstated}", data=True)
        show(f"        {draft.source_url}", data=True)
    for omission in left_out[:_SHOWN]:
        show(f"      left out: {omission.name}. {omission.why}", data=True)
    if drafts:
        say(f"      kfm discover --adopt {drafts[0].dataset_id}")


def _adopt(workspace: Workspace, name: str) -> Adopted:
    with open_world(workspace) as world:
        entry, known = read_draft(world, name), drafts_in(world)
    if entry is None:
        raise UsageError(
            f"There is no draft of {name}.",
            expected=f"one of {', '.join(known) or 'none yet'}",
            remedy="Run `kfm discover`.",
        )
    if workspace.entry(name) is not None:
        raise UsageError(
            f"{name} is registered.",
            expected="an unregistered dataset",
            remedy=f"`kfm dataset show {name}`",
        )
    address = usable_address(str(entry["source"]["url"]))  # the draft may be older than the rule
    path = entry_path(workspace.path, name)
    create_durably(path, msgspec.yaml.encode(entry))
    try:
        load_dataset(workspace.path, name)
    except UsageError:
        path.unlink()
        raise
    return Adopted(dataset_id=name, registry=f"data/registry/{path.name}", source_url=address)
