"""How it was made, told: who asked, what came from where, the chain of datasets, what was left out,
each step.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kfm.diff.base import Diff
from kfm.model.origin import SAMPLE
from kfm.story.citing import Draft
from kfm.story.stage import File, Input, Stage
from kfm.story.words import (
    STEPS,
    and_list,
    counted,
    day,
    governed,
    rule_words,
    short,
    size,
    spelt,
    trigger_words,
    when,
)

__all__ = ["Telling", "ancestors", "asked", "chain", "refused", "sources", "steps", "summary"]

_MOST = 5  # addresses that are told one by one


@dataclass(frozen=True)
class Telling:
    """What a story is made of."""

    stage: Stage
    diff: Diff | None  # against the version before
    before: File | None  # what lists the files of that one
    not_compared: str  # why there is no `diff`
    root: str | None
    cite: str


def summary(t: Telling) -> Draft:
    s, draft = t.stage, Draft()
    draft.say(
        f"“{s.title}” is kept as the dataset {s.dataset_id}. This is its generation"
        f" {s.signed.generation}, official since {when(s.official_at)}.",
        *s.of("generation", "dcat"),
    )
    if s.entry.description and s.entry.description != s.title:
        draft.say(_sentence(s.entry.description), *s.of("dcat"))
    if s.facts.rows:
        draft.say(
            f"It holds {counted(s.facts.rows, 'row')} with {counted(len(s.facts.schema), 'column')}.",
            *s.of("version"),
        )
    else:
        draft.say(f"It holds {counted(len(s.facts.artifacts), 'file')}.", *s.of("version"))
    if SAMPLE in (s.facts.origin or ()):
        draft.say(
            "The data are invented: kfm's own sample upstream answered in the form of the agency.",
            *s.of("version"),
        )
    elif s.facts.origin:
        draft.say("The data come from recordings of upstream's answers.", *s.of("version"))
    for step in s.facts.steps:
        if step.get("step") == "h3_generalise":
            draft.say(
                f"It does not show where a single record lies. {governed(step)}.",
                *s.of("prov", "version"),
            )
    return draft


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def asked(t: Telling) -> Draft:
    s, draft = t.stage, Draft()
    if s.receipt is None:
        draft.say(
            f"No run made it: it is what generation {s.made.generation} left of the version before.",
            *s.of("made"),
        )
        return draft
    trigger = s.lineage.trigger_type if s.lineage is not None else s.receipt.reason
    at = "" if s.private else f" on {when(s.receipt.started_at)}"
    draft.say(f"{trigger_words(trigger)[1]}{at}.", *s.of("receipt"))
    if s.receipt.request_reason:
        draft.say(f"The reason that was given: “{s.receipt.request_reason}”.", *s.of("receipt"))
    transform = s.receipt.provenance.transforms[0]
    tools = s.receipt.provenance.tool_versions
    draft.say(
        f"The updater {transform['id']}, version {transform['version']}, did the work with kfm"
        f" {tools.get('kfm') or 'of an unknown version'}.",
        *s.of("receipt", "prov"),
    )
    if s.attempts:
        draft.say(
            f"It was interrupted {counted(s.attempts, 'time')} and went on where it had stopped.",
            *s.of("run_record"),
        )
    if s.last_success is not None:
        at, log = s.last_success
        draft.say(f"Upstream was last looked at on {when(at)}; nothing had changed.", log)
    return draft


def sources(t: Telling) -> Draft:
    s, draft = t.stage, Draft()
    outside = [given for given in s.inputs if not given.dataset_id]
    for given in outside[:_MOST]:
        _fetched(draft, s, given)
    if len(outside) > _MOST:
        draft.say(
            f"{counted(len(outside) - _MOST, 'more address', 'more addresses')} were asked; the"
            " receipt lists them.",
            *s.of("receipt"),
        )
    if outside and not s.private:
        draft.say(
            "The bytes were kept as they came, before anything else was done.", *s.of("capture")
        )
    if outside and s.private:
        draft.say(
            "How many records came, how large the answer was and when it was read stay inside,"
            " because even that can give something away. A commitment stands in their place; an"
            " auditor who is given the salt can open it.",
            *s.of("receipt", "prov"),
        )
    own = [given for given in s.inputs if given.dataset_id]
    if own:
        named = and_list(_named(given) for given in own)
        alone = "Nothing was fetched from outside. " if not outside else ""
        draft.say(f"{alone}It was made from {named}.", *s.of("prov", "receipt"))
    return draft


def _fetched(draft: Draft, s: Stage, given: Input) -> None:
    invented = " (the sample upstream answered for it)" if given.origin == SAMPLE else ""
    if s.private:
        draft.say(f"Its records come from {given.address}{invented}.", *s.of("receipt", "prov"))
        return
    assert s.receipt is not None
    told = f" and was given {size(given.size)}" if given.size else ""
    said = f" Upstream says it was last changed on {when(given.said_at)}." if given.said_at else ""
    draft.say(
        f"kfm asked {given.address}{invented} on {when(s.receipt.started_at)}{told}.{said}",
        *s.of("run_record", "receipt"),
    )


def _named(given: Input) -> str:
    if given.stage is None:
        return f"{given.dataset_id} ({given.note})"
    return f"{given.stage.title} ({given.stage.ref})"


def ancestors(stage: Stage) -> Iterator[Stage]:
    """Everything a version was made from, nearest to the sources first, each once."""
    seen = set[str]()
    for given in stage.inputs:
        if given.stage is not None:
            for one in (*ancestors(given.stage), given.stage):
                if one.ref not in seen:
                    seen.add(one.ref)
                    yield one


def chain(t: Telling) -> Draft:
    draft = Draft(listed=True)
    for one in ancestors(t.stage):
        draft.say(_of_ancestor(one), *one.of("generation", "receipt", "prov", "validation_report"))
    if draft.said:
        s = t.stage
        made = and_list(g.dataset_id for g in s.inputs if g.dataset_id)
        draft.say(
            f"{s.title} ({s.ref}) was made from {made}.", *s.of("generation", "receipt", "prov")
        )
    return draft


def _of_ancestor(s: Stage) -> str:
    own = [g.dataset_id for g in s.inputs if g.dataset_id]
    outside = [g.address for g in s.inputs if not g.dataset_id]
    how = f"was made from {and_list(own)}" if own else f"came from {and_list(outside[:2])}"
    since = f"{s.title} ({s.ref}) {how} and is official since {when(s.official_at)}"
    if s.agreed:
        since += f"; {and_list(one.name for one in s.agreed)} agreed to it"
    if s.private:
        return (
            f"{since}. Its records are not public ({s.terms.sensitivity}); only what its own release"
            " shows leaves the restricted side."
        )
    if s.books is None or s.books.gone:
        return f"{since}."
    return f"{since}. Of {counted(s.books.read, 'record')} that were read, {s.books.written:,} were kept."


def refused(t: Telling) -> Draft:
    s, draft = t.stage, Draft()
    if s.receipt is None:
        return draft
    if s.private:
        draft.say(
            "How many records were read, refused or left out is not told, because even counts can"
            " give something away. Inside they were counted: the gate that asks whether every record"
            " is accounted for let it pass.",
            *s.of("receipt"),
        )
        return draft
    books = s.books
    if books is None or books.gone:
        return draft
    if not books.quarantined and not books.dropped:
        draft.say(
            f"All {counted(books.read, 'record')} that were read became rows. Nothing was refused.",
            *s.of("validation_report"),
        )
        return draft
    parts = [f"{books.written:,} became rows"]
    parts += [f"{books.unchanged:,} were unchanged"] if books.unchanged else []
    parts += (
        [f"{books.quarantined:,} {_were(books.quarantined)} set aside"] if books.quarantined else []
    )
    gone = sum(books.dropped.values())
    parts += [f"{gone:,} {_were(gone)} left out by rule"] if gone else []
    draft.say(
        f"{counted(books.read, 'record')} {_were(books.read)} read: {and_list(parts)}.",
        *s.of("validation_report"),
    )
    for rule, count in s.set_aside.items():
        draft.say(f"Set aside, {count:,}: {rule_words(rule)} (rule {rule}).", *s.of("quarantine"))
    for rule, count in books.dropped.items():
        draft.say(
            f"Left out, {count:,}: {rule_words(rule)} (rule {rule}).", *s.of("validation_report")
        )
    if books.balanced:
        draft.say("Nothing else went missing: the books balance.", *s.of("validation_report"))
    return draft


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def steps(t: Telling) -> Draft:
    s, draft = t.stage, Draft(listed=True)
    if s.journal:
        draft.when = day(s.journal[0].ts)
    if s.plan is not None and s.plan_hash:
        first = not s.journal or s.journal[0].step_id == "plan"  # an assembly's, an older kfm's
        told = "before work began" if first else "when its input had passed every check"
        draft.say(
            f"A plan of {spelt(len(s.plan.steps))} steps was fixed {told}; its hash is"
            f" {short(s.plan_hash)}",
            *s.of("journal", "run_record"),
        )
    done = {r.step_id: r for r in s.journal if r.status == "DONE"}
    for record in sorted(done.values(), key=lambda r: r.seq):
        if record.step_id in STEPS and record.step_id != "plan":
            draft.say(
                f"{record.ts[11:19]} UTC: {STEPS[record.step_id]} (step {record.step_id}).",
                *s.of("journal"),
            )
    if s.private and s.receipt is not None:
        draft.say(
            "The plan and the journal of the run are sealed, because they speak of records that are"
            " not public. What was done to the records by rule is told here.",
            *s.of("receipt"),
        )
    for step in s.facts.steps:
        draft.say(f"{governed(step)}.", *s.of("prov", "version"))
    for act in s.acts if s.receipt is None else ():
        draft.say(
            f"Generation {act.signed.generation} took records away and changed nothing else.",
            act.file,
        )
    return draft
