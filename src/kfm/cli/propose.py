"""Judge a new version and stop before it is official: a preview that `kfm promote N` can finish."""

from kfm.cli.answer import Call
from kfm.cli.run import Ran, Wanted, check_reason, run_dataset
from kfm.workspace.folder import open_workspace

__all__ = ["propose"]


def propose(
    call: Call, dataset: list[str], upstream: str | None, force: bool, reason: str, clock_ok: bool
) -> Ran:
    check_reason("--force", force, reason)
    workspace = open_workspace(call.workspace)
    for name in dataset:
        workspace.require(name)
    wanted = Wanted(
        where=call.workspace,
        as_json=call.json,
        verbose=call.verbose,
        upstream=upstream,
        force=force,
        reason=reason,
        propose_only=True,
        clock_ok=clock_ok,
    )
    return Ran(runs=[o for name in dataset for o in run_dataset(workspace, name, wanted)])
