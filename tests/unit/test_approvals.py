"""The approvals of a generation, counted by somebody who has nothing but the record it names and
the trust root.
"""

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm.channel.generations import lift_problem, order_problem
from kfm.cli.doctor import _no_floor
from kfm.evidence import proposal
from kfm.evidence.captures import checksums
from kfm.evidence.folder_check import Verified
from kfm.keys.approvals import (
    check_recorded,
    loosened,
    missing,
    terms_digest,
    told_loosened,
    unapproved,
    unrecorded,
    weigh,
)
from kfm.keys.key_folder import KeyFolder, channel_heads
from kfm.keys.private_key import PersonKey, envelope, new_private
from kfm.keys.trust import Trust, load_root, statement
from kfm.model import canonical, ids
from kfm.model.approval import Approval, Recorded, Terms
from kfm.model.channel import GenerationPredicate, Kind, Lift, Lifted, RootAt
from kfm.model.clock import rfc3339
from kfm.model.errors import IntegrityError
from kfm.model.proposal import Proposal
from kfm.model.verdict import Reason, Verdict
from kfm.upkeep.after_withdrawal import verify_left
from kfm.zones.local import LocalZone

NOW = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
SURVEY = "Kansas Survey"


def entry(**more: Any) -> Terms:
    plain = {
        "dataset_id": "trees",
        "approvals": 1,
        "sensitivity": "public",
        "policy_label": "public",
        "care_label": None,
    }
    return Terms(**{**plain, "licence": "CC0-1.0", "custodian": SURVEY, "release": "", **more})


RESTRICTED = entry(sensitivity="restricted", policy_label="restricted", release="sha256:1")


class Office:
    """A root, a builder and people; what they sign about generation 1 of `trees`."""

    def __init__(self, folder: Path) -> None:
        self.keys = KeyFolder(folder / "keys")
        self.keys.new()
        self.folder, self.people = folder, dict[str, PersonKey]()

    def enrol(self, name: str, role: str = "approver", custodian: str = "") -> PersonKey:
        made = self.people[name] = new_private(self.folder / f"{name}.key", name)
        self.keys.enrol(made.public, name, [role], custodians=[custodian] if custodian else ())
        return made

    @property
    def trust(self) -> Trust:
        return self.keys.require_trust()

    def said(self, terms: tuple[Terms, ...], **more: Any) -> dict[str, Any]:
        plain = {
            "dataset_id": "trees",
            "channel": "official",
            "proposal": 1,
            "run_id": "r1",
            "version_digest": "d1",
            "candidate_digest": "c",
        }
        plain |= {
            "policy_digest": "p",
            "registry_digest": "r",
            "labels": {},
            "base_generation": 0,
            "comparison": "",
            "terms": terms_digest(terms),
        }
        return {**plain, **more}

    def word(
        self,
        signer: Any,
        said: dict[str, Any],
        verdict: str = "approve",
        expires: dt.datetime = NOW + dt.timedelta(days=1),
    ) -> Any:
        approval = Approval(**said, expires=rfc3339(expires), name="n", reason="", verdict=verdict)
        return msgspec.json.decode(
            signer.sign(statement("approval", "x", "0" * 64, msgspec.to_builtins(approval)))
        )

    def grant(self, signer: PersonKey) -> Any:
        plain = {
            "dataset_id": "trees",
            "person": "P",
            "purpose": "publish",
            "steward": signer.name,
            "expires": "2027-01-01T00:00:00Z",
        }
        return msgspec.json.decode(signer.sign(statement("grant", "x", "0" * 64, plain)))

    def record(self, terms: tuple[Terms, ...], *approvals: Any, **more: Any) -> Recorded:
        plain = {
            "dataset_id": "trees",
            "run_id": "r1",
            "version_digest": "d1",
            "generation": 1,
            "at": rfc3339(NOW),
            "terms": terms,
        }
        plain |= {
            "asked": (),
            "canary": False,
            "signed": self.said(terms),
            "approvals": approvals,
            "acceptances": (),
            "grants": (),
        }
        return Recorded(**{**plain, **more})

    def wrong(
        self, record: Recorded, before: tuple[Terms, ...] = (), builder: str = ""
    ) -> list[str]:
        return missing(
            record,
            generation(terms=terms_digest(record.terms)),
            {builder or self.keys.signer},
            self.trust,
            before,
        )


def generation(number: int = 1, terms: str = "", approvals: str = "") -> GenerationPredicate:
    return GenerationPredicate(
        dataset_id="trees", generation=number, kind="promote", version_id="v1", version_digest="d1", receipts_digest=None, run_id="r1",
        token="", prev=None, reason="", terms_digest=terms, approvals_digest=approvals, root=RootAt(fingerprint="f", version=1, digest="d"),
    )  # fmt: skip


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def test_only_the_word_of_another_enrolled_person_on_exactly_this_version_counts(
    office: Office,
) -> None:
    terms, ann, stranger = (
        (entry(),),
        office.enrol("Ann"),
        new_private(office.folder / "x.key", "X"),
    )
    said, wanted = office.said(terms), ["1 approval needed, 0 valid"]
    good = office.word(ann, said)
    assert office.wrong(office.record(terms, good)) == []
    assert office.wrong(office.record(terms)) == wanted
    assert office.wrong(office.record(terms, good), builder=ann.keyid) == wanted, (
        "who built it may not approve it"
    )
    for bad in (
        office.word(stranger, said),
        office.word(office.keys, said),
        office.word(ann, said, "reject"),
        office.word(ann, {**said, "version_digest": "d2"}),
        office.word(ann, {**said, "base_generation": 1}),
        office.word(ann, said, expires=NOW),
        {**good, "payload": office.word(ann, {**said, "proposal": 2})["payload"]},
    ):
        assert office.wrong(office.record(terms, bad)) == wanted
    two = (entry(approvals=2),)
    again = (
        office.word(ann, office.said(two)),
        office.word(ann, office.said(two), expires=NOW + dt.timedelta(days=2)),
    )
    assert office.wrong(office.record(two, *again)) == ["2 approvals needed, 1 valid"], (
        "one person counts once"
    )
    ben = office.word(office.enrol("Ben"), office.said(two))
    assert office.wrong(office.record(two, again[0], ben)) == []


def test_a_record_of_another_version_or_of_other_terms_is_refused(office: Office) -> None:
    terms = (entry(approvals=0),)
    record = office.record(terms)
    assert office.wrong(record) == []
    replace, named = msgspec.structs.replace, generation(terms=terms_digest(terms))
    for other in (
        replace(record, run_id="r2"),
        replace(record, terms=(entry(approvals=0, dataset_id="other"),)),
        replace(record, signed={**record.signed, "terms": "sha256:0"}),
        replace(record, signed={**record.signed, "base_generation": 4}),
        replace(record, at="yesterday"),
    ):
        assert missing(other, named, set(), office.trust, ())
    assert missing(record, generation(terms=terms_digest((entry(),))), set(), office.trust, ()), (
        "the generation names other terms"
    )


def test_what_a_gate_asked_for_needs_a_person_or_for_a_change_alone_the_operator(
    office: Office,
) -> None:
    terms = (entry(approvals=0),)
    said = office.said(terms)
    accepted = {"acceptances": (office.word(office.keys, said, "accept-change"),)}
    assert office.wrong(office.record(terms, asked=("quality.rows_fell",)))
    assert office.wrong(office.record(terms, asked=("quality.rows_fell",), **accepted)) == []
    assert office.wrong(office.record(terms, asked=("licence.restricted",), **accepted))
    assert office.wrong(office.record(terms, canary=True, **accepted))
    assert office.wrong(office.record((entry(),), asked=("quality.rows_fell",), **accepted)), (
        "the registry asks for somebody else"
    )
    assert office.wrong(
        office.record(terms, asked=("quality.rows_fell",), **accepted), before=(entry(),)
    ), "a stricter entry did"


def test_loosening_an_entry_needs_the_approvals_of_the_stricter_one(office: Office) -> None:
    strict = entry(approvals=2)
    for loose in (entry(), entry(approvals=0)):
        assert office.wrong(office.record((loose,)), before=(strict,)) == [
            "2 approvals needed, 0 valid"
        ]
    both = [
        office.word(office.enrol(name), office.said((entry(approvals=0),)))
        for name in ("Ann", "Ben")
    ]
    assert office.wrong(office.record((entry(approvals=0),), *both), before=(strict,)) == []
    assert not loosened((strict,), (entry(approvals=3),)) and not loosened((strict,), (strict,))
    assert not loosened((entry(),), (RESTRICTED,)) and loosened((RESTRICTED,), (entry(),))
    assert loosened((RESTRICTED,), (msgspec.structs.replace(RESTRICTED, release="sha256:2"),))
    assert loosened(
        (RESTRICTED,), (msgspec.structs.replace(RESTRICTED, custodian="Somebody Else"),)
    )
    unfree = entry(licence="CC-BY-NC-4.0")
    assert loosened((unfree,), (entry(),)) and not loosened((entry(),), (unfree,))
    made_of = entry(dataset_id="soil", approvals=3)
    eased = (entry(approvals=0), msgspec.structs.replace(made_of, approvals=0))
    assert weigh(
        eased, (entry(approvals=0), made_of), asked=False, approvers=(), grantors=frozenset()
    ) == (0, 3), "of what it is made from too"


def test_what_is_not_public_is_loosened_by_a_steward_also_where_nobody_had_to_approve(
    office: Office,
) -> None:
    old, public = msgspec.structs.replace(RESTRICTED, approvals=0), (entry(approvals=0),)
    ann, kim = office.enrol("Ann"), office.enrol("Kim", "steward", SURVEY)
    accepted = {
        "asked": ("quality.rows_fell",),
        "acceptances": (office.word(office.keys, office.said(public), "accept-change"),),
    }
    for record in (
        office.record(public),
        office.record(public, office.word(ann, office.said(public))),
        office.record(public, **accepted),
    ):
        assert office.wrong(record, before=(old,)) == ["1 approval needed, 0 valid"]
    assert (
        office.wrong(office.record(public, office.word(kim, office.said(public))), before=(old,))
        == []
    )
    orphan = (msgspec.structs.replace(old, custodian=None),)
    assert weigh(orphan, (old,), asked=False, approvers=(), grantors=frozenset())[1] == 1
    for now in (public, orphan):
        assert "1 approval by stewards of Kansas Survey" in told_loosened((old,), now)[0]
    assert weigh(
        public,
        (entry(approvals=0, licence="CC-BY-NC-4.0"),),
        asked=False,
        approvers=(),
        grantors=frozenset(),
    ) == (0, 0)


@pytest.mark.parametrize(("before", "wanted"), [(entry(approvals=2), 2), (entry(approvals=0), 0)])
def test_an_operators_word_does_not_stand_for_those_a_loosened_entry_needs(
    before: Terms, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fell = Reason(code="quality.rows_fell", message="", remedy="")
    told = Proposal(
        proposal=1, run_id="r1", dataset_id="trees", version_id="v1", version_digest=None, base_generation=1, policy_digest="",
        registry_digest="", labels={}, files={}, receipts={}, verdicts=(Verdict(gate="quality", review=(fell,)),), leak=None, approvals=0,
    )  # fmt: skip
    answers = {
        "load": (told, ""),
        "approvals_of": [],
        "terms_of": (entry(approvals=0),),
        "terms_before": (before,),
        "grantors": frozenset(),
    }
    for name, answer in {**answers, "accepted": True, "rejected_by": None}.items():
        monkeypatch.setattr(proposal, name, lambda *args, answer=answer: answer)
    world: Any = SimpleNamespace(
        data=None, keys=SimpleNamespace(trust=lambda: None), family=lambda dataset_id: ()
    )
    row: Any = SimpleNamespace(dataset_id="trees", run_id="r1", pinned=1)
    assert proposal.count(world, row) == (0, wanted)


def test_code_that_nothing_holds_is_looser_and_an_entry_that_says_nothing_of_it_keeps_its_digest() -> (
    None
):
    eased = entry(isolation="best_effort")
    assert (
        loosened((entry(),), (eased,))
        and not loosened((eased,), (entry(),))
        and not loosened((eased,), (eased,))
    )
    assert "isolation" not in msgspec.to_builtins(entry()) and terms_digest(
        (entry(),)
    ) != terms_digest((eased,))


def test_of_what_is_not_public_only_stewards_of_its_custodian_speak_and_not_one_for_both(
    office: Office,
) -> None:
    terms = (RESTRICTED,)
    said = office.said(terms)
    ann, sam = office.enrol("Ann"), office.enrol("Sam", "steward", "Another Museum")
    kim, lou = office.enrol("Kim", "steward", SURVEY), office.enrol("Lou", "steward", SURVEY)
    granted = {"grants": (office.grant(kim),)}
    assert office.wrong(office.record(terms, office.word(lou, said))) == [
        "a steward's grant to publish is needed, and there is none"
    ]
    for no in (ann, sam):
        assert office.wrong(office.record(terms, office.word(no, said), **granted)) == [
            "1 approval needed, 0 valid"
        ]
        assert office.wrong(
            office.record(terms, office.word(lou, said), grants=(office.grant(no),))
        )
    assert office.wrong(office.record(terms, office.word(kim, said), **granted)) == [
        "2 approvals needed, 1 valid"
    ], "one key signed both"
    assert office.wrong(office.record(terms, office.word(lou, said), **granted)) == []
    assert (
        office.wrong(
            office.record(terms, office.word(kim, said), office.word(lou, said), **granted)
        )
        == []
    )
    public = (entry(),)
    word = office.word(ann, office.said(public))
    assert office.wrong(office.record(public, word), before=terms) == [
        "1 approval needed, 0 valid"
    ], "the stricter entry wants a steward"


def test_a_key_revoked_later_counts_for_what_it_signed_before(office: Office) -> None:
    terms, ann = (entry(),), office.enrol("Ann")
    record = office.record(terms, office.word(ann, office.said(terms)))
    heads = {"trees": {"generation": 1, "digest": "sha256:0"}}
    office.keys.revoke(ann.keyid, "left", heads)
    assert office.wrong(record) == []
    office.enrol("Ben")
    later = msgspec.structs.replace(
        record, generation=2, signed={**record.signed, "base_generation": 1}
    )
    later = msgspec.structs.replace(later, approvals=(office.word(ann, dict(later.signed)),))
    assert missing(later, generation(2, terms_digest(terms)), set(), office.trust, ()) == [
        "1 approval needed, 0 valid"
    ]


def test_every_generation_after_the_recorded_floor_names_its_approvals(office: Office) -> None:
    terms = (entry(approvals=0),)
    raw = canonical.dumps(msgspec.to_builtins(office.record(terms)))
    bare, named = generation(), generation(1, terms_digest(terms), ids.digest(raw))
    problems: list[tuple[int, str]] = []

    def wrong(number: int, what: str, code: int) -> None:
        problems.append((number, what))

    assert unrecorded({1: bare}, "trees", office.trust, wrong) == [] and len(problems) == 1, (
        "a new root records from the start"
    )
    old = msgspec.structs.replace(office.trust.document, floor={"trees": 1})
    trust = Trust(1, NOW, "", {}, office.trust.keys, old)
    assert unrecorded({1: bare}, "trees", trust, wrong) == [1] and len(problems) == 1
    assert (
        unrecorded({1: bare, 2: generation(2)}, "trees", trust, wrong) == [1]
        and problems.pop()[0] == 2
    )
    unset = Trust(
        1, NOW, "", {}, office.trust.keys, msgspec.structs.replace(old, floor=msgspec.UNSET)
    )
    assert (
        unrecorded({1: bare, 2: named, 3: generation(3)}, "trees", unset, wrong) == [1]
        and problems.pop()[0] == 3
    )
    problems.clear()
    rootless = msgspec.structs.replace(named, root=None)
    assert (
        unrecorded({1: rootless}, "trees", trust, wrong) == []
        and unrecorded({1: rootless}, "trees", unset, wrong) == [] == problems
    )
    assert (
        unrecorded({1: rootless}, "trees", office.trust, wrong) == []
        and "names no root" in problems[0][1]
    )
    problems.clear()
    check_recorded({1: named}, {1: raw}, {}, office.trust, wrong)
    assert problems == []
    check_recorded({1: named}, {}, {}, office.trust, wrong)
    check_recorded({1: named}, {1: raw + b" "}, {}, office.trust, wrong)
    assert len(problems) == 2


def test_the_next_root_of_an_older_workspace_records_the_floor(
    office: Office, tmp_path: Path
) -> None:
    plain = msgspec.to_builtins(office.trust.document)
    del plain["floor"]
    file, workspace = tmp_path / "keys" / "root" / "0001.json", SimpleNamespace(path=tmp_path)
    file.chmod(0o644)
    file.write_bytes(
        envelope(
            statement("root", "kfm://root", "0" * 64, plain), list(office.keys._at_hand().values())
        )
    )
    for number in (1, 2, 3):
        channel = tmp_path / "data" / "catalog" / "channels" / "trees" / f"{number:08}.json"
        channel.parent.mkdir(parents=True, exist_ok=True)
        channel.write_bytes(b"{}")
    keys = KeyFolder(tmp_path / "keys")
    assert keys.require_trust().floor_of("trees") is None and [
        a.code for a in _no_floor(workspace)
    ] == ["root.floor"]
    keys.renew()
    trust = keys.require_trust()
    assert (trust.floor_of("trees"), trust.floor_of("soil")) == (3, 0) and _no_floor(
        workspace
    ) == []


def test_a_later_root_cannot_move_the_floor(office: Office) -> None:
    files = {int(p.stem): p.read_bytes() for p in (office.folder / "keys" / "root").iterdir()}
    moved = msgspec.structs.replace(office.trust.document, version=2, floor={"trees": 7})
    signers = list(office.keys._at_hand().values())
    plain = msgspec.to_builtins(moved)
    raw = envelope(statement("root", "kfm://root", "0" * 64, plain), signers)
    with pytest.raises(IntegrityError, match="moves the generation"):
        load_root({**files, 2: raw})
    assert channel_heads(office.folder / "data") == {}


# ---- what undoes a withdrawal --------------------------------------------------------------------
def step(number: int, kind: Kind, version: str | None, **more: Any) -> GenerationPredicate:
    digest = version and f"d-{version}"
    return GenerationPredicate(
        dataset_id="trees", generation=number, kind=kind, version_id=version, version_digest=digest, receipts_digest=None, run_id="",
        token="", prev=None, reason="", **more,
    )  # fmt: skip


def test_a_withdrawal_is_lifted_by_a_key_in_use_and_of_what_is_not_public_by_a_steward(
    office: Office,
) -> None:
    ann, kim = office.enrol("Ann"), office.enrol("Kim", "steward", SURVEY)

    def why(signer: PersonKey, terms: Terms, number: int = 3) -> str | None:
        said = Lifted(
            dataset_id="trees",
            generation=2,
            digest=ids.digest(b"2"),
            person=signer.name,
            reason="",
            made_at="",
        )
        act = signer.sign(statement("lift", "x", "0" * 64, msgspec.to_builtins(said))).decode()
        return lift_problem(
            office.trust,
            step(number, "rollback", "v1", lifts=Lift(generation=2, act=act)),
            lambda n: b"%d" % n,
            lambda: (terms,),
        )

    assert why(ann, entry()) is None and why(kim, RESTRICTED) is None
    assert "no steward of Kansas Survey" in str(why(ann, RESTRICTED))
    office.keys.revoke(ann.keyid, "left", {"trees": {"generation": 3, "digest": "sha256:0"}})
    assert why(ann, entry()) is None, "it was in use then"
    assert "revoked" in str(why(ann, entry(), 4)), "its word does not vouch for itself"


def test_a_void_generation_repeats_and_a_rollback_names_nothing_that_was_withdrawn() -> None:
    rule = {"suppress": [{"commitment": "c"}]}
    chain = dict(
        enumerate(
            (step(1, "promote", "v1"), step(2, "promote", "v2"), step(3, "withdraw", "v3")), 1
        )
    )
    assert (
        order_problem(chain, step(4, "void", "v3")) is None
        and order_problem({}, step(1, "void", None)) is None
    )
    assert "does not repeat" in str(order_problem(chain, step(4, "void", "v2")))
    assert order_problem(chain, step(4, "rollback", "v1")) is None
    assert "generation 3 withdrew" in str(order_problem(chain, step(4, "rollback", "v2")))
    assert "never official" in str(order_problem(chain, step(4, "rollback", "v9")))
    records = {**chain, 3: step(3, "withdraw", "v3", **rule)}
    assert "generation 3 withdrew" in str(order_problem(records, step(4, "rollback", "v1"))), (
        "all before it may hold the records"
    )
    lift = {"lifts": Lift(generation=3, act="")}
    assert (
        order_problem(records, step(4, "rollback", "v2", **lift)) is None
        and order_problem(records, step(4, "rollback", "v3", **lift)) is None
    )
    assert "not official before" in str(order_problem(records, step(4, "rollback", "v1", **lift)))
    lifted = {**records, 4: step(4, "rollback", "v3", **lift)}
    assert order_problem(lifted, step(5, "rollback", "v1")) is None
    assert "generation 3 withdrew" in str(
        order_problem(lifted, step(5, "rollback", "v1"), lambda _: False)
    ), "a bad word lifts nothing"


def test_what_a_withdrawal_leaves_without_approval_is_told_and_may_bring_no_file(
    office: Office, tmp_path: Path
) -> None:
    for approvals, told in ((1, [2, 4]), (0, [])):
        raw = canonical.dumps(msgspec.to_builtins(office.record((entry(approvals=approvals),))))
        chain = {
            1: step(1, "promote", "v1", approvals_digest=ids.digest(raw)),
            2: step(2, "withdraw", "v2"),
            3: step(3, "withdraw", "v1"),
        }
        chain |= {4: step(4, "withdraw", "v3"), 5: step(5, "withdraw", None)}
        assert unapproved(chain, {1: raw}) == told
    for version, files in {"v1": "ab", "v2": "a", "v3": "bc"}.items():
        listing = tmp_path / "data" / "processed" / "trees" / version / "checksums.sha256"
        listing.parent.mkdir(parents=True)
        listing.write_bytes(
            checksums({f"{name}.parquet": ids.digest(name.encode()) for name in files})
        )
    zone, found = LocalZone(tmp_path / "data"), Verified()
    verify_left(zone, "trees", {n: chain[n] for n in (1, 2)}, [2], found)
    assert not found.problems and not found.notes, (
        "a table that goes leaves the others as they were approved"
    )
    verify_left(zone, "trees", chain, [2, 4], found)
    assert [p["where"] for p in found.problems] == [
        "processed/trees/v1/b.parquet",
        "processed/trees/v3/c.parquet",
    ] and found.exit_code == 3
    assert found.notes == [
        "the version of generation 4 of trees was left by a withdrawal that nobody else approved"
    ]


def test_what_a_withdrawal_leaves_are_rows_of_the_version_before_it(tmp_path: Path) -> None:
    rows = [{"id": "t1", "kind": "oak"}, {"id": "t2", "kind": "elm"}, {"id": "t3", "kind": "ash"}]
    left = {
        "v2": (rows[1:], "suppress"),
        "v3": ([rows[0], {"id": "t2", "kind": "OAK"}], "suppress"),
        "v4": ([*rows[:2], {"id": "t9", "kind": "fir"}], "suppress"),
        "v5": ([{**row, "who": "x"} for row in rows[:2]], "suppress"),
        "v6": (rows[:1], "h3_generalise"),
    }
    for version, (table, step_) in {"v1": (rows, "suppress"), **left}.items():
        folder = tmp_path / "processed" / "trees" / version
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(table), folder / "trees.parquet")
        facts = {
            "steps": [{"step": step_}] if version != "v1" else [],
            "schema": [{"name": name} for name in table[0]],
        }
        (folder / "version.json").write_bytes(canonical.dumps(facts))
        listed = {"trees.parquet": ids.digest((folder / "trees.parquet").read_bytes())}
        (folder / "checksums.sha256").write_bytes(checksums(listed))
    told = {}
    for version in left:
        found = Verified()
        verify_left(
            LocalZone(tmp_path),
            "trees",
            {1: step(1, "promote", "v1"), 2: step(2, "withdraw", version)},
            [],
            found,
        )
        told[version] = (
            [p["what"].partition(": ")[2] for p in found.problems],
            found.exit_code,
            len(found.notes),
        )
    other = "1 of its rows are not in the version before it, or not like this"
    assert told == {
        "v2": ([], 0, 0),
        "v3": ([other], 3, 0),
        "v4": ([other], 3, 0),
        "v5": (["it has a column that the version before it has not: who"], 3, 0),
        "v6": ([], 0, 1),
    }
