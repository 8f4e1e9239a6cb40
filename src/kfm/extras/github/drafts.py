"""What `kfm discover` found, as draft pull requests; the same finding twice is one draft, unchanged."""

from collections.abc import Sequence

from kfm.extras.github.branches import base_branch, keep_branch
from kfm.extras.github.checks import Check, keep_checks
from kfm.extras.github.client import Hub
from kfm.extras.github.evidence import branch_of
from kfm.extras.github.opening import open_hub, refuse_strangers
from kfm.extras.github.proposals import Requested, propose
from kfm.extras.github.pulls import keep_pull
from kfm.model import Denied
from kfm.model.ids import digest
from kfm.upkeep.discover import Draft
from kfm.workspace.folder import Workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["drafted"]


def drafted(workspace: Workspace, names: Sequence[str], drafts: Sequence[Draft]) -> list[Requested]:
    """A draft pull request for each of these datasets that has a proposal, and for each draft of a
    dataset that nobody has registered. What may not be shown stays here.
    """
    refuse_strangers()
    hub = open_hub(workspace)
    with open_world(workspace, asks=True) as world:
        found = [_proposed(hub, world, number, name) for number, name in _waiting(world, names)]
        return found + [_drafted(hub, world, draft) for draft in drafts]


def _waiting(world: World, names: Sequence[str]) -> list[tuple[int, str]]:
    """The newest proposal of each branch."""
    rows = world.store.read(lambda tx: tx.proposals.waiting())
    newest = {branch_of(row): (number, row.dataset_id) for number, row in rows}
    return [(number, name) for number, name in newest.values() if name in names]


def _proposed(hub: Hub, world: World, number: int, dataset_id: str) -> Requested:
    try:
        return propose(hub, world, number, draft=True)
    except Denied as error:
        return Requested(dataset_id=dataset_id, proposal=number, reason=error.happened)


def _drafted(hub: Hub, world: World, draft: Draft) -> Requested:
    """The entry and the catalog record of a dataset nobody has registered; a merge changes nothing
    here: `kfm discover --adopt` registers it.
    """
    base, folder = base_branch(hub), f"proposals/_discovered/{draft.dataset_id}"
    branch = f"kfm/_discovered/{draft.dataset_id}"
    files = {
        f"{folder}/{name}": world.data.read(f"{draft.path}/{name}")
        for name in ("registry.json", "dcat.json")
    }
    about = digest(files[f"{folder}/registry.json"])
    title = f"{draft.dataset_id}: found, not registered"
    sha = keep_branch(hub, branch, base, folder, files, title)
    body = f"<!-- kfm:draft {about} -->\nFound in a catalogue. `kfm discover --adopt {draft.dataset_id}`"
    pull = keep_pull(hub, branch, base, title, body + " registers it.", draft=True)
    if pull.state == "open":
        check = Check(
            name="kfm/registry",
            conclusion="action_required",
            title="not registered: labels are missing" + ("" if draft.licence else ", licence too"),
            about=about,
        )
        keep_checks(hub, sha, [check])
    return Requested(
        dataset_id=draft.dataset_id,
        proposal=0,
        pull=pull.number,
        url=pull.url,
        state="merged" if pull.merged else pull.state,
    )
