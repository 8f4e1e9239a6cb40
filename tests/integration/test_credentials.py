"""A registry entry names a credential of kfm.yml; it cannot name a file or a command."""

from pathlib import Path

from tests.given.stand import Stand, answer
from tests.given.verbs import tree

VALUE = "k4t-7731-blue"  # kfm: not a secret


def test_a_registry_entry_names_a_credential_and_runs_nothing(tmp_path: Path) -> None:
    with Stand(tmp_path) as stand:
        (tmp_path / "secret").write_text(VALUE + "\n")
        kept = stand.ws / "kfm.yml"
        kept.write_text(kept.read_text() + "\ncredentials:\n  agency: file:../secret\n")
        stand.register(
            "wells", {"format": "csv", "url": f"{stand.speaker.url}/wells?token=credential:agency"}
        )
        assert stand.publish("wells", answer("k,v\na,1\n"))["state"] == "COMMITTED"
        assert stand.speaker.asked == [f"/wells?token={VALUE}"]
        found = [p for p in stand.ws.rglob("*") if p.is_file() and VALUE.encode() in p.read_bytes()]
        assert found == [], "it is on the wire and nowhere else"

        before = tree(tmp_path, without=("ws/",))
        touch = f"cmd:touch {tmp_path / 'ran'}"
        for source in ({"headers": {"X-Note": touch}}, {"headers": {"Authorization": touch}}, {"headers": {"X-Note": f"file:{tmp_path / 'secret'}"}},
                       {"url": f"{stand.speaker.url}/wells?token={touch}"}, {"urls": [f"{stand.speaker.url}/wells?api_key={touch}"]}):  # fmt: skip
            stand.register("wells", {"format": "csv", **source})
            for words in (("run", "wells"), ("run", "wells", "--dry-run"), ("plan", "wells")):
                said = stand(*words)
                assert said.code == 2, said
                assert "credential:NAME" in said.err, said.err
        assert len(stand.speaker.asked) == 1 and tree(tmp_path, without=("ws/",)) == before
