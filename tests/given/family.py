"""Datasets made of one another: two files are joined, and what that gives is joined with a third."""

import json
from typing import Any

from tests.given.stand import Stand, answer

__all__ = ["CSV", "Family", "joined"]

CSV = {
    "trees": "id,height\n" + "".join(f"t{n},{n}\n" for n in range(5)),
    "kinds": "id,colour\n" + "".join(f"t{n},green\n" for n in range(5)),
    "owners": "id,owner\n" + "".join(f"t{n},city\n" for n in range(5)),
}


def joined(stand: Stand, name: str, *of: str, **more: Any) -> None:
    """Register a join of datasets by their id."""
    entry = {
        "dataset_id": name,
        "title": name,
        "licence": "CC0-1.0",
        "sensitivity": "public",
        "policy_label": "public",
        "business_key": ["id"],
        "source": {"kind": "join", "format": "parquet", "datasets": list(of), "join_on": ["id"]},
        **more,
    }
    (stand.ws / "data" / "registry" / f"{name}.yml").write_text(json.dumps(entry))
    stand.register("trees", {"format": "csv"}, business_key=["id"])  # nothing but that was changed


class Family:
    """trees and kinds give both, both and owners give all_three; each official once."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        for name, text in CSV.items():
            stand.speaker.says[f"/{name}"] = answer(text)
            stand.register(name, {"format": "csv"}, business_key=["id"])
        joined(stand, "both", "trees", "kinds")
        joined(stand, "all_three", "both", "owners")
        self.made = {name: stand.publish(name) for name in (*CSV, "both", "all_three")}

    def version(self, name: str) -> str:
        """DATASET@VERSION of what was made official last."""
        return f"{name}@{self.made[name]['version_id']}"

    def change(self, name: str, text: str) -> None:
        self.made[name] = self.stand.publish(name, answer(text))

    def again(self, name: str) -> None:
        self.made[name] = self.stand.publish(name)
