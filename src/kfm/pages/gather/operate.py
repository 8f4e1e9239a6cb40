"""What the pages of who runs things tell: the same structs that the commands answer with."""

import re
from collections.abc import Mapping

import msgspec

from kfm.cli.answer import Call
from kfm.cli.jobs import dead, listed, pools
from kfm.cli.quarantine import listed as set_aside
from kfm.cli.quarantine import shown as one_aside
from kfm.cli.schedule import moments, schedules
from kfm.cli.slo import energy, standings
from kfm.cli.webhook import deliveries
from kfm.cli.worker import workers
from kfm.model import KfmError, UsageError
from kfm.pages.gather.asks import Asks
from kfm.pages.operate import PolicyPage, QueuePage, Rule, SchedulesPage, Tried, WebhooksPage
from kfm.pages.quarantine import AsidePage, QuarantinePage
from kfm.pages.slo import SloPage
from kfm.policy.base import sources_of
from kfm.policy.subset import check
from kfm.reader.door import BadQuestion, Hidden
from kfm.webhook.sources import read_sources

__all__ = [
    "aside_page",
    "policy_page",
    "quarantine_page",
    "queue_page",
    "schedules_page",
    "slo_page",
    "webhooks_page",
]

_MOST = 200


def _call(asks: Asks) -> Call:
    return Call(asks.workspace.path, True, False)


def quarantine_page(asks: Asks) -> QuarantinePage:
    found = set_aside(_call(asks), None, False)
    return QuarantinePage(
        address="/quarantine",
        title="Quarantine",
        command="kfm quarantine list",
        items=tuple(found.items),
        pages=asks.pages_of(item.dataset_id for item in found.items),
        hidden=found.hidden,
    )


def aside_page(asks: Asks, run_id: str) -> AsidePage:
    try:
        found = one_aside(_call(asks), run_id, None, _MOST, False)
    except UsageError as nothing:
        raise Hidden from nothing
    return AsidePage(
        address=f"/quarantine/{found.run_id}",
        title=f"Set aside by run {found.run_id[:8]}",
        command=f"kfm quarantine show {found.run_id}",
        aside=found,
    )


def queue_page(asks: Asks) -> QueuePage:
    call = _call(asks)
    return QueuePage(
        address="/queue",
        title="Queue and workers",
        command="kfm jobs list",
        running=tuple(listed(call, "running", "", None, _MOST).jobs),
        queued=tuple(listed(call, "queued", "", None, _MOST).jobs),
        dead=tuple(dead(call, "", None, _MOST).jobs),
        pools=tuple(pools(call).pools),
        workers=tuple(workers(call).workers),
    )


def schedules_page(asks: Asks) -> SchedulesPage:
    found = schedules(_call(asks), None)
    return SchedulesPage(
        address="/schedules",
        title="Schedules",
        command="kfm schedule list",
        schedules=tuple(found.schedules),
        pages=asks.pages_of(s.dataset for s in found.schedules if s.dataset),
        problems=tuple(found.problems),
        next=tuple(moments(_call(asks), None, 2).next[:20]),
    )


def policy_page(asks: Asks, query: Mapping[str, str] | None = None) -> PolicyPage:
    found = sources_of(asks.workspace.path / "policy")
    shown = {name: raw.decode(errors="replace") for name, raw in sorted(found.items())}
    wrong = [str(finding) for finding in check(found)]
    return PolicyPage(
        address="/policy",
        title="Rules",
        command="kfm policy check",
        policy_digest=asks.world.policy_digest,
        rules=tuple(rule for name, text in shown.items() for rule in _rules(name, text)),
        files=shown,
        trouble=wrong[0] if wrong else "",
        packages=tuple(packages := _packages(shown)),
        asked=_ASKED,
        example=_EXAMPLE,
        tried=_tried(asks, packages, query or {}),
    )


_PACKAGE = re.compile(r"^package\s+([a-z0-9_.]+)\s*$", re.M)
_LONGEST = 2_500  # characters of an input that is tried
_ASKED = "kfm.serve"  # tried on what somebody typed: nothing is handed out by the answer
_EXAMPLE = """{
  "action": "read",
  "asset": {"zone": "processed", "path": "city_trees/v1/city_trees.parquet"},
  "dataset": {
    "id": "city_trees", "title": "City trees", "licence": "CC-BY-4.0", "sensitivity": "public",
    "policy_label": "public", "care_label": null, "obligations": [], "discharged": [],
    "approvals": 0, "retired": false
  },
  "reader": {"name": null, "roles": [], "grants": []},
  "withdrawn": false
}"""


def _packages(files: Mapping[str, str]) -> list[str]:
    """What can be asked: the packages of files that are no tests."""
    found = {
        name
        for file, text in files.items()
        if not file.endswith("_test.rego")
        for name in _PACKAGE.findall(text)
    }
    return sorted(found)


def _tried(asks: Asks, packages: list[str], query: Mapping[str, str]) -> Tried | None:
    """Ask the rules what somebody typed; what cannot be asked says why."""
    text, package = query.get("input", ""), query.get("package", _ASKED)
    if not text:
        return None
    wrong, document = "", None
    if len(text) > _LONGEST:
        raise BadQuestion(f"input is longer than {_LONGEST:,} characters.", field="input")
    if package not in packages:
        raise BadQuestion("There are no such rules.", field="package")
    try:
        document = msgspec.json.decode(text)
        wrong = "" if isinstance(document, dict) else "The input is no JSON object."
    except (msgspec.DecodeError, RecursionError) as error:
        wrong = f"The input is no JSON: {error}."
    if asks.world.policy is None:
        wrong = wrong or "The rules cannot be asked; `kfm policy check` says why."
    if wrong or asks.world.policy is None or not isinstance(document, dict):
        return Tried(package=package, input=text, wrong=wrong)
    found = asks.world.policy.decide(package, document)
    return Tried(
        package=package,
        input=text,
        allow=found.allow is True and not found.deny,
        deny=found.deny,
        input_digest=found.input_digest,
        policy_digest=found.policy_digest,
    )


_DENIAL = re.compile(
    r'"code":\s*"(?P<code>[^"]+)",\s*"message":\s*(?:sprintf\()?"(?P<message>(?:[^"\\]|\\.)*)"'
    r'[^\n]*\s*"remedy":\s*(?:sprintf\()?"(?P<remedy>(?:[^"\\]|\\.)*)"'
)


def _rules(name: str, text: str) -> list[Rule]:
    """Every denial of a file, as it words itself; what is filled in is a dot."""
    if name.endswith("_test.rego"):
        return []
    return [
        Rule(
            file=name,
            line=text.count("\n", 0, found.start()) + 1,
            code=found["code"],
            message=found["message"].replace("%s", "…"),
            remedy=found["remedy"].replace("%s", "ID"),
        )
        for found in _DENIAL.finditer(text)
    ]


def webhooks_page(asks: Asks) -> WebhooksPage:
    found = deliveries(_call(asks), "", False, _MOST)
    try:
        sources = tuple(read_sources(asks.workspace, ()).sources)
    except KfmError:
        sources = ()
    return WebhooksPage(
        address="/webhooks",
        title="Webhooks",
        command="kfm webhook list",
        accepted=tuple(found.accepted),
        refused=tuple(found.refused),
        sources=sources,
    )


def slo_page(asks: Asks) -> SloPage:
    found = tuple(standings(asks.workspace, asks.world))
    return SloPage(
        address="/slo",
        title="SLO and energy",
        command="kfm slo",
        datasets=found,
        pages=asks.pages_of(s.dataset_id for s in found),
        months=energy(_call(asks), []).months,
    )
