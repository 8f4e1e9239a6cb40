"""One version of a dataset, as a reader may have it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Union

from kfm.access.boundary import Opened, cited, facts_of, folder_of, located, may_hear
from kfm.access.proofs import proofs_of
from kfm.data.asker import Asker
from kfm.data.html import facts as shown_facts
from kfm.data.libraries import library
from kfm.evidence.folder_check import Verified
from kfm.model import Column, IntegrityError, Json, KfmError, UsageError
from kfm.model.did_you_mean import told

if TYPE_CHECKING:
    import duckdb
    import geopandas
    import pandas
    import polars
    import pyarrow

    from kfm.diff.base import Diff
    from kfm.upkeep.citation import Form

__all__ = ["Checked", "Version"]


@dataclass(frozen=True)
class Checked:
    """What `Version.verify` found; true when nothing is wrong."""

    verdict: (
        str  # verified; consistent, signer unknown; damaged; denied; foreign, expired or no root
    )
    root: str | None  # the fingerprint of the root that signs here
    files: int
    generations: int
    problems: tuple[dict[str, str], ...]

    def __bool__(self) -> bool:
        return self.verdict in ("verified", "consistent, signer unknown")


@dataclass(frozen=True)
class Version:
    """One version that is, or was, official. What it is called is known here; every other question
    is asked of the boundary when it is put, and raises `kfm.errors.Denied` when the answer is no.
    """

    dataset_id: str
    version_id: str
    version_digest: str
    generation: int
    kind: str = ""  # how the generation came about: promote, rollback, withdraw, void
    made_at: str | None = None  # when it was appended, where that is known
    _asker: Asker = field(kw_only=True, repr=False, compare=False)

    @property
    def ref(self) -> str:
        """How commands call it."""
        return f"{self.dataset_id}@{self.generation}"

    # ---- the data --------------------------------------------------------------------------------
    def table(self, columns: Sequence[str] | None = None) -> "pyarrow.Table":
        """All rows as an Arrow table, or some columns of them, from files whose digests were
        checked.
        """
        with self._tables() as (_, paths):
            return _read(paths, columns, self.ref)

    def to_pandas(self, columns: Sequence[str] | None = None) -> "pandas.DataFrame":
        """All rows as a pandas data frame; geometries stay WKB."""
        library("pandas", "makes data frames")
        return self.table(columns).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None) -> "polars.DataFrame":
        """All rows as a Polars data frame; geometries stay WKB."""
        return library("polars", "makes data frames").from_arrow(self.table(columns))

    def to_geopandas(self) -> "geopandas.GeoDataFrame":
        """All rows with their geometries."""
        frames = library("geopandas", "makes data frames with geometries")
        parquet = library("pyarrow.parquet", "reads Parquet")
        with self._tables() as (_, paths):
            if not all(b"geo" in (parquet.read_schema(p).metadata or {}) for p in paths):
                raise UsageError(
                    f"{self.ref} has no geometry.",
                    expected="GeoParquet",
                    remedy="`to_pandas()` gives its rows.",
                )
            found = [frames.read_parquet(path) for path in paths]
        if len(found) == 1:
            return found[0]
        return library("pandas", "joins data frames").concat(found, ignore_index=True)

    def duckdb(
        self, connection: "duckdb.DuckDBPyConnection | None" = None
    ) -> "duckdb.DuckDBPyRelation":
        """All rows as a DuckDB relation, of `connection` or of DuckDB's own."""
        return (connection or library("duckdb", "asks with SQL")).from_arrow(self.table())

    @property
    def files(self) -> dict[str, Path]:
        """Every file of the version by its name, records too; to be read, never changed."""
        with self._asker.world() as world:
            return folder_of(world, self.ref, self._asker.reader).files

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns with types, units and what the registry says of them."""
        with self._asker.world() as world:
            return facts_of(world, self.ref, self._asker.reader).schema

    @property
    def rows(self) -> int:
        """How many rows all its tables have."""
        with self._asker.world() as world:
            return facts_of(world, self.ref, self._asker.reader).rows

    # ---- what is said of it ----------------------------------------------------------------------
    def cite(self, form: "Form" = "text") -> str:
        """How to cite it: `text`, `bibtex` or `csl` (JSON). It names exactly these bytes for
        ever.
        """
        import json

        from kfm.upkeep.citation import FORMS, quoted

        if form not in FORMS:
            raise UsageError(
                f"{form!r} is no form of a citation.",
                expected=", ".join(FORMS),
                remedy="Choose one of them.",
            )
        with self._asker.world() as world:
            ref = cited(world, self.ref, self._asker.reader)
            found = quoted(world, self._asker.folder.require(self.dataset_id), ref)
        if form == "csl":
            return json.dumps(found.csl, indent=2, ensure_ascii=False)
        return found.bibtex if form == "bibtex" else found.text(self.ref)

    @property
    def evidence(self) -> dict[str, Json]:
        """What proves it, each document by its name: `version`, `attestation`, `dcat`, `stac`, the
        signed `generation`, `prov`, `approvals`; those that there are.
        """
        with self._asker.world() as world:
            return proofs_of(world, self.ref, self._asker.reader)

    def verify(self, root: str | None = None) -> Checked:
        """Look at its bytes, digests and signatures, and at the whole chain of generations. `root`
        is the fingerprint of the root you trust, as the publisher told you.
        """
        from kfm.upkeep.verify import verify_dataset

        found = Verified()
        with self._asker.world() as world:
            try:
                cited(world, self.ref, self._asker.reader)
            except IntegrityError:  # which is what is asked
                if not may_hear(world, self.dataset_id, self._asker.reader):
                    raise
            verify_dataset(world, self.dataset_id, found, self.version_id)
            trust, now = world.keys.trust(), world.clock.now()
        verdict = "verified" if root is not None else "consistent, signer unknown"
        if found.exit_code:
            verdict = "damaged" if found.exit_code == IntegrityError.exit_code else "denied"
        elif trust is None or trust.at is None:
            verdict = "no root" if root is not None else verdict
        elif root is not None and root not in trust.digests.values():
            verdict = "foreign root"
        elif trust.expired(now):
            verdict = "expired root"
        return Checked(
            verdict=verdict,
            root=trust.fingerprint if trust is not None else None,
            files=found.files,
            generations=found.generations,
            problems=tuple(found.problems),
        )

    def diff(self, other: Union["Version", str], *, limit: int | None = 50) -> "Diff":
        """What changed from `other`, a version or a reference, to this one: counts of all rows,
        samples of `limit`.
        """
        library("pyarrow", "reads Parquet")
        from kfm.diff.tables import diff_files

        ref = other.ref if isinstance(other, Version) else other
        with self._asker.world() as world:
            self._asker.require(world, ref)
            a, b = (located(world, text, self._asker.reader) for text in (ref, self.ref))
            if a.dataset_id != b.dataset_id:
                raise UsageError(
                    f"{a.dataset_id} and {b.dataset_id} are different datasets.",
                    expected="two versions of one dataset",
                    remedy="`versions()` lists them.",
                )
            return diff_files(
                a.files,
                b.files,
                b.business_key or a.business_key,
                limit=limit,
                dataset_id=b.dataset_id,
                labels=(a.label, b.label),
            )

    @contextmanager
    def _tables(self) -> Iterator[tuple[Opened, list[Path]]]:
        """Its tables, for as long as they are read."""
        with self._asker.world() as world:
            opened = located(world, self.ref, self._asker.reader)
            paths = [p for name, p in sorted(opened.files.items()) if name.endswith(".parquet")]
            if not paths:
                raise UsageError(
                    f"{self.ref} holds no table, but {', '.join(sorted(opened.files))}.",
                    expected="a version with a Parquet file",
                    remedy="`files` says where each lies.",
                )
            yield opened, paths

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            ("version", self.version_id),
            ("generation", f"{self.generation} ({self.kind})" if self.kind else self.generation),
            ("made", self.made_at),
        ]
        try:
            with self._asker.world() as world:
                known = facts_of(world, self.ref, self._asker.reader)
            rows += [
                ("rows", f"{known.rows:,}"),
                ("columns", ", ".join(f"{c.name} {c.type}" for c in known.schema)),
            ]
        except KfmError as error:
            rows.append(("not shown", error.happened))
        return shown_facts(self.dataset_id, rows)


def _read(paths: Sequence[Path], columns: Sequence[str] | None, ref: str) -> "pyarrow.Table":
    """The rows of all files together, in the order of their names; a file that lacks a column that
    another has is empty there.
    """
    arrow = library("pyarrow", "reads Parquet")
    parquet = library("pyarrow.parquet", "reads Parquet")
    files = [parquet.ParquetFile(path) for path in paths]
    known = list(dict.fromkeys(name for file in files for name in file.schema_arrow.names))
    strange = [name for name in columns or () if name not in known]
    if strange:
        raise UsageError(
            f"{ref} has no column {strange[0]}.",
            expected="one of its columns",
            remedy=told("Columns are", strange[0], known).strip(),
        )
    wanted = known if columns is None else list(columns)
    tables = [
        file.read(columns=[n for n in wanted if n in file.schema_arrow.names]) for file in files
    ]
    joined = (
        tables[0] if len(tables) == 1 else arrow.concat_tables(tables, promote_options="permissive")
    )
    return joined if columns is None else joined.select(wanted)
