"""The gates every promotion passes: integrity, schema, licence, labels, books."""

from kfm.gates.base import Evidence, Gate, Reason, Verdict

__all__ = ["KERNEL_GATES", "LABELS"]

LABELS = ("public",)  # policy labels known here; every other label is an obligation nothing can discharge yet


def integrity(e: Evidence) -> Verdict:
    reasons = []
    for path, digest in e.expected.items():
        found = e.found.get(path)
        if found is None:
            reasons.append(Reason(code="integrity.missing", message=f"{path} is missing.", remedy="Run the dataset again with --force."))
        elif found != digest:
            reasons.append(
                Reason(
                    code="integrity.digest",
                    message=f"{path} is {found}, the candidate says {digest}.",
                    remedy="Run the dataset again with --force.",
                )
            )
    if not e.expected:
        reasons.append(Reason(code="integrity.empty", message="The candidate has no artifact.", remedy="Check the source."))
    return Verdict(gate="integrity", reasons=tuple(reasons))


def schema(e: Evidence) -> Verdict:
    reasons = []
    have = {c["name"]: c for c in e.schema}
    for column in e.entry.schema if e.entry else ():
        found = have.get(column.name)
        if found is None:
            reasons.append(
                Reason(
                    code="schema.missing",
                    message=f"The column {column.name} is missing.",
                    remedy="Change `schema` in the registry, or ask upstream.",
                )
            )
        elif found["type"] != column.type:
            reasons.append(
                Reason(
                    code="schema.type",
                    message=f"The column {column.name} is {found['type']}, the registry says {column.type}.",
                    remedy="Change `schema` in the registry, or ask upstream.",
                )
            )
    for key in e.entry.business_key if e.entry else ():
        if key not in have:
            reasons.append(
                Reason(code="schema.key", message=f"The business key {key} is no column.", remedy="Correct `business_key` in the registry.")
            )
    if e.partial:
        reasons.append(
            Reason(
                code="schema.partial",
                message=f"Only {e.rows:,} rows came, fewer than `source.completeness` asks for.",
                remedy="Wait for upstream to be whole again, or lower `source.completeness`.",
            )
        )
    return Verdict(gate="schema", reasons=tuple(reasons))


def licence(e: Evidence) -> Verdict:
    stated = e.entry.licence if e.entry else None
    where = f"data/registry/{e.entry.dataset_id}.yml" if e.entry else "the registry"
    if not stated:
        reason = Reason(
            code="licence.missing", message="No licence is stated.", remedy=f"Add `licence: <SPDX id>` to {where}, then run again."
        )
    elif stated.upper() in ("NOASSERTION", "NONE"):
        reason = Reason(
            code="licence.noassertion",
            message=f"The registry says {stated}: nobody vouches for a right to publish.",
            remedy=f"Ask the source for its licence, then write its SPDX id into {where} and run again.",
        )
    elif not _is_spdx(stated):
        reason = Reason(
            code="licence.unknown",
            message=f"{stated!r} is not an SPDX licence id.",
            remedy=f"Write an SPDX id such as CC-BY-4.0 into {where}.",
        )
    else:
        return Verdict(gate="licence")
    return Verdict(gate="licence", reasons=(reason,))


def _is_spdx(expression: str) -> bool:
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        canonicalize_license_expression(expression)
    except InvalidLicenseExpression:
        return False
    return True


def labels(e: Evidence) -> Verdict:
    reasons = []
    where = f"data/registry/{e.entry.dataset_id}.yml" if e.entry else "the registry"
    sensitivity = e.entry.sensitivity if e.entry else None
    label = e.entry.policy_label if e.entry else None
    if sensitivity is None:
        reasons.append(
            Reason(
                code="labels.sensitivity",
                message="No sensitivity is stated.",
                remedy=f"Add `sensitivity: public` (or stricter) to {where}.",
            )
        )
    elif sensitivity != "public":
        reasons.append(
            Reason(
                code="labels.obligation",
                message=f"{sensitivity} data carries obligations that no step of this pipeline discharges.",
                remedy="Publish a generalised or aggregated derivative; the records themselves stay in work.",
            )
        )
    if not label:
        reasons.append(Reason(code="labels.policy", message="No policy label is stated.", remedy=f"Add `policy_label: public` to {where}."))
    elif label not in LABELS:
        reasons.append(
            Reason(
                code="labels.unknown",
                message=f"The policy label {label!r} is not known.",
                remedy=f"Use one of {', '.join(LABELS)} in {where}.",
            )
        )
    return Verdict(gate="labels", reasons=tuple(reasons))


def books(e: Evidence) -> Verdict:
    b = e.books
    dropped = sum(b.get("dropped", {}).values())
    accounted = b.get("written", 0) + b.get("unchanged", 0) + b.get("quarantined", 0) + dropped
    if b.get("read") == accounted:
        return Verdict(gate="books")
    message = (
        f"The books do not balance: {b.get('read', 0):,} rows read, {accounted:,} accounted for ({b.get('written', 0):,} written, "
        f"{b.get('unchanged', 0):,} unchanged, {b.get('quarantined', 0):,} quarantined, {dropped:,} dropped by rule)."
    )
    return Verdict(gate="books", reasons=(Reason(code="books.unbalanced", message=message, remedy="Mend the connector's transform."),))


def registered(e: Evidence) -> Verdict:
    if e.entry is None:
        reason = Reason(
            code="registry.missing", message="The dataset is not registered any more.", remedy="Register it again with `kfm dataset new`."
        )
        return Verdict(gate="registry", reasons=(reason,))
    return Verdict(gate="registry")


def withdrawn(e: Evidence) -> Verdict:
    if e.suppressed is not None:
        reason = Reason(
            code="withdrawn",
            message=f"Generation {e.suppressed} withdrew this content.",
            remedy="A withdrawal is not lifted by --force; ask the steward who withdrew it.",
        )
        return Verdict(gate="withdrawal", reasons=(reason,))
    return Verdict(gate="withdrawal")


KERNEL_GATES: tuple[Gate, ...] = (registered, integrity, schema, licence, labels, books, withdrawn)
