"""Why it may be official, told: gates, people, governance, what changed, what happened since, and
how to check and cite it.
"""

from kfm.diff.base import Diff
from kfm.keys.approvals import custodian_of
from kfm.model import Verdict, obligations
from kfm.story.citing import Draft
from kfm.story.how_made import Telling
from kfm.story.node import Agreed
from kfm.story.stage import Act, Stage
from kfm.story.words import (
    GATES,
    and_list,
    area_of,
    counted,
    label_words,
    obligation_words,
    short,
    spelt,
    when,
)

__all__ = [
    "authority_of",
    "change",
    "cite",
    "gates",
    "governance",
    "people",
    "since",
    "verify",
    "withheld_of",
]

_ACTS = {
    "rollback": "went back to this version",
    "withdraw": "took records away; this version is what was left",
    "void": "repeats what was official before it",
}


def gates(t: Telling) -> Draft:
    s, draft = t.stage, Draft(listed=True)
    if not s.verdicts:
        return draft
    files = s.of("run_manifest") or s.of("receipt")
    asked = [v for v in s.verdicts if v.review]
    passed = (
        "all of them let it pass"
        if not asked
        else f"{spelt(len(asked))} asked for a person to look, the others let it pass"
    )
    again = (
        " All were asked again right before it became official."
        if s.receipt is not None and s.receipt.promotion
        else ""
    )
    count = spelt(len(s.verdicts))
    draft.say(
        f"{count[0].upper()}{count[1:]} gates were asked; {passed}.{again}",
        *files,
        *s.of("receipt"),
    )
    for verdict in s.verdicts:
        draft.say(_gate(verdict), *files)
    return draft


def _gate(verdict: Verdict) -> str:
    words = GATES.get(verdict.gate, verdict.gate)
    note = f" ({verdict.note})" if verdict.note else ""
    said = "".join(f" It asked for a person: {r.message}" for r in verdict.review)
    return f"{verdict.gate.capitalize()}: {words}{note}.{said}"


def people(t: Telling) -> Draft:
    s, draft = t.stage, Draft(listed=True)
    if s.recorded is None:
        if s.made.approvals_digest:
            draft.say("The record of who agreed to it is missing.", *s.of("made"))
        elif s.receipt is not None:
            draft.say("It was made before approvals were recorded.", *s.of("made"))
        return _signature(s, draft)
    wanted, custodian = s.terms.approvals, custodian_of(s.terms)
    if wanted:
        by = f" by stewards of {custodian}" if custodian else ""
        draft.say(f"Its terms ask for {counted(wanted, 'approval')}{by}.", *s.of("approvals"))
    elif not s.agreed:
        draft.say("Its terms ask for nobody's approval, and nobody was asked.", *s.of("approvals"))
    for one in s.agreed:
        draft.say(_person(one), *s.of("approvals"))
    return _signature(s, draft)


def _person(one: Agreed) -> str:
    said = {
        "operator": "the operator, accepted that so much changes at once",
        "grantor": "granted that it is published",
        "steward": "steward, agreed to exactly these bytes",
    }.get(one.role, "agreed to exactly these bytes")
    at = f" on {when(one.at)}" if one.at else ""
    why = f": “{one.reason}”" if one.reason else ""
    return f"{one.name}, {said}{at}, with the key {short(one.key)}{why}."


def _signature(s: Stage, draft: Draft) -> Draft:
    name, key = s.signer
    if key:
        draft.say(
            f"Generation {s.signed.generation} was signed with the builder key {short(key)}"
            f" (“{name}”).",
            *s.of("generation"),
        )
    return draft


def governance(t: Telling) -> Draft:
    s, draft = t.stage, Draft(listed=True)
    terms, shown = s.terms, s.of("approvals") or s.of("dcat")
    who = terms.custodian or and_list(owners_of(s))
    if who:
        speak = " Only its stewards may speak for it." if custodian_of(terms) else ""
        draft.say(f"{who} answers for it.{speak}", *shown)
    draft.say(f"It may be used under the licence {terms.licence}.", *shown)
    if s.entry.rights:
        draft.say(f"Terms of use: {s.entry.rights}", *s.of("dcat"))
    draft.say(f"It is labelled {label_words(str(terms.sensitivity))}.", *shown)
    if terms.policy_label and terms.policy_label != terms.sensitivity:
        draft.say(f"Its policy label is {label_words(terms.policy_label)}.", *shown)
    if terms.care_label:
        draft.say(f"The community's own statement (CARE label) is “{terms.care_label}”.", *shown)
    owed = obligations_of(s)
    if owed:
        draft.say(
            f"Its labels, and those of what it is made from, demand that {obligation_words(owed)}."
            " No gate lets it pass before that is done.",
            *shown,
        )
    if s.facts.h3_resolution is not None:
        draft.say(
            f"Places are shown as H3 cells of resolution {s.facts.h3_resolution}, about"
            f" {area_of(s.facts.h3_resolution)} each.",
            *s.of("version", "prov"),
        )
    held = withheld_of(s)
    if held:
        draft.say(f"Held back: {held}. Authority: {authority_of(s)}.", *s.of("prov"), *shown)
    else:
        draft.say("Nothing is held back.", *s.of("version"), *shown)
    return draft


def owners_of(s: Stage) -> tuple[str, ...]:
    """Who owns it, without addresses."""
    return tuple(owner.split(" <")[0] for owner in s.entry.owners)


def obligations_of(s: Stage) -> tuple[str, ...]:
    """What labels demand, of the dataset and of everything it is made from."""
    return obligations(s.recorded.terms if s.recorded is not None else [s.terms])


def withheld_of(s: Stage) -> str:
    """What is held back, in words; empty: nothing is."""
    parts = []
    for step in s.facts.steps:
        match step.get("step"):
            case "show":
                listed = and_list(map(str, step["columns"]))
                parts.append(
                    f"every column but {listed}" if listed else "every column of the records"
                )
            case "withhold":
                parts.append(f"the columns {and_list(map(str, step['columns']))}")
            case "h3_generalise":
                parts.append("every exact place")
                parts.append(f"rows that fewer than {step['min_records']} records stand behind")
            case "aggregate":
                parts.append("single records")
            case _:
                pass
    return and_list(dict.fromkeys(parts))


def authority_of(s: Stage) -> str:
    """On whose word something is held back."""
    if not withheld_of(s):
        return ""
    who = s.terms.custodian or and_list(owners_of(s)) or "whoever registered it"
    label = (
        f"the label {s.terms.sensitivity}"
        if obligations_of(s)
        else "the release that is registered for it"
    )
    return f"{label}, set in the registry; {who} answers for it"


def change(t: Telling) -> Draft:
    s, draft, diff = t.stage, Draft(), t.diff
    files = (*s.of("checksums", "version"), *((t.before,) if t.before is not None else ()))
    if diff is None:
        draft.say(
            t.not_compared or "It is the first version: there is nothing to compare it with.",
            *files,
        )
        return draft
    if diff.same:
        draft.say(
            f"Nothing differs from {diff.a}: {counted(diff.equal, 'row')} are the same.", *files
        )
        return draft
    draft.say(_numbers(diff), *files)
    for kind, names in (("came", diff.columns.added), ("went", diff.columns.removed)):
        if names:
            draft.say(f"Columns that {kind}: {and_list(names)}.", *files)
    if diff.touched:
        most = sorted(diff.touched.items(), key=lambda item: (-item[1], item[0]))[:3]
        told = and_list(f"{name} in {counted(count, 'row')}" for name, count in most)
        more = " among others" if len(diff.touched) > len(most) else ""
        draft.say(f"What changed in them: {told}{more}.", *files)
    if diff.moved:
        draft.say(f"{counted(diff.moved, 'place')} moved.", *files)
    return draft


def _numbers(diff: Diff) -> str:
    parts = [
        f"{counted(count, 'row')} {'was' if count == 1 else 'were'} {word}"
        for count, word in (
            (diff.added, "added"),
            (diff.removed, "removed"),
            (diff.changed, "changed"),
        )
        if count
    ]
    now = (
        f"there are {diff.rows_b:,} rows, as before"
        if diff.rows_a == diff.rows_b
        else f"the rows went from {diff.rows_a:,} to {diff.rows_b:,}"
    )
    return f"Against {diff.a}: {and_list(parts) or 'no row differs'}; {now}."


def since(t: Telling) -> Draft:
    s, draft = t.stage, Draft()
    for act in s.acts:
        draft.say(_act(act), act.file)
    number, file = s.newest
    if number != s.signed.generation:
        draft.say(f"It is not the newest: generation {number} is official now.", file)
    return draft


def _act(act: Act) -> str:
    told = act.signed
    what = _ACTS.get(told.kind, told.kind)
    if told.lifts is not None:
        what = f"undid the withdrawal of generation {told.lifts.generation}, signed by {act.by}"
    rule = told.suppress[0] if told.suppress else {}
    authority = f" on the authority of {rule['authority']}" if rule.get("authority") else ""
    at = f"On {when(act.at)} generation" if act.at else "Generation"
    why = f" The reason that was given: “{told.reason}”." if told.reason else ""
    return f"{at} {told.generation} {what}{authority}.{why}"


def verify(t: Telling) -> Draft:
    s = t.stage
    file = f"{s.dataset_id}-{s.signed.generation}.bundle.zip"
    root = f" --root {t.root}" if t.root else ""
    again = f"kfm rebuild {s.files['receipt'].path}" if "receipt" in s.files else ""
    commands = [
        f"kfm verify {s.dataset_id}",
        f"kfm bundle {s.ref} -o {file}",
        f"kfm verify {file}{root}",
    ]
    draft = Draft(commands=(*commands, *([again] if again and _rebuilds(s) else [])))
    draft.say(
        "One file holds everything that proves this version. To check it needs no network and no"
        " account, only the fingerprint of the root, which the publisher tells you by another way.",
        *s.of("attestation", "checksums"),
    )
    if again and _rebuilds(s):
        draft.say(
            "From what was captured the table can be made again and compared byte for byte.",
            *s.of("receipt", "capture"),
        )
    return draft


def _rebuilds(s: Stage) -> bool:
    """Whether `kfm rebuild` can make it again from its capture alone."""
    return not s.private and "capture" in s.files and s.made.kind == "promote"


def cite(t: Telling) -> Draft:
    s = t.stage
    draft = Draft(commands=(f"kfm cite {s.ref}",))
    draft.say(t.cite.splitlines()[0], *s.of("checksums", "dcat"))
    return draft
