"""Good questions to the policy, and how to spoil one."""

import copy
from typing import Any

DATASET = {
    "id": "city_trees", "title": "City trees", "licence": "CC-BY-4.0", "sensitivity": "public", "policy_label": "public",
    "care_label": None, "obligations": [], "discharged": [], "approvals": 0, "retired": False,
}  # fmt: skip


CANDIDATE = {
    "version_id": "v3f9a21c0", "base_generation": 1, "artifacts": [{"path": "city_trees.parquet", "digest": "sha256:00", "size": 9}],
    "columns": ["tree_id", "species"], "withhold": [], "h3_resolution": None, "spatial": False, "records": ["dcat", "prov"],
}  # fmt: skip


GATES = dict.fromkeys(
    ("schema", "integrity", "quality", "licence", "labels", "books", "leak", "graph"), "pass"
)


GRANT = {"dataset": "city_trees", "purpose": "study of shade", "steward": "Parks", "expired": False}


GOOD: dict[str, dict[str, Any]] = {
    "promote": {
        "action": "promote", "dataset": DATASET, "candidate": CANDIDATE, "gates": GATES,
        "approvals": {"needed": 0, "valid": 0}, "attestation": {"verified": True},
    },
    "read": {
        "action": "read", "dataset": DATASET, "reader": {"name": None, "roles": [], "grants": []},
        "asset": {"zone": "processed", "path": "city_trees/v3f9a21c0/city_trees.parquet"}, "withdrawn": False,
    },
    "redact": {
        "action": "redact", "dataset": DATASET, "columns": ["species"], "withhold": ["latitude"], "h3_resolution": 7, "released_resolution": 7,
    },
}  # fmt: skip


GONE = object()


def changed(action: str, **changes: Any) -> dict[str, Any]:
    """The good question of `action` with the fields named `a__b` set, or removed by GONE."""
    document = copy.deepcopy(GOOD[action])
    for name, value in changes.items():
        *parents, last = name.split("__")
        place = document
        for parent in parents:
            place = place[parent]
        if value is GONE:
            del place[last]
        else:
            place[last] = value
    return document
