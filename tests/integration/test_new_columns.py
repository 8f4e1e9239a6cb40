"""A column that upstream added passes, and is not passed over in silence."""

from collections.abc import Callable
from pathlib import Path

from kfm.testing import Upstream
from tests.given.verbs import Said


def test_a_new_column_is_named_when_its_version_becomes_official(
    kfm: Callable[..., Said], ws: Path
) -> None:
    with Upstream() as up:
        up.files["/trees.csv"] = b"id,kind\n1,oak\n2,elm\n"
        (ws / "data" / "registry" / "trees.yml").write_text(
            "dataset_id: trees\ntitle: Trees\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
            f"source: {{url: '{up.url}/trees.csv', format: csv}}\nbusiness_key: [id]\n"
        )
        first = kfm("run", "trees")
        assert first.code == 0 and "new columns" not in first.out
        up.files["/trees.csv"] = b"id,kind,height,crown\n1,oak,3,5\n2,elm,4,6\n"
        second = kfm("run", "trees")
        assert second.code == 0 and ", new columns: height, crown " in second.out
        up.files["/trees.csv"] = b"id,kind,height,crown\n1,oak,3,5\n2,elm,4,7\n"
        third = kfm("run", "trees")
        assert third.code == 0 and "new version" in third.out and "new columns" not in third.out
