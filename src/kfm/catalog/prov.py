"""PROV-JSON: how one run made a version, written, and read back strictly."""

import datetime as dt
from collections.abc import Iterator, Mapping
from urllib.parse import quote

import msgspec

from kfm.catalog.base import href, known, rendered, step_words
from kfm.model import Json, UsageError, canonical

__all__ = ["ProvRun", "prov", "prov_load", "undeclared"]

PREFIX = {
    "agent": "kfm://agent/",
    "dataset": "kfm://dataset/",
    "kfm": "kfm://vocab/",
    "run": "kfm://run/",
}
# the two (or three) things each relates; a document from elsewhere may leave one open
RELATIONS = {
    "wasGeneratedBy": ("prov:entity", "prov:activity"),
    "used": ("prov:activity", "prov:entity"),
    "wasInformedBy": ("prov:informed", "prov:informant"),
    "wasStartedBy": ("prov:activity", "prov:trigger"),
    "wasEndedBy": ("prov:activity", "prov:trigger"),
    "wasInvalidatedBy": ("prov:entity", "prov:activity"),
    "wasDerivedFrom": ("prov:generatedEntity", "prov:usedEntity"),
    "wasAttributedTo": ("prov:entity", "prov:agent"),
    "wasAssociatedWith": ("prov:activity", "prov:agent"),
    "actedOnBehalfOf": ("prov:delegate", "prov:responsible"),
    "wasInfluencedBy": ("prov:influencee", "prov:influencer"),
    "specializationOf": ("prov:specificEntity", "prov:generalEntity"),
    "alternateOf": ("prov:alternate1", "prov:alternate2"),
    "mentionOf": ("prov:specificEntity", "prov:generalEntity", "prov:bundle"),
    "hadMember": ("prov:collection", "prov:entity"),
}
ELEMENTS = ("entity", "activity", "agent")
REFERENCES = frozenset(name for names in RELATIONS.values() for name in names) | {"prov:plan"}
TIMES = ("prov:time", "prov:startTime", "prov:endTime")


class ProvRun(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of a run; an input that is not public has a commitment in place of its
    digest.
    """

    run_id: str
    dataset_id: str
    version_id: str
    version_digest: str
    updater_id: str
    updater_version: str
    started_at: str  # RFC 3339
    ended_at: str | None = None
    agent: str  # the key id of the builder
    approvals: tuple[str, ...] = ()  # the people who approved
    inputs: tuple[Json, ...]  # {uri, digest, commitment}
    outputs: tuple[dict[str, str], ...]  # {path, digest}
    steps: tuple[Json, ...] = ()  # {id, kind, discharges, settings}
    base_version: str | None = None
    care_label: str | None = None
    sensitivity: str | None = None


def prov(run: ProvRun) -> bytes:
    """`catalog/prov/<id>/run_<run_id>.json`: the run, then each governed transform as an activity
    of its own, then the version.
    """
    version, me, agent = (
        f"dataset:{run.dataset_id}@{run.version_id}",
        f"run:{href(run.run_id)}",
        f"agent:{quote(run.agent, safe='')}",
    )
    document = _Document()
    document.add("agent", agent, {"prov:type": _name("prov:SoftwareAgent"), "kfm:keyId": run.agent})
    times = {"prov:startTime": run.started_at, "prov:endTime": run.ended_at}
    document.add(
        "activity",
        me,
        {
            **times,
            "prov:type": _name("kfm:Run"),
            "kfm:updaterId": run.updater_id,
            "kfm:updaterVersion": run.updater_version,
        },
    )
    document.relate("wasAssociatedWith", activity=me, agent=agent)
    for person in run.approvals:
        document.add(
            "agent",
            f"agent:{quote(person, safe='')}",
            {"prov:type": _name("prov:Person"), "prov:label": person},
        )
        document.relate(
            "wasAssociatedWith",
            activity=me,
            agent=f"agent:{quote(person, safe='')}",
            role="approver",
        )
    sources = []
    for number, given in enumerate(run.inputs):
        sources.append(f"{me}/input/{number}")
        facts = {
            "prov:location": given["uri"],
            "kfm:digest": given.get("digest"),
            "kfm:commitment": given.get("commitment"),
        }
        facts["kfm:origin"] = given.get("origin")
        document.add("entity", sources[-1], facts)
        document.relate("used", activity=me, entity=sources[-1])
    last = _steps(document, run, me, agent, version, sources)
    _version(document, run, version, last, agent)
    return rendered({"prefix": PREFIX, **document.records})


def _steps(
    document: "_Document", run: ProvRun, me: str, agent: str, version: str, sources: list[str]
) -> str:
    """The chain run → step → … → version; returns the activity that made the version."""
    made = [f"{me}/records", *(f"{me}/step/{href(str(step['id']))}/records" for step in run.steps)]
    made[-1] = version
    document.relate("wasGeneratedBy", entity=made[0], activity=me)
    for source in sources:
        document.relate("wasDerivedFrom", generatedEntity=made[0], usedEntity=source, activity=me)
    before = me
    for step, used, result in zip(run.steps, made, made[1:], strict=False):
        document.add("entity", used, {"prov:label": "between two steps; not published"})
        activity = f"{me}/step/{href(str(step['id']))}"
        settings = canonical.dumps(step["settings"]).decode() if step.get("settings") else None
        facts = {
            "kfm:kind": step["kind"],
            "kfm:discharges": step.get("discharges"),
            "kfm:settings": settings,
        }
        document.add(
            "activity",
            activity,
            {"prov:type": _name("kfm:GovernedTransform"), "prov:label": step_words(step), **facts},
        )
        document.relate("wasAssociatedWith", activity=activity, agent=agent)
        document.relate("wasInformedBy", informed=activity, informant=before)
        document.relate("used", activity=activity, entity=used)
        document.relate("wasGeneratedBy", entity=result, activity=activity)
        document.relate(
            "wasDerivedFrom", generatedEntity=result, usedEntity=used, activity=activity
        )
        before = activity
    return before


def _version(document: "_Document", run: ProvRun, version: str, last: str, agent: str) -> None:
    dataset = f"dataset:{run.dataset_id}"
    labels = {"kfm:sensitivity": run.sensitivity, "kfm:careLabel": run.care_label}
    document.add("entity", dataset, {"prov:type": _name("kfm:Dataset")})
    document.add(
        "entity",
        version,
        {"prov:type": _name("prov:Collection"), "kfm:versionDigest": run.version_digest, **labels},
    )
    document.relate("specializationOf", specificEntity=version, generalEntity=dataset)
    document.relate("wasAttributedTo", entity=version, agent=agent)
    for output in run.outputs:
        artifact = f"{version}/{href(output['path'])}"
        document.add(
            "entity", artifact, {"prov:label": output["path"], "kfm:digest": output["digest"]}
        )
        document.relate("hadMember", collection=version, entity=artifact)
        document.relate("wasGeneratedBy", entity=artifact, activity=last)
    if run.base_version and run.base_version != run.version_id:
        base = f"{dataset}@{run.base_version}"
        document.add("entity", base, {"prov:type": _name("prov:Collection")})
        document.relate(
            "wasDerivedFrom", generatedEntity=version, usedEntity=base, type=_name("prov:Revision")
        )


class _Document:
    """Records as they are added; relations are numbered, because PROV-JSON wants a name for
    each.
    """

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Json]] = {}

    def add(self, kind: str, identifier: str, members: Mapping[str, object]) -> None:
        self.records.setdefault(kind, {})[identifier] = known(members)

    def relate(self, kind: str, **members: object) -> None:
        number = len(self.records.setdefault(kind, {}))
        self.add(
            kind, f"_:{kind}{number}", {f"prov:{name}": value for name, value in members.items()}
        )


def _name(qualified: str) -> dict[str, str]:
    return {"$": qualified, "type": "prov:QUALIFIED_NAME"}


def prov_load(text: str | bytes, *, whole: bool = False) -> Json:
    """The document, if it is PROV-JSON; `whole` also asks that no relation leaves an end open.
    Raises `UsageError` naming the member.
    """
    document = _object(canonical.loads(text.encode() if isinstance(text, str) else text), "$")
    _check(document, "$", {"prov", "xsd", "xsi"}, whole=whole)
    return document


def undeclared(document: Json) -> set[str]:
    """Entities, activities and agents that a relation speaks of and nothing describes."""
    declared = {name for kind in ELEMENTS for name in document.get(kind, {})}
    relations = [
        record for kind in RELATIONS for _, record, _ in _records(document.get(kind, {}), kind)
    ]
    return {
        name
        for record in relations
        for end in REFERENCES & record.keys()
        for name in _each(record[end])
        if isinstance(name, str)
    } - declared


def _check(
    document: object, path: str, prefixes: set[str], *, whole: bool, top: bool = True
) -> None:
    members = _object(document, path)
    own = _object(members.get("prefix", {}), f"{path}.prefix")
    _need(
        all(isinstance(iri, str) for iri in own.values()),
        f"{path}.prefix",
        "an IRI for each prefix",
    )
    prefixes = prefixes | own.keys()
    for kind, content in members.items():
        where = f"{path}.{kind}"
        if kind == "bundle" and top:
            for name, bundle in _object(content, where).items():
                _check_name(name, f"{where}.{name}", prefixes)
                _check(bundle, f"{where}.{name}", prefixes, whole=whole, top=False)
        elif kind != "prefix":
            _need(
                kind in ELEMENTS or kind in RELATIONS, where, "a kind of record that PROV-DM knows"
            )
            for name, record, place in _records(content, where):
                _check_name(name, place, prefixes)
                _check_record(kind, record, place, prefixes, whole=whole)


def _records(content: object, where: str) -> Iterator[tuple[str, Json, str]]:
    """(name, record, path): PROV-JSON allows several records of one name as an array."""
    for name, found in _object(content, where).items():
        for record in _each(found):
            yield name, _object(record, f"{where}.{name}"), f"{where}.{name}"


def _check_record(
    kind: str, record: Mapping[str, object], path: str, prefixes: set[str], *, whole: bool
) -> None:
    ends = RELATIONS.get(kind, ())
    open_ends = [end for end in ends if end not in record]
    if open_ends and (whole or open_ends == list(ends)):
        _need(False, f"{path}.{open_ends[0]}", "this end of the relation")
    for attribute, value in record.items():
        where = f"{path}.{attribute}"
        _check_name(attribute, where, prefixes)
        _need(value != [], where, "at least one value")
        if ends and attribute in REFERENCES:
            for name in _each(value):
                _check_name(name, where, prefixes)
        elif attribute in TIMES and kind != "entity":
            _need(_is_time(value), where, "a date and time")
        else:
            _need(
                all(_is_value(one) for one in _each(value)),
                where,
                "a string, a number, a boolean or a typed literal",
            )


def _check_name(name: object, path: str, prefixes: set[str]) -> None:
    if not isinstance(name, str) or not name:
        raise _not_prov(path, "a qualified name")
    prefix, colon, _ = name.partition(":")
    _need(not colon or prefix == "_" or prefix in prefixes, path, "a name whose prefix is declared")


def _is_value(value: object) -> bool:
    if not isinstance(value, dict):
        return isinstance(value, str | int | float)
    return (
        "$" in value
        and value.keys() <= {"$", "type", "lang"}
        and all(isinstance(part, str) for part in value.values())
    )


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(dt.datetime.fromisoformat(value))
    except ValueError:
        return False


def _each(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _object(value: object, path: str) -> Json:
    if not isinstance(value, dict):
        raise _not_prov(path, "an object")
    return value


def _need(right: bool, path: str, expected: str) -> None:
    if not right:
        raise _not_prov(path, expected)


def _not_prov(path: str, expected: str) -> UsageError:
    return UsageError(
        f"Not PROV-JSON at {path}.",
        expected=expected,
        remedy="Ask whoever wrote the document for a valid one.",
    )
