"""People are told once when something begins to be wrong, again when it lasts, and when it is over."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfm.cli.scheduler import make_scheduler
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.mail_server import MailServer
from tests.given.stand import Stand, answer
from tests.given.verbs import until

GOOD, DOWN = answer("k,v\na,1\n"), answer("", "503 Service Unavailable")


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    with Stand(tmp_path) as made:
        made.register("wells", {"format": "csv"})
        made.publish("wells", GOOD)
        yield made


def alerts(stand: Stand, channels: dict[str, Any], **more: Any) -> None:
    file = stand.ws / "kfm.yml"
    said = yaml.safe_load(file.read_text()) | {"alerts": {"channels": channels, **more}}
    file.write_text(yaml.safe_dump(said))
    stand.register("wells", {"format": "csv"})


def hook(stand: Stand, path: str = "/alarm") -> list[dict[str, Any]]:
    """What is posted to a channel of its own."""
    told: list[dict[str, Any]] = []

    def take(_: str, body: bytes) -> bytes:
        told.append(json.loads(body))
        return answer("")

    stand.speaker.says[path] = take
    return told


def fails(stand: Stand) -> None:
    stand.speaker.says["/wells"] = DOWN
    assert stand("run", "wells").code == 4


def recovers(stand: Stand) -> None:
    stand.speaker.says["/wells"] = GOOD
    assert stand("run", "wells").code == 0


def words(told: list[dict[str, Any]], kind: str = "failing") -> list[str]:
    return [each["word"] for each in told if each["kind"] == kind]


def test_an_incident_is_told_once_and_its_end_once(stand: Stand) -> None:
    told = hook(stand)
    alerts(stand, {"desk": {"webhook": f"{stand.speaker.url}/alarm"}})
    assert stand("alerts", "check").code == 0 and told == []
    fails(stand)
    for _ in range(3):
        assert stand("alerts", "check").code == 0
    assert words(told) == ["opened"]
    assert told[0]["dataset_id"] == "wells" and told[0]["next"] == "kfm explain run wells"
    assert "wells is failing" in told[0]["text"]
    recovers(stand)
    for _ in range(2):
        stand("alerts", "check")
    assert words(told) == ["opened", "over"]
    assert len({each["id"] for each in told if each["kind"] == "failing"}) == 1
    fails(stand)
    stand("alerts", "check")
    assert words(told) == ["opened", "over", "opened"]


def test_a_channel_that_does_not_answer_is_told_later_and_others_at_once(stand: Stand) -> None:
    desk = hook(stand, "/desk")
    stand.speaker.says["/phone"] = DOWN
    url = stand.speaker.url
    alerts(stand, {"desk": {"webhook": f"{url}/desk"}, "phone": {"webhook": f"{url}/phone"}})
    fails(stand)
    said = stand("alerts", "check", "--json")
    assert said.code == 1 and any("phone" in each for each in said.json["problems"])
    phone = hook(stand, "/phone")
    stand("alerts", "check")
    assert words(desk) == ["opened"] and words(phone) == ["opened"]


def test_who_is_told_when_it_lasts_is_told_then(stand: Stand) -> None:
    desk, boss, url = hook(stand, "/desk"), hook(stand, "/boss"), stand.speaker.url
    channels = {"desk": {"webhook": f"{url}/desk"}, "boss": {"webhook": f"{url}/boss"}}
    alerts(stand, channels, then_to=["boss"], after="1h")
    fails(stand)
    stand("alerts", "check")
    assert words(desk) == ["opened"] and boss == []
    alerts(stand, channels, then_to=["boss"], after="0s")
    stand("alerts", "check")
    stand("alerts", "check")
    assert words(boss) == ["lasts"] and words(desk) == ["opened"]
    recovers(stand)
    stand("alerts", "check")
    assert words(boss) == ["lasts", "over"] and words(desk) == ["opened", "over"]


def test_nobody_is_told_while_a_dataset_is_silenced(stand: Stand) -> None:
    told = hook(stand)
    alerts(stand, {"desk": {"webhook": f"{stand.speaker.url}/alarm"}})
    assert stand("alerts", "silence", "wells").code == 2, "it needs a reason"
    assert stand("alerts", "silence", "wells", "--for", "1h", "--reason", "moving").code == 0
    fails(stand)
    stand("alerts", "check")
    assert told == [] and "moving" in stand("alerts", "list").out
    assert stand("alerts", "unsilence", "wells").code == 0
    stand("alerts", "check")
    assert words(told) == ["opened"]


def test_a_mail_says_what_is_wrong_and_what_to_do(stand: Stand) -> None:
    server = MailServer()
    try:
        alerts(stand, {"mail": {"mail": server.url}})
        fails(stand)
        server.refuses = True
        assert stand("alerts", "check").code == 1
        server.refuses = False
        assert stand("alerts", "check").code == 0
    finally:
        server.close()
    found = [mail for mail in server.mails if "failing" in str(mail["Subject"])]
    assert [str(mail["To"]) for mail in found] == ["desk@example.org"]
    assert "kfm explain run wells" in str(found[0].get_payload())


def test_a_command_gets_the_message_as_json(stand: Stand, tmp_path: Path) -> None:
    program, kept = tmp_path / "tell", tmp_path / "kept.jsonl"
    program.write_text(f'#!/bin/sh\ncat >> "{kept}"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    alerts(stand, {"pager": {"command": [str(program)]}})
    fails(stand)
    assert stand("alerts", "check").code == 0
    told = [json.loads(line) for line in kept.read_text().splitlines()]
    assert words(told) == ["opened"]
    program.write_text("#!/bin/sh\nexit 3\n")
    recovers(stand)
    assert stand("alerts", "check").code == 1


def test_a_budget_that_burns_too_fast_and_a_stale_dataset_are_incidents(stand: Stand) -> None:
    told = hook(stand)
    alerts(stand, {"desk": {"webhook": f"{stand.speaker.url}/alarm"}})
    entry = stand.ws / "data" / "registry" / "wells.yml"
    entry.write_text(json.dumps(json.loads(entry.read_text()) | {"freshness": "0"}))
    fails(stand)
    stand("alerts", "check")
    kinds = {each["kind"]: each["reason"] for each in told}
    assert {"stale", "failing", "burning"} == kinds.keys()
    assert "times as fast as it may" in kinds["burning"]


def test_who_leads_the_schedule_looks_every_minute(stand: Stand) -> None:
    told = hook(stand)
    alerts(stand, {"desk": {"webhook": f"{stand.speaker.url}/alarm"}})
    fails(stand)
    workspace = open_workspace(stand.ws)
    with open_world(workspace) as world:
        scheduler, _ = make_scheduler(workspace, world)
        scheduler.run(until=world.clock.now())
    until(lambda: words(told) == ["opened"])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"channels": {"a": {"webhook": "https://x.example", "command": ["x"]}}}, "exactly one"),
        ({"channels": {}, "to": ["nobody"]}, "which is no channel"),
    ],
)
def test_what_cannot_be_told_to_is_refused(stand: Stand, said: dict[str, Any], why: str) -> None:
    file = stand.ws / "kfm.yml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"alerts": said}))
    refused = stand("alerts", "check")
    assert refused.code == 2 and why in refused.err
