"""ask: the files of a capture whose addresses follow from answers; code asks for them in the child,
this side fetches.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import UNSET

from kfm.connectors.base import CaptureRefused, ConnectorFailed, TransformResult
from kfm.connectors.operations import Acquire, Catalogue
from kfm.evidence.captures import RESERVED
from kfm.fetch.base import Fetched, FetchRequest
from kfm.fetch.url import canonical_url, expand_url, parse_url
from kfm.model import Denied, Json, KfmError, UsageError
from kfm.run.answers import Limits, say_odd, with_type_checked
from kfm.run.file_end import Ending
from kfm.world.run_log import RunLog
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.base import copied, room

__all__ = ["Asked", "ask_upstream", "filled_urls", "hosts_of", "offered"]

AT_ONCE = 4  # requests of one `get_many`; politeness may allow fewer
MOST_FILES = 20_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


@dataclass
class Asked:
    """What the child asked for, in order."""

    files: dict[str, Path] = field(default_factory=dict)  # source id -> file
    # source id -> address, answer
    answers: dict[str, tuple[str, Fetched]] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)  # source id -> what was posted
    token: str | None = None
    stamp: str = ""  # when upstream says its release was made
    unchanged: bool = False
    refused: CaptureRefused | None = None  # what came cannot be taken; it is kept all the same
    ending: Ending | None = None  # how the files end


def filled_urls(target: Target) -> tuple[str, ...]:
    """The registered addresses, for this window and partition."""
    since, _, until = target.win.partition("/")
    return tuple(
        expand_url(s["url"], since or None, until or None, target.partition or None)
        for s in target.sources
    )


def hosts_of(target: Target, urls: tuple[str, ...]) -> tuple[str, ...]:
    """Every host this dataset may be fetched from."""
    return tuple(
        sorted(
            {*(parse_url(u).host for u in urls), *(h.lower() for h in target.entry.source.hosts)}
        )
    )


def ask_upstream(
    world: World, target: Target, log: RunLog, scratch: Path, known_token: str | None
) -> Asked:
    """Run `acquire` in the child. Transport errors are raised as they are; a refusal comes back
    with what was fetched before it.
    """
    urls = filled_urls(target)
    found = Asked(ending=Ending(world, target))
    # the child is given copies: what is captured is out of its reach
    kept, given = room(scratch, "kept"), room(scratch, "given")
    desk = _Desk(world, target, log, kept, given, urls, found)
    since, _, until = target.win.partition("/")
    source = target.entry.source
    job = Acquire(
        dataset_id=target.dataset_id,
        source_kind=source.kind,
        options=source.options,
        urls=urls,
        known_token=known_token,
        format=source.format,
        records=source.records,
        since=since or None,
        until=until or None,
        conflicts="refuse" if target.entry.conflicts is UNSET else target.entry.conflicts,
        connector=target.connector,
        artifact=target.artifact,
    )
    try:
        result: TransformResult = world.acquire(job, given, desk.serve, desk.heard)
    except CaptureRefused as refused:
        if not found.files:
            raise
        found.refused = refused
    except ConnectorFailed as failed:
        # it ended with this, and we know it better
        if desk.trouble is not None and failed.unfetched:
            raise desk.trouble from None
        raise
    else:
        found.token, found.unchanged = result.token, result.unchanged
        found.stamp = "" if result.stamp is UNSET else result.stamp
    return found


def offered(world: World, url: str, kind: str, more_hosts: tuple[str, ...]) -> object:
    """What a catalogue offers, as plain values; read in the child."""
    hosts = tuple(sorted({parse_url(url).host, *(h.lower() for h in more_hosts)}))
    trouble: list[KfmError] = []
    with world.data.scratch() as scratch:

        def serve(_: Json) -> Json:
            into = scratch / "catalogue.json"
            request = FetchRequest(
                url=url, hosts=hosts, accept="application/json", max_bytes=64 << 20
            )
            try:
                world.fetcher.fetch(request, into)
            except KfmError as error:
                trouble.append(error)
                raise
            return {"path": str(into)}

        job = Catalogue(dataset_id="discovered", url=url, form=kind, artifact="found.json")
        try:
            world.acquire(job, scratch, serve, lambda event: None)
        except ConnectorFailed:
            if trouble:
                raise trouble[-1] from None
            raise
        return msgspec.json.decode((scratch / "found.json").read_bytes())


class _Desk:
    """Answers the child's requests under the dataset's rules."""

    def __init__(
        self,
        world: World,
        target: Target,
        log: RunLog,
        kept: Path,
        given: Path,
        urls: tuple[str, ...],
        found: Asked,
    ) -> None:
        self._world, self._target, self._log = world, target, log
        self._urls, self._found = urls, found
        self._kept, self._given = kept, given
        self._hosts = hosts_of(target, urls)
        self._names: set[str] = set()
        self._limits = Limits(world.clock, target)
        # why the last request failed, in our own words and with our own exit code
        self.trouble: KfmError | None = None

    def serve(self, message: Json) -> Json:
        """One request, or several at once."""
        wanted = message.get("items") or [message]
        try:
            for item in wanted:
                self._check_name(str(item.get("name", "")))
            if len(wanted) == 1:
                paths = [self._get(wanted[0])]
            else:
                with ThreadPoolExecutor(AT_ONCE) as pool:
                    paths = list(pool.map(self._get, wanted))
        except KfmError as error:
            self.trouble = error
            return {"error": error.happened}
        self.trouble = None
        for item, (path, answer) in zip(wanted, paths):
            self._note(item, path, answer)
        copies = [str(copied(path, self._given / path.name)) for path, _ in paths]
        if "items" in message:
            return {"paths": copies}
        link = paths[0][1].next_link
        return {"path": copies[0]} | ({"next": link} if link else {})

    def heard(self, event: Json) -> None:
        """What the code says on the way."""
        if (
            event.get("op") == "log"
            and event.get("event") != "child.start"
            and not self._world.is_private(self._target.dataset_id)
        ):
            self._log.say(
                f"connector.{event.get('event')}", stage="watch", said=event.get("fields")
            )

    def _check_name(self, name: str) -> None:
        taken = (
            name.casefold() in self._names
            or f"{name}.{self._target.entry.source.format}".casefold() in RESERVED
        )
        if not _NAME.fullmatch(name) or taken or len(self._names) >= MOST_FILES:
            raise UsageError(
                f"acquire() asked for a file named {name!r}.",
                expected=(
                    "a name of letters, digits, dots and dashes, each once, not manifest, and at"
                    f" most {MOST_FILES:,} files"
                ),
                remedy="Give each ask.get or ask.files in acquire() a name like that.",
            )
        self._names.add(name.casefold())

    def _get(self, item: Json) -> tuple[Path, Fetched]:
        source, url = self._target.entry.source, str(item["url"])
        # What a page names is not what a person registered: a reference in it is never resolved,
        # and headers go to the registered host only.
        registered = next(
            (u for u in self._urls if parse_url(u).host == parse_url(url).host), self._urls[0]
        )
        if parse_url(url).scheme == "http" and all(
            parse_url(u).scheme == "https" for u in self._urls
        ):
            raise Denied(
                f"acquire() asks for {parse_url(url).host} by http.",
                expected="https, as registered",
                remedy="Do not follow that link.",
            )
        into = self._kept / f"{item['name']}.{source.format}"
        request = FetchRequest(
            url=url,
            made_from=registered if registered != url else "",
            hosts=self._hosts,
            headers=source.headers,
            max_bytes=source.capture_limit,
            budget=self._limits.budget,
            max_seconds=self._limits.seconds,
            accept=str(item.get("accept") or ""),
            body=str(item.get("body") or ""),
        )
        answer = self._world.fetcher.fetch(request, into)
        if item.get("keep", True):  # what only helps to ask may be anything
            answer = with_type_checked(answer, source)
            assert self._found.ending is not None

            def again(path: Path) -> Fetched:
                self._limits.budget.give_back(answer.size)
                return with_type_checked(self._world.fetcher.fetch(request, path), source)

            return into, self._found.ending.checked(str(item["name"]), into, answer, again)
        return into, answer

    def _note(self, item: Json, path: Path, answer: Fetched) -> None:
        name = str(item["name"])
        if item.get("keep", True):
            self._found.files[name] = path
            self._found.answers[name] = (canonical_url(str(item["url"])), answer)
            if item.get("body"):
                self._found.bodies[name] = str(item["body"])
        self._log.say(
            "source.answered",
            stage="watch",
            source_id=name,
            status=answer.status,
            bytes=answer.size,
            attempts=answer.attempts,
            waits=[msgspec.to_builtins(w) for w in answer.waits],
        )
        say_odd(self._log, name, answer)
