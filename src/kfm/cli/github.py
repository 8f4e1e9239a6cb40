"""GitHub: proposals as pull requests, and what runs of a job left as artifacts."""

from kfm.access.references import proposal_number
from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import show, sign
from kfm.extras.github.opening import open_hub, refuse_strangers
from kfm.extras.github.proposals import Requested, promote, propose, sync
from kfm.extras.github.report import Uploaded, upload
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["Pulls", "Uploads", "promoted", "proposed", "synced", "uploaded"]

_SIGNS = {"": "PROPOSED", "PROPOSED": "PROPOSED", "COMMITTED": "COMMITTED", "SUPERSEDED": "NOOP"}


class Pulls(Answer, frozen=True, kw_only=True):
    """Proposals, and what became of each on GitHub."""

    pulls: list[Requested]

    @property
    def code(self) -> int:
        return max((each.exit_code for each in self.pulls), default=0)

    def tell(self, call: Call) -> None:
        for each in self.pulls:
            where = f"#{each.pull} {each.state}" if each.pull else "stays here"
            mark = sign(_SIGNS.get(each.outcome, "FAILED"))
            show(f"  {mark} {each.dataset_id:<22} proposal {each.proposal}  {where}  {each.url}")
            if each.reason:
                show(f"      {each.reason}")
        show(f"{len(self.pulls)} proposals")


class Uploads(Answer, frozen=True, kw_only=True):
    """The artifacts that the job of GitHub Actions has now."""

    datasets: list[Uploaded]

    def tell(self, call: Call) -> None:
        for each in self.datasets:
            kept = each.artifact
            told = each.why_not if kept is None else f"{kept.name}  {kept.size:,} bytes"
            new = kept is not None and kept.new
            show(f"  {sign('COMMITTED' if new else 'NOOP')} {each.dataset_id:<22} {told}")


def proposed(call: Call, number: list[str], draft: bool) -> Pulls:
    refuse_strangers()
    workspace = open_workspace(call.workspace)
    hub, wanted = open_hub(workspace), [proposal_number(each) for each in number]
    with open_world(workspace, asks=True) as world:
        numbers = wanted or [n for n, _ in world.store.read(lambda tx: tx.proposals.waiting())]
        return Pulls(pulls=[propose(hub, world, each, draft=draft) for each in numbers])


def promoted(call: Call) -> Pulls:
    refuse_strangers()
    workspace = open_workspace(call.workspace)
    hub = open_hub(workspace)
    with open_world(workspace, asks=True) as world:
        return Pulls(pulls=promote(hub, world))


def synced(call: Call) -> Pulls:
    refuse_strangers()
    workspace = open_workspace(call.workspace)
    hub = open_hub(workspace)
    with open_world(workspace, asks=True) as world:
        return Pulls(pulls=sync(hub, world))


def uploaded(call: Call, dataset: list[str]) -> Uploads:
    workspace = open_workspace(call.workspace)
    for name in dataset:
        workspace.require(name)
    names = list(dict.fromkeys(dataset)) or workspace.registered()
    with open_world(workspace) as world:
        return Uploads(datasets=[upload(workspace, world, name) for name in names])
