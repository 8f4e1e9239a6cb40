"""From what kfm.yml says to a repository that can be asked."""

import os
from collections.abc import Callable

from kfm import __version__
from kfm.extras.github.base import Place, repository_of
from kfm.extras.github.client import LONGEST_WAIT_S, Hub, attempts
from kfm.extras.github.wire import Carrier
from kfm.fetch.connect import Dialer, lookup
from kfm.model import Denied, UsageError
from kfm.workspace.folder import Workspace
from kfm.workspace.upstreams import credentials_of

__all__ = ["carrier_of", "open_hub", "place_of", "refuse_strangers"]

_PUBLIC = "https://api.github.com"


def open_hub(workspace: Workspace, repository: str = "", *, patient: bool = True) -> Hub:
    """The repository that is named here, or else in kfm.yml, or else in Actions. Who is not patient
    ends soon where GitHub does not answer, for it is asked again later.
    """
    place = place_of(workspace, repository)
    return Hub(
        place,
        carrier_of(workspace),
        workspace.config.github.token,
        credentials=credentials_of(workspace),
        attempts=attempts() if patient else 2,
        longest_wait_s=LONGEST_WAIT_S if patient else 3.0,
    )


def place_of(workspace: Workspace, repository: str = "") -> Place:
    """Which repository, and where its API is; what Actions says counts where kfm.yml is silent."""
    said = workspace.config.github
    given: Callable[[str], str] = (
        (lambda name: os.environ.get(name, ""))
        if os.environ.get("GITHUB_ACTIONS") == "true"
        else lambda name: ""
    )
    name = repository or said.repository or given("GITHUB_REPOSITORY")
    if not name:
        raise UsageError(
            "No repository on GitHub is named.",
            expected="`github: {repository: owner/name}` in kfm.yml",
            remedy="Add it; `token` below it says where the token is (env:GITHUB_TOKEN).",
        )
    return repository_of(name, said.api or given("GITHUB_API_URL") or _PUBLIC)


def carrier_of(workspace: Workspace) -> Carrier:
    dialer = Dialer(
        allow_loopback=workspace.config.allow_loopback, reroute=None, timeout=10.0, resolve=lookup
    )
    return Carrier(dialer, f"kfm/{__version__}")


def refuse_strangers() -> None:
    """Raise `Denied` where a stranger's code may be what calls: a job of `pull_request_target`, or
    of a pull request from a fork, gets no further.
    """
    from kfm.extras.github.actions import event_of

    name, event = os.environ.get("GITHUB_EVENT_NAME", ""), event_of()
    pull = event.get("pull_request") or {}
    head = ((pull.get("head") or {}).get("repo") or {}).get("full_name")
    base = ((pull.get("base") or {}).get("repo") or {}).get("full_name")
    if name == "pull_request_target" or (pull and head != base):
        raise Denied(
            f"This job runs for {'a fork' if pull and head != base else name}, which may hold"
            " anybody's code.",
            expected="a job of `pull_request` of this repository, a push, a schedule or a person",
            remedy="Let the workflow run on `pull_request`; a fork's changes are judged after the"
            " merge.",
        )
