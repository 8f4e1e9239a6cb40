"""What the pods of every Kubernetes runner have in common."""

from collections.abc import Sequence

from kfm.runners.settings import Settings
from kfm.runners.yaml_text import Tree, Value

__all__ = ["POD", "SAFE", "container", "environment", "labels", "resources", "volumes"]

WORKSPACE = "/workspace"
POD: Tree = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}
SAFE: Tree = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def labels(component: str) -> Tree:
    return {"app.kubernetes.io/name": "kfm", "app.kubernetes.io/component": component}


def environment(settings: Settings) -> list[Value]:
    """Where the workspace is, and what proves which image worked; the store's address is a
    secret.
    """
    found: list[Value] = [
        {"name": "KFM_WORKSPACE", "value": WORKSPACE},
        {"name": "KFM_IMAGE_DIGEST", "value": settings.image_digest},
    ]
    if settings.store:
        secret: Tree = {"secretKeyRef": {"name": "kfm-store", "key": "url"}}
        found.append({"name": settings.store, "valueFrom": secret})
    return found


def resources() -> Tree:
    return {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "8Gi"}}


def mounts() -> list[Value]:
    return [
        {"name": "workspace", "mountPath": WORKSPACE},
        {"name": "scratch", "mountPath": "/tmp"},
    ]


def volumes() -> list[Value]:
    claim: Tree = {"claimName": "kfm-workspace"}
    return [
        {"name": "workspace", "persistentVolumeClaim": claim},
        {"name": "scratch", "emptyDir": {}},
    ]


def container(settings: Settings, command: Sequence[str]) -> Tree:
    return {
        "image": settings.image,
        "command": list(command),
        "env": environment(settings),
        "resources": resources(),
        "securityContext": SAFE,
        "volumeMounts": mounts(),
    }
