"""The runners that files are rendered for: one row each."""

from collections.abc import Callable, Mapping

import msgspec

from kfm.runners import argo, compose, cronjob, github, gitops, helm, systemd, tekton
from kfm.runners.lines import Line, Values
from kfm.runners.settings import Settings

__all__ = ["RUNNERS", "Runner"]


class Runner(msgspec.Struct, frozen=True):
    """One of other people's orchestrators: what it is given, and the way back from that to what it
    will call.
    """

    name: str
    what: str
    folder: str  # of the workspace: where the files lie that call something
    files: Callable[[Settings], dict[str, str]]  # path in the workspace -> text
    lines: Callable[[Mapping[str, str], Values], list[Line]]  # in the order they are called


RUNNERS = {
    runner.name: runner
    for runner in (
        Runner("github", "GitHub Actions", github.FOLDER, github.files, github.lines),
        Runner("argo", "Argo Workflows", argo.FOLDER, argo.files, argo.lines),
        Runner("tekton", "Tekton Pipelines", tekton.FOLDER, tekton.files, tekton.lines),
        Runner("cronjob", "plain Kubernetes", cronjob.FOLDER, cronjob.files, cronjob.lines),
        Runner("helm", "Kubernetes, by Helm", helm.FOLDER, helm.files, helm.lines),
        Runner("systemd", "one machine with systemd", systemd.FOLDER, systemd.files, systemd.lines),
        Runner(
            "compose", "one machine with containers", compose.FOLDER, compose.files, compose.lines
        ),
        Runner("gitops", "Flux and Argo CD", gitops.FOLDER, gitops.files, gitops.lines),
    )
}
