"""A document that upstream replaced by something else: the last good version stays, and a person
may say that it is right.
"""

from collections.abc import Callable
from pathlib import Path

from kfm.testing import Upstream
from tests.given.verbs import Said


def test_a_login_page_or_a_stub_does_not_replace_a_document(
    kfm: Callable[..., Said], ws: Path
) -> None:
    words = " ".join(f"word{n}" for n in range(600))
    with Upstream() as up:
        (ws / "data" / "registry" / "treaty.yml").write_text(
            "dataset_id: treaty\ntitle: Treaty\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\nchange: {rows: null, cells: null, deletions: null}\n"
            f"source: {{kind: documents, url: '{up.url}/treaty.html', options: {{html: true}}, recheck: '0'}}\n"
        )
        up.files["/treaty.html"] = (
            f"<!doctype html><html><body><p>{words}</p></body></html>".encode()
        )
        assert kfm("run", "treaty").code == 0
        official = kfm("status", "treaty", "--json").json["datasets"][0]["version_id"]
        login = f"<!doctype html><html><body><form><input type=password></form><p>{words[:400]}</p></body></html>"
        stub = f"<!doctype html><html><body><p>{words[:800]} gone</p></body></html>"
        for body, code in ((login, "asks for a password"), (stub, "600 in the official version")):
            up.files["/treaty.html"] = body.encode()
            refused = kfm("run", "treaty", "--json")
            assert refused.code == 1 and code in refused.json["runs"][0]["reason"]
            assert kfm("status", "treaty", "--json").json["datasets"][0]["version_id"] == official
        run = refused.json["runs"][0]["run_id"]
        assert kfm("quarantine", "accept", run, "--reason", "it was cut").code == 0
        assert kfm("quarantine", "replay", run).code == 0
        assert kfm("status", "treaty", "--json").json["datasets"][0]["version_id"] != official
