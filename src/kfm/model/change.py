"""How much one version differs from the one before it."""

import msgspec

__all__ = ["CHANGE", "FEW", "Measured", "told"]

FEW = 10  # so many rows may change in any table before a share of them means anything

# what an operator may accept where nobody has to approve
CHANGE = (
    "quality.rows_fell",
    "quality.rows_replaced",
    "quality.rows_deleted",
    "quality.older_release",
    "quality.rows_changed",
)


class Measured(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Rows of the official version and of the candidate, counted."""

    before: int
    after: int
    added: int = 0
    changed: int = 0  # rows that hold other values
    removed: int = 0  # rows that are not there any more
    deleted: int = 0  # rows that stay and are marked as deleted upstream now
    # rows inside the time that upstream says it answered for, where it deletes by absence; 0: it
    # does not
    covered: int = 0
    absent: int = 0  # of those, the ones that are gone for want of an answer
    # the registry or the updater changed in between, so that differences are not upstream's alone
    other_rules: bool = False

    @property
    def gone(self) -> int:
        """Rows that would be removed or marked as deleted."""
        return self.removed + self.deleted

    def within(self, other: "Measured") -> bool:
        """Whether no more changes than in another candidate."""
        names = ("fall", "changed", "gone", "absent")
        return all(getattr(self, name) <= getattr(other, name) for name in names)

    @property
    def fall(self) -> int:
        """By how many rows the table shrinks."""
        return max(0, self.before - self.after)


def told(change: Measured) -> str:
    """`4,996 → 2,124 rows, −57 %`, and what became of the others."""
    if not change.before:
        return f"{change.after:,} rows"
    share = 100 * (change.after - change.before) / change.before
    # −100 % is said of an empty table alone
    whole = abs(share) >= 10 and (round(abs(share)) != 100 or not change.after)
    by = (
        f", {'+' if share > 0 else '−'}{abs(share):{'.0f' if whole else '.3g'}} %"
        if change.after != change.before
        else ""
    )
    parts = (
        (change.added, "added"),
        (change.changed, "changed"),
        (change.removed, "removed"),
        (change.deleted, "marked as deleted"),
    )
    rest = "".join(f", {n:,} {word}" for n, word in parts if n)
    return f"{change.before:,} → {change.after:,} rows{by}{rest}"
