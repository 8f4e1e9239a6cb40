"""Reads what is known of a version: through the boundary what proves it, then, where its records
are public, what its run wrote down. Every digest is compared with what names it.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from kfm.access.boundary import Reader, may_hear
from kfm.access.proofs import EvidenceMissing, Proofs, proof_files
from kfm.evidence.append_times import appended_at
from kfm.evidence.captures import capture_manifest
from kfm.evidence.journal import done_of
from kfm.evidence.lineage import known_lineage
from kfm.evidence.receipts import find_receipt
from kfm.evidence.run_files import read_run_file, run_journal
from kfm.keys.trust import unwrap
from kfm.model import (
    ATTESTATION,
    Denied,
    Generation,
    GenerationPredicate,
    IntegrityError,
    Json,
    KfmError,
    LedgerRow,
    Planned,
    Receipt,
    Recorded,
    UsageError,
    VersionFacts,
    WalRecord,
    canonical,
    ids,
)
from kfm.model.paths import capture_folder, quarantine_path, run_path
from kfm.release.dataset_inputs import version_behind
from kfm.story.documents import (
    agreed_of,
    books_of,
    format_of,
    moment_of,
    terms_of,
    title_of,
    verdicts_of,
)
from kfm.story.stage import Act, File, Input, Stage, address_of
from kfm.world.world import World
from kfm.zones.base import lines_of

__all__ = ["gather"]

OWN = "kfm://dataset/"


def gather(world: World, text: str, reader: Reader, above: frozenset[str] = frozenset()) -> Stage:
    """What evidence says of the version a reference means, and of everything it was made from.
    Raises `Denied` where this reader may not have it, `IntegrityError` where a file is not the one
    that is named.
    """
    proofs = proof_files(world, text, reader)
    return _Reading(world, proofs, reader, above).stage()


class _Reading:
    """The files of one version as they are opened, each under the name it is cited by."""

    def __init__(self, world: World, proofs: Proofs, reader: Reader, above: frozenset[str]) -> None:
        self.world, self.proofs, self.reader, self.above = world, proofs, reader, above
        self.id = proofs.opened.dataset_id
        self.private = world.is_withheld(self.id)
        self.files: dict[str, File] = {}
        self.raw: dict[str, bytes] = {}
        self.row: LedgerRow | None = None

    def stage(self) -> Stage:
        entry = self.world.registry(self.id)
        if entry is None:  # the boundary asked for one
            raise _gone("its registry entry", self.id)
        signed, made = self._generations()
        receipt = self._receipt(made)
        self._records(receipt)
        recorded = self._approvals(made)
        self._prov(receipt)
        told = {} if self.private or receipt is None else self._run(receipt)
        record, report = told.get("run_record", {}), told.get("validation_report", {})
        journal = self._journal(receipt) if told else ()
        plan = done_of(journal, "plan", self.world.veil(self.id), Planned) if journal else None
        facts = msgspec.convert(canonical.loads(self.raw["version"]), VersionFacts)
        made_of = {path: stored["digest"] for path, stored in facts.artifacts.items()}
        if made_of.items() - self.proofs.opened.digests.items():
            raise _changed(self.files["checksums"].path, "the digests that the version states")
        return Stage(
            dataset_id=self.id,
            title=title_of(self.raw, entry),
            entry=entry,
            private=self.private,
            facts=facts,
            signed=signed,
            made=made,
            official_at=appended_at(self.world, self._asked),
            signer=self._signer(signed),
            receipt=receipt,
            lineage=self.world.store.read(lambda tx: known_lineage(tx, made.run_id)),
            terms=terms_of(recorded, entry),
            recorded=recorded,
            agreed=agreed_of(self.world, recorded, made),
            verdicts=verdicts_of(told.get("run_manifest", {}), receipt),
            books=books_of(report),
            set_aside=self._set_aside(receipt) if told else {},
            attempts=int(record.get("attempt", 0)),
            plan=plan.plan if plan is not None else None,
            plan_hash=plan.plan_hash if plan is not None else record.get("plan_hash"),
            journal=journal,
            inputs=self._inputs(receipt, record),
            acts=self._acts(made, signed),
            newest=self._newest(),
            last_success=self._last_success(),
            files=self.files,
        )

    # ---- files, each compared with what names it -------------------------------------------------
    def _add(
        self, name: str, what: str, path: str, raw: bytes, shows: str, named_by: str = ""
    ) -> None:
        self.raw[name] = raw
        by = self.files.get(named_by) if named_by else None
        told = f"{what}, {self.id}@{self.proofs.opened.generation}"
        self.files[name] = File(told, path, ids.digest(raw), shows, by)

    @property
    def _asked(self) -> Generation:
        rows: list[Generation] = self.world.store.read(lambda tx: tx.index.generations(self.id))
        return next(g for g in rows if g.generation == self.proofs.opened.generation)

    def _generations(self) -> tuple[GenerationPredicate, GenerationPredicate]:
        """What was signed: the generation that was asked for, and the one its version came with."""
        found = {}
        for name in ("generation", "made"):
            file = self.proofs.files.get(name)
            if file is not None:
                number = (
                    self._asked.generation if name == "generation" else self.proofs.made.generation
                )
                said = self.world.channel(self.id).predicate(number)  # its signature is verified
                if said is None:
                    raise _gone(file.path, self.id)
                found[name] = said
                self._add(
                    name,
                    "Signed generation",
                    f"data/{file.path}",
                    file.raw,
                    "signed; names the version, its receipt and its approvals",
                )
        self.files.setdefault("made", self.files["generation"])
        return found["generation"], found.get("made", found["generation"])

    def _records(self, receipt: Receipt | None) -> None:
        """The records of the version: its attestation, as the receipt names it, and those that the
        attestation names.
        """
        words = {
            "attestation": ("Attestation", "signed; names every file of the version by digest"),
            "version": ("Facts of the version", "rows, columns and governed steps"),
            "dcat": ("Catalog record", "title, publisher, licence and rights"),
            "checksums": ("Checksums of the version", "the digest of every file"),
        }
        named = receipt.provenance.files if receipt is not None else {}
        for name, (what, shows) in words.items():
            file = self.proofs.files.get(name)
            if file is None:
                continue
            if name == "attestation" and ATTESTATION in named:
                _same(file.path, file.raw, named[ATTESTATION])
            by = {"attestation": "receipt", "checksums": ""}.get(name, "attestation")
            self._add(name, what, f"data/{file.path}", file.raw, shows, by)

    def _receipt(self, made: GenerationPredicate) -> Receipt | None:
        """The receipt that the generation names; of what a withdrawal left there is none."""
        if made.kind != "promote":
            return None
        path = find_receipt(self.world.root, made.run_id)
        if path is None:
            raise _gone(f"the receipt of run {made.run_id}", self.id)
        raw = self.world.root.read(path)
        _same(path, raw, str(made.receipts_digest))
        self._add(
            "receipt", "Receipt of the run", path, raw, "inputs, transforms, gates, tools", "made"
        )
        return msgspec.json.decode(raw, type=Receipt)

    def _approvals(self, made: GenerationPredicate) -> Recorded | None:
        file = self.proofs.files.get("approvals")
        if file is None or not made.approvals_digest:
            return None
        _same(file.path, file.raw, made.approvals_digest)
        self._add(
            "approvals",
            "Record of approvals",
            f"data/{file.path}",
            file.raw,
            "the terms it was made under, and who signed that it may be official",
            "made",
        )
        return msgspec.json.decode(file.raw, type=Recorded)

    def _prov(self, receipt: Receipt | None) -> None:
        file = self.proofs.files.get("prov")
        if file is None:
            return
        if receipt is not None and (named := receipt.provenance.files.get("prov.json")):
            _same(file.path, file.raw, named)
        self._add(
            "prov",
            "Provenance (PROV)",
            f"data/{file.path}",
            file.raw,
            "what was used, which steps followed, what they made",
            "receipt",
        )

    def _run(self, receipt: Receipt) -> dict[str, Json]:
        """The records a run of public data left, as its receipt names them."""
        words = {
            "run_record": ("Record of the run", "what was asked for, and from where"),
            "validation_report": ("Validation report", "what was checked, with values and limits"),
            "run_manifest": ("Manifest of the run", "the verdict of every gate"),
        }
        found: dict[str, Json] = {}
        for name, (what, shows) in words.items():
            raw = read_run_file(self.world.data, self.id, receipt.run_id, f"{name}.json")
            if raw is None:  # retention may have removed it
                continue
            path = run_path(self.id, receipt.run_id, f"{name}.json")
            _same(path, raw, receipt.provenance.files.get(f"{name}.json", ""))
            self._add(name, what, f"data/{path}", raw, shows, "receipt")
            found[name] = msgspec.json.decode(raw)
        return found

    def _journal(self, receipt: Receipt | None) -> tuple[WalRecord, ...]:
        """The steps of the run; the chain of the records is checked on the way."""
        if receipt is None:
            return ()
        row = self._ledger_row(receipt.run_id)
        if row is None:
            return ()
        records = tuple(run_journal(self.world, row))
        path = run_path(self.id, receipt.run_id, "wal.jsonl")
        if records and self.world.data.exists(path):
            self._add(
                "journal",
                "Journal of the run",
                f"data/{path}",
                self.world.data.read(path),
                "the plan, and each step before and after it was done",
            )
        return records

    def _ledger_row(self, run_id: str) -> LedgerRow | None:
        if self.row is None or self.row.run_id != run_id:
            self.row = self.world.store.read(lambda tx: tx.runs.get(run_id))
        return self.row

    def _set_aside(self, receipt: Receipt | None) -> dict[str, int]:
        """How many records were set aside, by rule; the records themselves are told to nobody."""
        if receipt is None:
            return {}
        path = quarantine_path(self.id, receipt.run_id, "rows.jsonl")
        if not self.world.data.exists(path):
            return {}
        self._add(
            "quarantine",
            "What was set aside",
            f"data/{path}",
            self.world.data.read(path),
            "each refused record with its line and the rule",
        )
        lines = lines_of(self.world.data.local(path))
        return dict(Counter(msgspec.json.decode(line)["rule"] for line in lines).most_common())

    def _last_success(self) -> tuple[str, File] | None:
        """The newest run of this dataset that ended well, and where that is written down; when a
        private source was looked at is not told.
        """
        if self.private:
            return None
        looks = self.world.store.read(lambda tx: tx.looks.noops(self.id, 1))
        if looks:
            path = run_path(self.id, looks[0].run_id, "artifacts/run.jsonl")
            if self.world.data.exists(path):
                raw = self.world.data.read(path)
                what = File(
                    "Log of the newest look",
                    f"data/{path}",
                    ids.digest(raw),
                    "when upstream was last asked",
                )
                return looks[0].timestamp, what
        return None

    # ---- what it was made from -------------------------------------------------------------------
    def _inputs(self, receipt: Receipt | None, record: Json) -> tuple[Input, ...]:
        if receipt is None:
            return ()
        sources: list[Json] = record.get("sources", [])
        known = {s["source_url"]: s for s in sources}
        self._capture(sources)
        return tuple(
            self._input(given.id, given.checksum, known.get(given.id, {}), record, receipt.run_id)
            for given in receipt.inputs
        )

    def _input(self, uri: str, digest: str, source: Json, record: Json, run_id: str) -> Input:
        stage, note = (None, "")
        if uri.startswith(OWN):
            stage, note = self._behind(uri, run_id)
        return Input(
            uri=uri,
            address=address_of(uri, {} if self.private else record),
            digest=digest,
            origin=str(source.get("origin") or "") or self._origin(uri),
            size=source.get("size") if source else None,
            said_at=moment_of(str(source.get("last_modified") or "")),
            stage=stage,
            note=note,
        )

    def _origin(self, uri: str) -> str:
        """How a private input was obtained, as the provenance says."""
        document = canonical.loads(self.raw["prov"]) if "prov" in self.raw else {}
        entities = document.get("entity", {}).values()
        found = (e.get("kfm:origin", "") for e in entities if e.get("prov:location") == uri)
        return str(next(found, ""))

    def _behind(self, uri: str, run_id: str) -> tuple[Stage | None, str]:
        """The version of another dataset that was used; else why it is not told."""
        row = self._ledger_row(run_id)
        sources = msgspec.json.decode(row.source_metadata) if row is not None else []
        etag = next((s.get("etag") or "" for s in sources if s["source_url"] == uri), "")
        name = uri.removeprefix(OWN)
        if name in self.above:
            return None, "told above"
        try:
            made = version_behind(self.world, uri, self.world.veil(self.id).uncover(etag))
            if made is None:
                return None, "which version of it was used cannot be told here"
            ref = f"{name}@{made.generation}"
            return gather(self.world, ref, self.reader, self.above | {self.id}), ""
        except (Denied, UsageError):
            return None, "it may not be shown to this reader"
        except IntegrityError as damage:
            if not may_hear(self.world, name, self.reader):
                return None, "it may not be shown to this reader"
            return None, damage.happened

    def _capture(self, sources: Sequence[Json]) -> None:
        """What was captured, by its manifest; of private records nothing is opened."""
        if self.private or not sources:
            return
        names = {f"{s['source_id']}.{format_of(self.raw)}": s["digest"] for s in sources}
        capture = sources[0].get("capture") or ids.capture_id(names)
        path = f"{capture_folder(self.id, capture)}/manifest.json"
        if not self.world.data.exists(path):  # retention may have removed it
            return
        raw = self.world.data.read(path)
        if raw != capture_manifest(self.id, capture, names, sources):
            raise _changed(path, "what the record of the run says was captured")
        self._add(
            "capture",
            f"Manifest of capture {capture[:9]}",
            f"data/{path}",
            raw,
            "the bytes as they came, by digest and size",
        )

    # ---- what people signed ----------------------------------------------------------------------
    def _signer(self, signed: GenerationPredicate) -> tuple[str, str]:
        trust = self.world.keys.trust()
        if trust is None:
            return "", ""
        with suppress(KfmError):
            then = trust.as_of(self.id, signed.generation)
            key = then.verified_by(self.raw["generation"])[1]
            return key.name, key.keyid
        return "", ""

    def _acts(self, made: GenerationPredicate, signed: GenerationPredicate) -> tuple[Act, ...]:
        """What people did to the channel from the version's own generation up to the one asked
        for, and the withdrawal that left it.
        """
        rows: list[Generation] = self.world.store.read(lambda tx: tx.index.generations(self.id))
        first = made.generation if made.kind != "promote" else made.generation + 1
        between = [g for g in rows if first <= g.generation <= signed.generation]
        return tuple(self._act(g) for g in between if g.kind != "promote")

    def _act(self, row: Generation) -> Act:
        said = self.world.channel(self.id).predicate(row.generation)
        if said is None:
            raise _gone(f"generation {row.generation}", self.id)
        by = unwrap(said.lifts.act.encode())["predicate"]["person"] if said.lifts else ""
        return Act(said, appended_at(self.world, row), self._signed_file(row), str(by))

    def _signed_file(self, row: Generation) -> File:
        path = self.world.channel(self.id).path(row.generation)
        return File(
            f"Signed generation, {self.id}@{row.generation}",
            f"data/{path}",
            ids.digest(self.world.data.read(path)),
            f"signed; {row.kind}",
        )

    def _newest(self) -> tuple[int, File]:
        rows: list[Generation] = self.world.store.read(lambda tx: tx.index.generations(self.id))
        return rows[-1].generation, self._signed_file(rows[-1])


def _same(path: str, raw: bytes, named: str) -> None:
    if ids.digest(raw) != named:
        raise _changed(path, named or "a digest in the receipt")


def _changed(path: str, expected: str) -> IntegrityError:
    return IntegrityError(
        f"{path} is not the file that its evidence names.",
        expected=expected,
        remedy="`kfm verify` lists what is damaged; restore it from a backup.",
    )


def _gone(what: str, dataset_id: str) -> EvidenceMissing:
    return EvidenceMissing(
        f"{what[0].upper()}{what[1:]} is missing, so {dataset_id} cannot be told of.",
        expected="the evidence that its generation names",
        remedy="`kfm verify` lists what is missing; restore it from a backup or a bundle.",
    )
