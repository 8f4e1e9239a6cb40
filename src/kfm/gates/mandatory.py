"""The gates every promotion passes; each is a pure function of the evidence and names every reason
with a remedy.
"""

from shlex import quote

from msgspec import UNSET

from kfm.gates.quality import quality
from kfm.model import (
    CARE_LABELS,
    OBLIGATIONS,
    PARTIAL,
    Books,
    Evidence,
    Gate,
    Reason,
    UsageError,
    Verdict,
    restrictions,
    shown_looks,
)

__all__ = ["GATES", "check_licence", "is_spdx"]


def integrity(e: Evidence) -> Verdict:
    reasons = []
    for path, digest in e.expected.items():
        found = e.found.get(path)
        if found is None:
            reasons.append(
                Reason(
                    code="integrity.missing",
                    message=f"{path} is missing.",
                    remedy="Run the dataset again with --force.",
                )
            )
        elif found != digest:
            reasons.append(
                Reason(
                    code="integrity.digest",
                    message=f"{path} is {found}, the candidate says {digest}.",
                    remedy="Run the dataset again with --force.",
                )
            )
    if not e.expected:
        reasons.append(
            Reason(
                code="integrity.empty",
                message="The candidate has no artifact.",
                remedy="Check the source.",
            )
        )
    many = "1 file" if len(e.expected) == 1 else f"{len(e.expected)} files"
    return Verdict(gate="integrity", reasons=tuple(reasons), note=f"{many}, every digest read back")


def schema(e: Evidence) -> Verdict:
    reasons = []
    have = {c.name: c for c in e.schema}
    # a release has columns of its own
    stated = e.entry if e.entry is not None and e.entry.release is None else None
    for column in stated.schema if stated else ():
        found = have.get(column.name)
        if found is None:
            reasons.append(
                Reason(
                    code="schema.missing",
                    message=f"The column {column.name} is missing.",
                    remedy="Change `schema` in the registry, or ask upstream.",
                )
            )
        elif found.type != column.type:
            reasons.append(
                Reason(
                    code="schema.type",
                    message=(
                        f"The column {column.name} is {found.type}, the registry says"
                        f" {column.type}."
                    ),
                    remedy="Change `schema` in the registry, or ask upstream.",
                )
            )
    for key in stated.business_key if stated else ():
        if key not in have:
            reasons.append(
                Reason(
                    code="schema.key",
                    message=f"The business key {key} is no column.",
                    remedy="Correct `business_key` in the registry.",
                )
            )
    place = stated.location if stated else None
    for name in (place.latitude, place.longitude) if place else ():
        if name not in have:
            reasons.append(
                Reason(
                    code="schema.location",
                    message=f"The column {name}, which says where a record is, is missing.",
                    remedy="Correct `location` in the registry.",
                )
            )
    if e.partial:
        reasons.append(
            Reason(
                code=PARTIAL,
                message=f"Only {e.rows:,} rows came, fewer than `source.completeness` asks for.",
                remedy="Wait for upstream to be whole again, or lower `source.completeness`.",
            )
        )
    catalog = (
        (_unseen("catalog", "What the catalogs would say"),) if e.catalog is None else e.catalog
    )
    return Verdict(gate="schema", reasons=(*reasons, *catalog), note=e.catalog_note)


def licence(e: Evidence) -> Verdict:
    stated = e.entry.licence if e.entry else None
    name = e.entry.dataset_id if e.entry else "ID"
    if e.licences is None:
        return Verdict(
            gate="licence", reasons=(_unseen("licence", "What the licences of its inputs allow"),)
        )
    if not stated:
        reason = Reason(
            code="licence.missing",
            message="No licence is stated.",
            remedy=(
                "Where upstream states one, add `licence: CC-BY-4.0`, or what it is, to"
                f" data/registry/{name}.yml. Else `kfm licence ask {name}` writes the letter; `kfm"
                f" licence set {name} SPDX --proof FILE` records the answer."
            ),
        )
    elif stated.upper() in ("NOASSERTION", "NONE"):
        reason = Reason(
            code="licence.noassertion",
            message=f"The registry says {stated}: nobody vouches for a right to publish.",
            remedy=(
                f"`kfm licence ask {name}` writes the letter; `kfm licence set {name} SPDX --proof"
                " FILE` records the answer."
            ),
        )
    elif not is_spdx(stated):
        reason = Reason(
            code="licence.unknown",
            message=f"{stated!r} is not an SPDX licence id.",
            remedy=f"`kfm licence set {name} CC-BY-4.0 --proof FILE` records one that is.",
        )
    else:
        return Verdict(
            gate="licence",
            review=tuple(_unfree(e)),
            note=stated + (f", {e.licence_note}" if e.licence_note else ""),
        )
    return Verdict(gate="licence", reasons=(reason,))


def _open_to_all(e: Evidence) -> bool:
    """Whether what is published may be read by everybody; what is restricted is read with a
    steward's grant.
    """
    return e.entry is not None and e.entry.sensitivity != "restricted"


def _unfree(e: Evidence) -> list[Reason]:
    """Licences that do not let everybody use and pass on what is published, unless a person has
    signed that this one may be.
    """
    found = []
    for source, stated in (e.licences or {}).items() if _open_to_all(e) else ():
        terms = restrictions(stated)
        if terms and is_spdx(stated) and f"licence\n{stated}" not in e.permits:
            name = e.entry.dataset_id if e.entry else "ID"
            whose = "" if source == name else f" of {source}, which it is made from,"
            what = (
                "is not known to allow"
                if "unknown" in terms
                else f"({', '.join(terms)}) does not allow"
            )
            found.append(
                _no(
                    "licence.restricted",
                    f"The licence {stated}{whose} {what} everybody to use and pass it on, and the"
                    f" dataset is {e.entry.sensitivity if e.entry else ''}.",
                    f"`kfm licence allow {name} --reason … --key NAME` signs, once for the dataset,"
                    " that it may be public all the same.",
                )
            )
    return found


def _marked(e: Evidence) -> list[Reason]:
    """Records whose own column says that they are restricted, unless a person has signed that these
    may be public.
    """
    found = []
    name = e.entry.dataset_id if e.entry else "ID"
    for column, values in sorted(e.restricted.items()) if _open_to_all(e) else ():
        for value, count in sorted(values.items()):
            if f"records\n{column}\n{value}" not in e.permits:
                told = value if len(value) <= 60 else value[:60] + "…"
                few = f"{count:,} record{' says' if count == 1 else 's say'}"
                rule = quote(f"{column}={value}") if len(value) <= 60 else "COLUMN=VALUE"
                found.append(
                    _no(
                        "records.restricted",
                        f"{few} {column}: {told!r}, and the dataset is"
                        f" {e.entry.sensitivity if e.entry else 'public'}.",
                        f"`kfm licence allow {name} --records {rule} --reason … --key NAME` signs,"
                        " once for the dataset, that they may be public"
                        + (
                            f"; `kfm withdraw {name} --record {rule} --reason …` keeps them out."
                            if e.before is not None
                            else "."
                        ),
                    )
                )
    return found


def is_spdx(expression: str) -> bool:
    """Whether an SPDX licence expression names licences that exist; one of somebody's own does not
    say what is allowed.
    """
    if "licenseref-" in expression.lower():
        return False
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        canonicalize_license_expression(expression)
    except InvalidLicenseExpression:
        return False
    return True


def check_licence(licence: str, expected: str = "one such as CC-BY-4.0") -> str:
    """`licence` if it says what is allowed; whoever states one is told at once, not by the gate."""
    if not is_spdx(licence) or licence.upper() in ("NOASSERTION", "NONE"):
        raise UsageError(
            f"{licence!r} is not an SPDX licence id.",
            expected=expected,
            remedy="See spdx.org/licenses.",
        )
    return licence


def labels(e: Evidence) -> Verdict:
    """Every obligation of the dataset and of its inputs is discharged, each by a governed step."""
    entry, reasons = e.entry, []
    name = entry.dataset_id if entry else "ID"
    where = f"data/registry/{name}.yml"
    if entry is None or entry.sensitivity is None:
        reasons.append(
            _no(
                "labels.sensitivity",
                "No sensitivity is stated.",
                f"Add `sensitivity: public` (or stricter) to {where}.",
            )
        )
    if entry is None or not entry.policy_label:
        reasons.append(
            _no(
                "labels.policy",
                "No policy label is stated.",
                "Add `policy_label:"
                f" {entry.sensitivity if entry and entry.sensitivity else 'public'}` to {where}.",
            )
        )
    for field, value in e.unknown_labels:
        known = ", ".join(CARE_LABELS if field == "care_label" else OBLIGATIONS)
        reasons.append(
            _no(
                "labels.unknown",
                f"The {field} {value!r} is not known.",
                f"Use one of {known} in {where}.",
            )
        )
    obligations = e.obligations or ()
    if e.obligations is None:
        reasons.append(_unseen("labels", "What the labels ask for"))
    for need in obligations:
        if need not in e.discharged:
            # a grant is given outside the registry: asked for every time
            code = "labels.grant" if need == "grant" else "labels.obligation"
            reasons.append(_no(code, _UNMET[need], _HOW[need].format(id=name, where=where)))
    for column in e.withheld:
        if any(c.name == column for c in e.schema):
            reasons.append(
                _no(
                    "redaction.field",
                    f"The column {column} is withheld and yet in the table.",
                    f"Correct `release.show` of {where}, then run.",
                )
            )
    release = entry.release if entry is not None else None
    if e.private and (
        release.show is UNSET if release is not None else not set(obligations) - {"grant"}
    ):
        reasons.append(
            _no(
                "labels.show",
                "The registry does not say which columns are shown.",
                f"Name them in `release: {{show: […]}}` of {where}; `kfm upgrade` does it for"
                " releases that only withhold.",
            )
        )
    for column, look in shown_looks(release):
        if e.private and f"column\n{column}\n{look}" not in e.permits:
            message = (
                f"The column {column} looks like {look}, and no steward has said why it is shown."
            )
            sign = (
                f"kfm grant column {name} {quote(column)} --despite {quote(look)} --reason … --key"
                " STEWARD"
            )
            reasons.append(
                _no(
                    "labels.look",
                    message,
                    f"Take it out of `release.show` of {where}; or a steward shows it: `{sign}`.",
                )
            )
    finest = entry.release.h3_resolution if entry and entry.release else None
    if e.resolution is not None and finest is not None and finest > e.resolution:
        remedy = f"Set `release.h3_resolution: {e.resolution}` or coarser in {where}."
        reasons.append(
            _no(
                "labels.resolution",
                f"H3 resolution {finest} is finer than the {e.resolution} an input allows.",
                remedy,
            )
        )
    for path in e.other_release:
        remedy = f"Run `kfm run {name}`: it is released anew by the rules of now."
        reasons.append(
            _no(
                "labels.release",
                f"{path} was released by other rules than the registry has now.",
                remedy,
            )
        )
    if e.sealed:
        reasons.append(
            _no(
                "labels.sealed",
                "The records are sealed: nothing was released.",
                f"State a `release` in {where}.",
            )
        )
    if release is not None and any(n in obligations for n in ("aggregate", "generalise")):
        least = max(2, e.min_records)
        if release.min_records < least:
            reasons.append(
                _no(
                    "labels.k",
                    f"Groups of {release.min_records} are shown, at least {least} are asked for.",
                    f"Set `release.min_records: {least}` in {where}.",
                )
            )
        if release.min_area_km2 < e.min_area_km2:
            reasons.append(
                _no(
                    "labels.area",
                    f"An input asks for {e.min_area_km2:g} km² at least.",
                    f"Set `release.min_area_km2` in {where}.",
                )
            )
    met = ", ".join(n for n in obligations if n in e.discharged)
    note = f"{(entry.sensitivity if entry else None) or 'no label'}" + (
        f": {met} discharged" if met else ""
    )
    return Verdict(gate="labels", reasons=tuple(reasons), review=tuple(_marked(e)), note=note)


_UNMET = {
    "aggregate": "The records may be shown only in groups, and no step groups them.",
    "generalise": "Exact places may not be shown, and no step generalises them.",
    "grant": "A steward's grant to publish is needed, and there is none.",
}
_HOW = {
    "aggregate": "Add `release: {{aggregate: {{by: […]}}}}` to {where}, then run again.",
    "generalise": "Add `release: {{h3_resolution: 5}}` to {where}, then run again.",
    "grant": (
        "Ask the steward for one: `kfm grant give {id} --to NAME --purpose publish --key STEWARD"
        " --expires DATE`."
    ),
}


def _no(code: str, message: str, remedy: str) -> Reason:
    return Reason(code=code, message=message, remedy=remedy)


def _unseen(what: str, whether: str) -> Reason:
    return _no(
        f"{what}.unchecked",
        f"{whether} was not looked at.",
        "Run the dataset again: the check is part of every run.",
    )


def _unbalanced(b: Books, what: str = "") -> Reason | None:
    if b.gone:
        return _no(
            "books.missing",
            f"The books{what} are gone with the evidence of its run.",
            "Restore data/work from a backup, or run again with --force.",
        )
    if b.balanced:
        return None
    message = (
        f"The books{what} do not balance: {b.read:,} rows read, {b.total:,} accounted"
        f" for ({b.written:,} written, {b.unchanged:,} unchanged,"
        f" {b.quarantined:,} quarantined, {sum(b.dropped.values()):,} dropped by rule)."
    )
    return _no("books.unbalanced", message, "Mend the connector's transform.")


def books(e: Evidence) -> Verdict:
    b = e.books
    reasons = [
        _unbalanced(b),
        _unbalanced(e.released, " of the release") if e.released is not None else None,
    ]
    parts = (b.written, b.unchanged, b.quarantined, sum(b.dropped.values()))
    note = "balanced" if e.private else f"{b.read:,} = " + " + ".join(f"{n:,}" for n in parts)
    return Verdict(gate="books", reasons=tuple(r for r in reasons if r is not None), note=note)


def registered(e: Evidence) -> Verdict:
    if e.entry is None:
        reason = Reason(
            code="registry.missing",
            message="The dataset is not registered any more.",
            remedy="Register it again with `kfm dataset new ID --url URL`.",
        )
        return Verdict(gate="registry", reasons=(reason,))
    if e.entry.retired is not None:
        remedy = f"Remove `retired` from data/registry/{e.entry.dataset_id}.yml to bring it back."
        return Verdict(
            gate="registry",
            reasons=(
                _no("registry.retired", f"The dataset is retired: {e.entry.retired}.", remedy),
            ),
        )
    remedy = (
        "`kfm review` shows it: the stricter entry says who approves; or undo the change in"
        f" data/registry/{e.entry.dataset_id}.yml."
    )
    return Verdict(
        gate="registry",
        review=tuple(_no("registry.loosened", message, remedy) for message in e.loosened),
    )


def withdrawn(e: Evidence) -> Verdict:
    if e.suppressed is UNSET:
        return Verdict(
            gate="withdrawal", reasons=(_unseen("withdrawal", "Whether it was withdrawn"),)
        )
    if e.suppressed is not None:
        reason = Reason(
            code="withdrawn",
            message=f"Generation {e.suppressed} withdrew this content.",
            remedy="A withdrawal is not lifted by --force; ask the steward who withdrew it.",
        )
        return Verdict(gate="withdrawal", reasons=(reason,))
    return Verdict(gate="withdrawal")


def leak(e: Evidence) -> Verdict:
    """Public bytes do not depend on what is withheld."""
    if not e.private:
        return Verdict(gate="leak", note="nothing is withheld")
    if e.released is None:
        return Verdict(gate="leak", note="nothing is released: the labels decide")
    if e.leak is None:
        return Verdict(gate="leak", reasons=(_unseen("leak", "Whether withheld values leak"),))
    return Verdict(gate="leak", reasons=e.leak, note=e.leak_note)


def graph(e: Evidence) -> Verdict:
    if e.lineage is None:
        return Verdict(gate="graph", reasons=(_unseen("lineage", "Where it comes from"),))
    return Verdict(
        gate="graph", reasons=e.lineage, note="0 dangling references" if not e.lineage else ""
    )


def attestation(e: Evidence) -> Verdict:
    if e.attestation is None:
        return Verdict(gate="attestation", reasons=(_unseen("attestation", "Who signed it"),))
    return Verdict(gate="attestation", reasons=e.attestation, note=e.attestation_note)


def policy(e: Evidence) -> Verdict:
    if e.policy is None:
        remedy = "`kfm init` writes the rules that are missing; `kfm policy check` looks at them."
        return Verdict(
            gate="policy", reasons=(_no("policy.missing", "No policy was asked.", remedy),)
        )
    return Verdict(gate="policy", reasons=e.policy, note=e.policy_note)


# The policy comes last: it reads the verdicts of all others.
GATES: tuple[Gate, ...] = (
    *map(
        Gate,
        (
            registered,
            integrity,
            schema,
            quality,
            licence,
            labels,
            books,
            leak,
            graph,
            attestation,
            withdrawn,
        ),
    ),
    Gate(policy, hears=True),
)
