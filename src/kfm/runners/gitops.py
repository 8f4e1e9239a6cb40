"""Flux and Argo CD: the cluster takes the manifests of `cronjob` from the repository by itself."""

from collections.abc import Mapping

from kfm.model import UsageError
from kfm.runners import cronjob
from kfm.runners.lines import Line, Values
from kfm.runners.settings import Settings
from kfm.runners.yaml_text import Tree, yaml_text

__all__ = ["FOLDER", "files", "lines"]

FOLDER = "pipelines/orchestration/runners/gitops"


def files(settings: Settings) -> dict[str, str]:
    if not settings.runners.repository:
        raise UsageError(
            "No repository is named.",
            expected="where Flux or Argo CD finds the rendered manifests",
            remedy="Say `runners: {repository: https://…}` in kfm.yml, or --repository.",
        )
    return {
        f"{FOLDER}/argocd.yaml": yaml_text(_application(settings)),
        f"{FOLDER}/flux.yaml": yaml_text(_source(settings), _kustomization(settings)),
    }


def lines(found: Mapping[str, str], values: Values) -> list[Line]:
    """They carry manifests to a cluster, and run nothing themselves."""
    return []


def _application(settings: Settings) -> Tree:
    chosen = settings.runners
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "kfm", "namespace": "argocd"},
        "spec": {
            "project": "default",
            "source": {
                "repoURL": chosen.repository,
                "targetRevision": chosen.branch,
                "path": cronjob.FOLDER,
            },
            "destination": {
                "server": "https://kubernetes.default.svc",
                "namespace": chosen.namespace,
            },
            "syncPolicy": {
                "automated": {"prune": True, "selfHeal": True},
                "syncOptions": ["CreateNamespace=true", "ServerSideApply=true"],
            },
        },
    }


def _source(settings: Settings) -> Tree:
    chosen = settings.runners
    return {
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "GitRepository",
        "metadata": {"name": "kfm", "namespace": "flux-system"},
        "spec": {
            "interval": "5m",
            "url": chosen.repository,
            "ref": {"branch": chosen.branch},
        },
    }


def _kustomization(settings: Settings) -> Tree:
    return {
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"name": "kfm", "namespace": "flux-system"},
        "spec": {
            "interval": "10m",
            "sourceRef": {"kind": "GitRepository", "name": "kfm"},
            "path": f"./{cronjob.FOLDER}",
            "targetNamespace": settings.runners.namespace,
            "prune": True,
            "wait": True,
        },
    }
