"""look: one look at upstream, conditional where that is safe, and what it brought."""

import datetime as dt
from functools import partial
from pathlib import Path

import msgspec

from kfm.channel.generations import unknown_content
from kfm.connectors.base import CaptureRefused, Refusal
from kfm.fetch.base import Fetched, FetchRequest
from kfm.fetch.url import expand_url, host_of
from kfm.keys.commitments import SEALED, Vaults, Veil
from kfm.model import (
    Clock,
    Denied,
    Generation,
    HeadKey,
    IntegrityError,
    Json,
    LedgerRow,
    SourceRef,
    StepFailed,
    believable,
    ids,
    rfc3339,
)
from kfm.model.paths import capture_folder
from kfm.model.window import seconds
from kfm.run.answers import OWN, Limits, canonical_url_of, capture_name, say_odd, with_type_checked
from kfm.run.file_end import OPEN, Ending
from kfm.store.base import Tx
from kfm.world.run_log import RunLog
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.base import Zone, hash_file

__all__ = [
    "Captured",
    "capture_again",
    "captured_file",
    "covered_source",
    "is_capture",
    "look",
    "replay_capture",
    "source_refs",
]


class Captured(msgspec.Struct, frozen=True):
    """What one look at upstream brought: files in scratch, or the word that nothing changed."""

    # {source_id, source_url, etag, digest, size, content_type, attempts}, as they are written down
    sources: tuple[Json, ...]
    files: dict[str, Path]  # name in the capture -> file
    input_hash: str
    key: str
    etag: str
    unchanged: bool  # upstream answered 304 to the head's validator
    full: bool
    capture_id: str = ""
    # from an earlier capture: good for resuming that run, never for a new one
    replayed: bool = False
    # what came cannot be taken; it is kept, and the run ends with this
    refused: CaptureRefused | None = None
    # of a private dataset: the input hash that runs had before it was a commitment; compared, never
    # written down
    unsalted: str = ""
    looked_on: int = 0  # of a window: the generation that was official when it was asked for

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was odd about the answers and taken all the same, each once."""
        return tuple(
            dict.fromkeys(w for source in self.sources for w in source.get("warnings", ()))
        )


def look(
    world: World, target: Target, log: RunLog, scratch: Path, *, conditional: bool
) -> Captured:
    """Ask upstream. Conditional only when a strong validator of the head version is known and may
    be trusted.
    """
    key, head, untrusted = world.store.read(lambda tx: _last_seen(tx, target))
    stands = (
        key is not None
        and head is not None
        and (key.version_id, key.spec_hash) == (head.version_id, target.spec_hash)
    )
    etags: list[str] = []
    if stands and key is not None and conditional:
        # it runs once, and again only when its schema or its tools change
        if target.entry.cadence == "static":
            unchanged = [Fetched(status=304, final_url="")] * len(target.sources)
            return _covered(world, target, _captured(world, target, unchanged, {}, key), key)
        if key.etag and not untrusted and not _recheck_due(world.clock, target, key):
            etags = _uncovered(world, target, msgspec.json.decode(key.etag))
    captured = (
        _asked(world, target, log, scratch, key, etags)
        if target.asks
        else _fetched(world, target, log, scratch, key, etags)
    )
    captured = _covered(world, target, captured, key)
    if (
        key is not None
        and captured.etag
        and captured.etag == key.etag
        and captured.input_hash != key.input_hash
    ):
        captured = _distrust(world, target, log, captured)
    return captured


def _uncovered(world: World, target: Target, etags: list[str]) -> list[str]:
    """Validators as upstream gave them; none where their key is gone, so that everything is
    read.
    """
    if not world.is_private(target.dataset_id):
        return etags
    try:
        return [world.veil(target.dataset_id).uncover(etag) for etag in etags]
    except (Denied, IntegrityError):
        return []


def _covered(world: World, target: Target, captured: Captured, key: HeadKey | None) -> Captured:
    """A capture as it may be written down: of a private dataset digests and keys are commitments,
    and what upstream said is sealed.

    Both are the same for the same input, so whoever compares needs no key.
    """
    if not world.is_private(target.dataset_id):
        return captured
    if captured.unchanged:  # it repeats what was written down when it was seen whole
        return msgspec.structs.replace(
            captured,
            key=key.run_key if key is not None else "",
            sources=tuple(s | _UNSAID for s in captured.sources),
        )
    veil = world.veil(target.dataset_id)
    sources = tuple(covered_source(world, veil, source) for source in captured.sources)
    if sources:
        sources = ({**sources[0], "capture": captured.capture_id}, *sources[1:])
    etags = [s["etag"] for s in sources]
    return msgspec.structs.replace(
        captured,
        sources=sources,
        input_hash=world.stand_in(target.dataset_id, captured.input_hash).rpartition(":")[2],
        key=world.stand_in(target.dataset_id, captured.key).rpartition(":")[2],
        etag=msgspec.json.encode(etags).decode() if captured.etag else "",
        unsalted=captured.input_hash,
    )


_UNSAID = {"size": 0, "last_modified": None}


def covered_source(world: World, veil: Veil, source: Json) -> Json:
    found = {**source, **_UNSAID, "etag": veil.cover(source["etag"]) if source["etag"] else ""}
    if found["digest"]:
        found["digest"] = world.stand_in(veil.dataset_id, found["digest"])
    if "warnings" in found:
        found["warnings"] = [veil.cover(w) for w in found["warnings"]]
    if "refused" in found:
        found["refused"] = veil.cover(msgspec.json.encode(found["refused"]).decode())
    return found


def _asked(
    world: World, target: Target, log: RunLog, scratch: Path, key: HeadKey | None, etags: list[str]
) -> Captured:
    """A capture whose addresses follow from answers; the change token, where there is one, is its
    validator.
    """
    from kfm.run.ask import ask_upstream  # only where code asks

    asked = ask_upstream(world, target, log, scratch, etags[0] if etags else None)
    if asked.unchanged and key is not None:
        answer = Fetched(status=304, final_url="", etag=asked.token)
        return _captured(world, target, [answer] * len(target.sources), {}, key)
    token = asked.token or ""
    sources = tuple(
        _source(name, url, token, answer)
        | ({"body": asked.bodies[name]} if name in asked.bodies else {})
        for name, (url, answer) in asked.answers.items()
    )
    if asked.stamp and believable(asked.stamp, rfc3339(world.clock.now())):
        sources = ({**sources[0], "stamp": asked.stamp}, *sources[1:]) if sources else ()
    # in the ledger before the bytes are kept: a run that is resumed must end with it, too
    if asked.refused is not None:
        sources = (
            {**sources[0], "refused": msgspec.to_builtins(asked.refused.refusal)},
            *sources[1:],
        )
    files = {f"{name}.{target.entry.source.format}": path for name, path in asked.files.items()}
    if not files:
        raise StepFailed(
            f"The connector of {target.dataset_id} asked for nothing.",
            expected="at least one file",
            remedy=(
                "Let acquire() of its connector.py call ask.get, ask.pages or ask.files at least once;"
                f" `kfm connector try {target.dataset_id}` shows what it asks for."
            ),
        )
    captured = Captured(
        sources=sources,
        files=files,
        input_hash=ids.input_hash([(s["source_id"], s["digest"]) for s in sources]),
        key=ids.run_key(
            canonical_url_of(target.sources[0]["url"]), token, target.win, target.pipeline_version
        ),
        etag=msgspec.json.encode([token] * len(sources)).decode() if token else "",
        unchanged=False,
        full=True,
        capture_id=capture_name(
            world, target.dataset_id, {n: s["digest"] for n, s in zip(files, sources)}
        ),
        refused=asked.refused,
    )
    return _ended(captured, asked.ending) if asked.ending is not None else captured


def _fetched(
    world: World, target: Target, log: RunLog, scratch: Path, key: HeadKey | None, etags: list[str]
) -> Captured:
    """A capture of the registered addresses."""
    answers: list[Fetched] = []
    files: dict[str, Path] = {}
    limits = Limits(world.clock, target)
    for number, source in enumerate(target.sources):
        name = f"{source['source_id']}.{target.entry.source.format}"
        etag = etags[number] if number < len(etags) else None
        answers.append(_fetch(world, target, log, source, scratch / name, etag, limits))
        files[name] = scratch / name
    if etags and key is not None and all(a.status == 304 for a in answers):
        return _captured(world, target, answers, files, key)
    for number, source in enumerate(target.sources):
        if answers[number].status == 304:  # some sources moved: the whole input is needed
            answers[number] = _fetch(
                world, target, log, source, list(files.values())[number], None, limits
            )
    ending = Ending(world, target)
    for number, (source, path) in enumerate(zip(target.sources, files.values())):
        if not source["url"].startswith(OWN):
            again = partial(_fetch_again, world, target, log, source, limits, answers[number].size)
            answers[number] = ending.checked(source["source_id"], path, answers[number], again)
    return _ended(_captured(world, target, answers, files, None), ending)


def _fetch_again(
    world: World,
    target: Target,
    log: RunLog,
    source: dict[str, str],
    limits: Limits,
    size: int,
    into: Path,
) -> Fetched:
    """The same source once more, in the place of an answer of `size` bytes."""
    limits.budget.give_back(size)
    return _fetch(world, target, log, source, into, None, limits)


def _ended(captured: Captured, ending: Ending) -> Captured:
    """The capture with what its ends say. In the ledger before the bytes are kept: a run that is
    resumed must end with it, too.
    """
    sources = tuple(
        {**s, OPEN: True} if s["source_id"] in ending.open else s for s in captured.sources
    )
    if ending.refused is None or captured.refused is not None:
        return msgspec.structs.replace(captured, sources=sources)
    sources = ({**sources[0], "refused": msgspec.to_builtins(ending.refused)}, *sources[1:])
    return msgspec.structs.replace(
        captured, sources=sources, refused=CaptureRefused(ending.refused)
    )


def _last_seen(tx: Tx, target: Target) -> tuple[HeadKey | None, Generation | None, str | None]:
    """What the last look saw, the head as the index knows it, and why this source's validators are
    not trusted, if so.
    """
    head: Generation | None = tx.index.last_generation(target.dataset_id)
    key = (
        None
        if head is not None and unknown_content(head)
        else tx.index.head_key(target.dataset_id, target.partition, target.win)
    )
    return key, head, tx.index.untrusted(target.dataset_id, target.sources[0]["url"])


def _fetch(
    world: World,
    target: Target,
    log: RunLog,
    source: dict[str, str],
    into: Path,
    etag: str | None,
    limits: Limits,
) -> Fetched:
    spec = target.entry.source
    if source["url"].startswith(OWN):
        from kfm.release.dataset_inputs import fetch_table  # joins only

        answer = fetch_table(world, source["url"], etag, into)
        log.say(
            "source.answered",
            stage="watch",
            source_id=source["source_id"],
            status=answer.status,
            etag=answer.etag,
            bytes=answer.size,
        )
        return answer
    since, _, until = target.win.partition("/")
    url = expand_url(source["url"], since or None, until or None, target.partition or None)
    hosts = tuple(sorted({host_of(url), *(h.lower() for h in spec.hosts)}))
    request = FetchRequest(
        url=url,
        hosts=hosts,
        etag=etag,
        headers=spec.headers,
        max_bytes=spec.capture_limit,
        budget=limits.budget,
        max_seconds=limits.seconds,
    )
    answer = world.fetcher.fetch(request, into)
    answer = with_type_checked(answer, spec)
    log.say(
        "source.answered",
        stage="watch",
        source_id=source["source_id"],
        status=answer.status,
        etag=answer.etag,
        bytes=answer.size,
        attempts=answer.attempts,
        waits=[msgspec.to_builtins(w) for w in answer.waits],
    )
    say_odd(log, source["source_id"], answer)
    return answer


def _recheck_due(clock: Clock, target: Target, key: HeadKey) -> bool:
    every = seconds(target.entry.source.recheck)
    age = (clock.now() - dt.datetime.fromisoformat(key.full_check_at)).total_seconds()
    return not 0 <= age < every  # a clock that went back is no reason to trust a validator longer


def _captured(
    world: World,
    target: Target,
    answers: list[Fetched],
    files: dict[str, Path],
    known: HeadKey | None,
) -> Captured:
    urls = [canonical_url_of(s["url"]) for s in target.sources]
    etags = (
        msgspec.json.decode(known.etag)
        if known is not None and known.etag
        else [a.etag or "" for a in answers]
    )
    sources = tuple(
        _source(s["source_id"], url, etag, answer)
        for s, url, etag, answer in zip(target.sources, urls, etags, answers)
    )
    inputs = (
        known.input_hash
        if known is not None
        else ids.input_hash([(s["source_id"], s["digest"]) for s in sources])
    )
    keys = [
        ids.run_key(url, etag, target.win, target.pipeline_version)
        for url, etag in zip(urls, etags)
    ]
    return Captured(
        sources=sources,
        files=files,
        input_hash=inputs,
        key=keys[0] if len(keys) == 1 else ids.spec_hash(keys),
        etag=msgspec.json.encode(etags).decode() if all(etags) else "",
        unchanged=known is not None,
        full=known is None,
        capture_id=(
            capture_name(world, target.dataset_id, {n: s["digest"] for n, s in zip(files, sources)})
            if known is None
            else ""
        ),
    )


def _source(source_id: str, url: str, etag: str, answer: Fetched) -> Json:
    return {
        "source_id": source_id,
        "source_url": url,
        "etag": etag,
        "digest": answer.digest,
        "size": answer.size,
        "content_type": answer.content_type,
        "last_modified": answer.last_modified,
        "attempts": answer.attempts,
        **({"warnings": list(answer.warnings)} if answer.warnings else {}),
        **({"origin": answer.origin} if answer.origin else {}),
        **answer.made_of,
    }


def _distrust(world: World, target: Target, log: RunLog, captured: Captured) -> Captured:
    """Another body under the same validator: conditional requests stop for this source. The
    capture, with a warning that says so.
    """
    why = f"another body under {captured.etag} at {rfc3339(world.clock.now())}"
    world.store.transaction(
        lambda tx: tx.index.distrust(target.dataset_id, target.sources[0]["url"], why)
    )
    log.say("source.distrusted", stage="idempotency", level="warning", reason=why)
    what, first = "change token" if target.asks else "ETag", captured.sources[0]
    if world.is_private(target.dataset_id):
        return captured
    shown = ", ".join(dict.fromkeys(msgspec.json.decode(captured.etag)))[:200]
    warning = (
        f"Another body came under the {what} of the last one, {shown}; from now on the source is"
        " always read whole."
    )
    first = {**first, "warnings": [*first.get("warnings", ()), warning]}
    return msgspec.structs.replace(captured, sources=(first, *captured.sources[1:]))


def source_refs(target: Target, captured: Captured) -> tuple[SourceRef, ...]:
    partition = target.partition or None
    return tuple(
        SourceRef(
            uri=s["source_url"],
            content_hash=s["digest"],
            partition=partition,
            source_id=s["source_id"],
            size=s["size"],
            origin=s.get("origin", msgspec.UNSET),
        )
        for s in captured.sources
    )


def replay_capture(world: World, row: LedgerRow, scratch: Path) -> Captured | None:
    """The capture of an unfinished run, if its bytes are whole: resuming needs no network."""
    sources = msgspec.json.decode(row.source_metadata)
    entry = world.registry(row.dataset_id)
    if entry is None or not sources or not sources[0].get("digest"):
        return None
    names = [f"{s['source_id']}.{entry.source.format}" for s in sources]
    capture = sources[0].get("capture") or capture_name(
        world, row.dataset_id, {n: s["digest"] for n, s in zip(names, sources)}
    )
    files = {}
    for name, source in zip(names, sources):
        found = captured_file(world.data, world.vaults, row.dataset_id, capture, name, scratch)
        if found is None or not is_capture(world, row.dataset_id, found, source["digest"]):
            return None
        files[name] = found
    etags = [s["etag"] or "" for s in sources]
    return Captured(
        sources=tuple(sources),
        files=files,
        input_hash=row.input_hash,
        key=row.key,
        etag=msgspec.json.encode(etags).decode() if all(etags) else "",
        unchanged=False,
        full=True,
        capture_id=capture,
        replayed=True,
        refused=_refused(world.veil(row.dataset_id), sources[0]["refused"])
        if "refused" in sources[0]
        else None,
    )


def _refused(veil: Veil, told: object) -> CaptureRefused:
    found = msgspec.json.decode(veil.uncover(told)) if isinstance(told, str) else told
    return CaptureRefused(msgspec.convert(found, Refusal))


def is_capture(world: World, dataset_id: str, path: Path, digest: str) -> bool:
    """Whether a file is what was captured: `digest` is its own, or the commitment to it."""
    found = hash_file(path).digest
    return digest in (found, world.stand_in(dataset_id, found))


def capture_again(world: World, row: LedgerRow, scratch: Path) -> Captured:
    """The capture of a run that ended, for a new run over the same bytes."""
    kept = replay_capture(world, row, scratch)
    if kept is None:
        raise IntegrityError(
            f"What run {row.run_id} captured is not here any more, or damaged.",
            expected=f"its files in data/raw/{row.dataset_id}/captures",
            remedy=(
                f"`kfm run {row.dataset_id}` asks upstream again; what was decided is applied there"
                " too."
            ),
        )
    return msgspec.structs.replace(kept, replayed=False, full=False)


def captured_file(
    data: Zone, vaults: Vaults | None, dataset_id: str, capture_id: str, name: str, scratch: Path
) -> Path | None:
    """The bytes of a captured file as they came: in place, or unsealed into `scratch`; None when
    they are not there.
    """
    path = f"{capture_folder(dataset_id, capture_id)}/{name}"
    if data.exists(path):
        return data.local(path)
    if vaults is None or not data.exists(path + SEALED):
        return None
    vaults.unseal(dataset_id, data.local(path + SEALED), scratch / name)
    return scratch / name
