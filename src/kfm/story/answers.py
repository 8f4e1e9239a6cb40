"""Answers the fixed questions from evidence, each sentence with the files that show it; and says
when it cannot know.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from kfm.access.boundary import Reader
from kfm.model import Generation, Json, UsageError, ids
from kfm.model.paths import quarantine_path
from kfm.model.window import seconds
from kfm.story import how_made, why_official
from kfm.story.blame import Blame, blame, key_of
from kfm.story.citing import Draft, Shelf
from kfm.story.gather import gather
from kfm.story.how_made import Telling
from kfm.story.node import Proof, Sentence
from kfm.story.questions import QUESTIONS, meant
from kfm.story.stage import File, Stage
from kfm.story.words import rule_words, when
from kfm.story.write import compared
from kfm.world.run_log import mask
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["Answered", "answer"]


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """`kfm ask DATASET "…" --json`."""

    dataset_id: str
    ref: str
    asked: str
    question: str  # as it was understood
    known: bool  # False: evidence does not say
    answer: tuple[Sentence, ...]
    evidence: tuple[Proof, ...]
    receipt: str  # that of what is answered about; empty: no run made it
    receipt_digest: str
    next: tuple[str, ...]


@dataclass(frozen=True)
class _Asked:
    """What an answer is made of."""

    world: World
    stage: Stage
    reader: Reader
    left: tuple[str, ...]
    target_of: Callable[[Json], Target] | None

    @property
    def telling(self) -> Telling:
        return Telling(self.stage, None, None, "", None, "")

    @property
    def column(self) -> str | None:
        names = {c.name.lower(): c.name for c in self.stage.facts.schema}
        return next((names[w.lower()] for w in self.left if w.lower() in names), None)

    @property
    def key(self) -> list[str]:
        """The words that can be a key."""
        return [w for w in self.left if "=" in w or w != self.column]

    def blamed(self) -> Blame | None:
        """Who gave the row its values; None: the words name no row."""
        try:
            given = self.key
            if not key_of(given, self.stage.entry.business_key, self.stage.facts):
                return None
        except UsageError:
            return None
        found = blame(self.world, self.stage.ref, given, self.column, self.reader, self.target_of)
        # which generations somebody else may look at is for who runs things
        return found if self.target_of else msgspec.structs.replace(found, not_shown=())


def answer(
    world: World,
    text: str,
    asked: str,
    reader: Reader,
    target_of: Callable[[Json], Target] | None,
) -> Answered:
    """What evidence says. Without `target_of` nobody looks at what upstream gave or at what was set
    aside of it: that is for who runs things. Raises `UsageError` where the words mean none of the questions."""
    found = meant(asked)
    if found is None:
        raise UsageError(
            "That is none of the questions that can be answered here, or two at once.",
            expected="; ".join(q.text for q in QUESTIONS),
            remedy=f"`kfm ask {text}` lists them.",
        )
    stage = gather(world, text, reader)
    about = _Asked(world, stage, reader, found.left, target_of)
    draft, known, following = _ANSWERS[found.question.id](about)
    shelf = Shelf()
    said = shelf.sentences(draft.said)
    receipt = stage.files.get("receipt")
    return Answered(
        dataset_id=stage.dataset_id,
        ref=stage.ref,
        asked=mask(asked, world.private),
        question=found.question.text,
        known=known,
        answer=tuple(Sentence(text=mask(s.text, world.private), evidence=s.evidence) for s in said),
        evidence=shelf.proofs(),
        receipt=receipt.path if receipt is not None else "",
        receipt_digest=receipt.digest if receipt is not None else "",
        next=following,
    )


_Told = tuple[Draft, bool, tuple[str, ...]]


def _joined(*drafts: Draft) -> Draft:
    return Draft(said=[one for draft in drafts for one in draft.said])


def _from(a: _Asked) -> _Told:
    return (
        _joined(how_made.sources(a.telling), how_made.chain(a.telling)),
        True,
        (f"kfm story {a.stage.ref}",),
    )


def _touched(a: _Asked) -> _Told:
    t = a.telling
    return (
        _joined(how_made.asked(t), why_official.people(t), why_official.since(t)),
        True,
        (f"kfm history {a.stage.dataset_id}",),
    )


def _rule(a: _Asked) -> _Told:
    t, draft = a.telling, Draft()
    gates = why_official.gates(t).said
    draft.said += gates[:1] + [
        one for one in gates if one[0].startswith(("Policy:", "Labels:", "Licence:"))
    ]
    draft.said += how_made.refused(t).said
    draft.said += why_official.governance(t).said[-1:]
    return draft, True, (f"kfm gates {a.stage.ref}",)


def _use(a: _Asked) -> _Told:
    draft = why_official.governance(a.telling)
    return Draft(said=draft.said), True, (f"kfm cite {a.stage.ref}",)


def _fresh(a: _Asked) -> _Told:
    s, draft, now = a.stage, Draft(), a.world.clock.now()
    draft.say(f"What is official was made official on {when(s.official_at)}.", *s.of("generation"))
    if s.facts.interval is not None:
        draft.say(f"The newest record speaks of {when(s.facts.interval[1])}.", *s.of("version"))
    if s.last_success is not None:
        at, log = s.last_success
        draft.say(f"Upstream was last looked at on {when(at)}; nothing had changed.", log)
    if s.private:
        draft.say("When its source was last read stays inside.", *s.of("receipt"))
        return draft, False, (f"kfm status {s.dataset_id}",)
    seen = s.last_success[0] if s.last_success is not None else s.official_at
    if seen:
        age = (now - dt.datetime.fromisoformat(seen)).total_seconds()
        late = age > seconds(s.entry.freshness)
        draft.say(
            f"It is promised to be looked at within {s.entry.freshness}: it is {'late' if late else 'fresh'}.",
            *s.of("run_record", "receipt"),
        )
    return draft, bool(seen), (f"kfm status {s.dataset_id}",)


def _changed(a: _Asked) -> _Told:
    s, draft = a.stage, Draft()
    found = a.blamed()
    if found is None:
        diff, before, why = compared(a.world, s, a.reader)
        draft.say(
            f"It last changed on {when(s.official_at)}, with generation {s.signed.generation}.",
            *s.of("generation"),
        )
        told = why_official.change(Telling(s, diff, before, why, None, ""))
        return _joined(draft, told), True, (f"kfm history {s.dataset_id}",)
    if not found.there:
        return _missing(a)
    for cell in found.cells:
        sure = "" if cell.certain else " at the latest"
        draft.say(
            f"{cell.column} is {cell.value!r} since generation {cell.generation}{sure}"
            f" ({when(cell.at)}); the run {cell.run_id} wrote it.",
            _generation(a, cell.generation),
        )
    for one in found.was[1:]:
        value = repr(one.value) if one.there else "not there"
        draft.say(
            f"Before that it was {value}, since generation {one.generation}.",
            _generation(a, one.generation),
        )
    certain = all(cell.certain for cell in found.cells)
    return draft, certain, (_blame(a),)


def _had(a: _Asked) -> _Told:
    found = a.blamed()
    if found is None:
        return _which_row(a)
    draft = Draft()
    if found.there:
        first = min((c.generation for c in found.cells), default=a.stage.signed.generation)
        draft.say(
            f"{a.stage.ref} has it, and so has every generation since {first} at least.",
            _generation(a, a.stage.signed.generation),
            _generation(a, first),
        )
    elif found.last_seen is not None:
        draft.say(
            f"Generation {found.last_seen} had it, generation {found.gone_by} has it no more.",
            _generation(a, found.last_seen),
            _generation(a, int(found.gone_by or 0)),
        )
    else:
        draft.say(
            f"No version up to {a.stage.ref} that may be looked at has it.",
            *a.stage.of("generation"),
        )
    if found.not_shown:
        numbers = ", ".join(map(str, found.not_shown))
        draft.say(
            f"Not known of generations that may not be shown: {numbers}.", *a.stage.of("generation")
        )
    return draft, not found.not_shown, (_blame(a),)


def _missing(a: _Asked) -> _Told:
    s, draft, found = a.stage, Draft(), a.blamed()
    if found is None:
        draft.said += (
            how_made.refused(a.telling).said + why_official.governance(a.telling).said[-1:]
        )
        return draft, True, (f'kfm ask {s.dataset_id} "why is KEY missing"',)
    if found.there:
        draft.say(f"It is not missing: {s.ref} has it.", *s.of("generation", "checksums"))
        return draft, True, (_blame(a),)
    aside = _set_aside(a, found.key)
    if found.last_seen is not None:
        gone = _row(a, int(found.gone_by or 0))
        how = {
            "withdraw": "took records away; which ones is not told",
            "rollback": "went back to a version that did not have it",
        }.get(gone.kind, "was made from an answer of upstream that did not bring it as a row")
        draft.say(
            f"Generation {found.last_seen} had it. Generation {found.gone_by} {how}.",
            _generation(a, found.last_seen),
            _generation(a, int(found.gone_by or 0)),
        )
    if aside:
        draft.said += aside
        return draft, True, (f"kfm quarantine list {s.dataset_id}",)
    if found.last_seen is None:
        draft.say(
            f"No version up to {s.ref} had it, and nothing that was set aside names it. Whether upstream"
            " ever had it cannot be known here.",
            *s.of("generation"),
        )
    known = found.last_seen is not None and _row(a, int(found.gone_by or 0)).kind != "withdraw"
    return draft, known, (_blame(a),)


def _set_aside(a: _Asked, key: dict[str, str]) -> list[tuple[str, tuple[File, ...]]]:
    """Records of the run that were set aside and spell the key; of private ones nothing is said."""
    s = a.stage
    if a.target_of is None or s.private or s.receipt is None or "quarantine" not in s.files:
        return []
    path = quarantine_path(s.dataset_id, s.receipt.run_id, "rows.jsonl")
    said = []
    for line in a.world.data.read(path).splitlines():
        row = msgspec.json.decode(line)
        if all(value in row["record"] for value in key.values()):
            text = f"A record that spells it was set aside, line {row['line']:,} of the source: {rule_words(row['rule'])} (rule {row['rule']})."
            said.append((text, s.of("quarantine")))
    return said[:5]


def _which_row(a: _Asked) -> _Told:
    draft = Draft()
    names = a.stage.entry.business_key or tuple(c.name for c in a.stage.facts.schema)
    draft.say(
        f"Which row is meant is not said: name it by {' and '.join(names)}.", *a.stage.of("version")
    )
    return draft, False, (f'kfm ask {a.stage.dataset_id} "which version had {names[0]}=…"',)


def _blame(a: _Asked) -> str:
    given = " ".join(f"--key {part}" for part in a.key)
    return f"kfm blame {a.stage.ref} {given}".rstrip()


def _row(a: _Asked, number: int) -> Generation:
    found: Generation | None = a.world.store.read(
        lambda tx: tx.index.generation(a.stage.dataset_id, number)
    )
    if found is None:
        raise UsageError(
            f"There is no generation {number}.",
            expected="one of the channel",
            remedy="`kfm history` lists them.",
        )
    return found


def _generation(a: _Asked, number: int) -> File:
    path = a.world.channel(a.stage.dataset_id).path(number)
    return File(
        f"Signed generation, {a.stage.dataset_id}@{number}",
        f"data/{path}",
        ids.digest(a.world.data.read(path)),
        "signed; names the version that was official",
    )


_ANSWERS: dict[str, Callable[[_Asked], _Told]] = {
    "from": _from,
    "touched": _touched,
    "rule": _rule,
    "had": _had,
    "missing": _missing,
    "changed": _changed,
    "fresh": _fresh,
    "use": _use,
}
