"""Every public row, and every difference between two releases, is explained by k records or by a
withdrawal.
"""

import random
from pathlib import Path
from typing import Any

import h3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm.connectors.base import EXPLAINED, InputFile
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Govern
from kfm.connectors.release.thresholds import band
from kfm.model.dataset import Aggregate, Release

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("kind", pa.string()),
        ("year", pa.int64()),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
    ]
)
PLACES = [(38.5, -98.25), (39.9, -95.1)]
Record = dict[str, Any]
Rule = dict[str, Any]


class Channel:
    """Releases one after the other, as a dataset makes them: each sees what explained the rows of
    the one before.
    """

    def __init__(self, folder: Path, **rules: Any) -> None:
        self.release = Release(
            **{"withhold": ("id",), "h3_resolution": 5, "min_records": 3, **rules}
        )
        self._folder, self._number = folder, 0
        self.before: Path | None = None
        self.rules: list[Rule] = []

    def publish(self, records: list[Record], schema: pa.Schema = SCHEMA) -> list[dict[str, Any]]:
        self._number += 1
        table, out = self._folder / f"{self._number}.parquet", self._folder / f"{self._number}"
        pq.write_table(pa.Table.from_pylist(records, schema), table)
        out.mkdir()
        inputs = [
            InputFile(source_id=n, path=str(p), digest="")
            for n, p in (("table", table), (EXPLAINED, self.before))
            if p is not None
        ]
        job = Govern(
            dataset_id="ks_sites",
            inputs=tuple(inputs),
            release=self.release,
            suppress=tuple(self.rules),
            artifact="ks_sites.parquet",
        )
        result = run_inline(job, out)
        assert result.books.balanced
        self.before = out / EXPLAINED
        self.data = (out / "ks_sites.parquet").read_bytes()
        rows = pq.read_table(out / "ks_sites.parquet").to_pylist()
        return [{k: v for k, v in row.items() if k != "geometry"} for row in rows]

    def withdraw(self, record: Record) -> None:
        self.rules.append({"records": {"id": record["id"]}})


def record(number: int, place: int = 0, kind: str | None = "kiln", year: int = 1900) -> Record:
    lat, lon = PLACES[place]
    return {"id": f"KS-{number:04d}", "kind": kind, "year": year, "lat": lat, "lon": lon}


def records(count: int, start: int = 0, **more: Any) -> list[Record]:
    return [record(start + n, **more) for n in range(count)]


def test_a_row_shows_its_attributes_only_where_k_records_share_them_all(tmp_path: Path) -> None:
    sites = [
        *records(4),
        *records(2, 10, kind="well"),
        *(record(20 + n, kind="well", year=1950 + n) for n in range(2)),
        *records(2, 30, place=1),
    ]
    shown = Channel(tmp_path).publish(sites)
    assert [(r["kind"], r["year"]) for r in shown] == [("kiln", 1900), (None, None)], (
        "four share everything, four have nothing but the cell"
    )
    assert len({r["h3_cell"] for r in shown}) == 1
    alone = [record(n, kind=f"k{n}", year=n) for n in range(9)]
    assert [(r["kind"], r["year"]) for r in Channel(folder_in(tmp_path)).publish(alone)] == [
        (None, None)
    ], "one row, not nine"
    few = [*records(3), *records(2, 10, kind="well")]
    assert [r["kind"] for r in Channel(folder_in(tmp_path)).publish(few)] == ["kiln"], (
        "two are not told of at all"
    )


def folder_in(folder: Path) -> Path:
    made = folder / f"channel-{len(list(folder.iterdir()))}"
    made.mkdir()
    return made


def test_records_that_have_no_value_are_told_with_those_that_do_not_show_theirs(
    tmp_path: Path,
) -> None:
    schema = [*(record(n, kind=None, year=None) for n in range(2)), record(9, kind="well")]  # type: ignore[arg-type]
    assert Channel(tmp_path).publish(schema) == [
        {"h3_cell": "8526e283fffffff", "kind": None, "year": None}
    ]


def test_a_row_stays_what_it_was_until_k_records_explain_another(tmp_path: Path) -> None:
    channel = Channel(tmp_path, aggregate=Aggregate(by=("kind",)))
    bands = [
        [r["records"] for r in channel.publish(records(n))] for n in (5, 6, 7, 8, 7, 6, 5, 3, 2)
    ]
    assert bands == [["3 to 5"]] * 3 + [["6 to 14"]] * 3 + [["3 to 5"]] * 2 + [[]]
    assert [len(channel.publish(records(n, kind="new"))) for n in (2, 3, 0, 3)] == [0, 1, 0, 1], (
        "from nothing, k are a release"
    )


def test_a_row_that_went_with_some_left_comes_back_with_k_more(tmp_path: Path) -> None:
    channel = Channel(tmp_path)
    assert [len(channel.publish(records(n))) for n in (5, 3, 2, 3, 4, 5)] == [1, 1, 0, 0, 0, 1]


def test_what_is_k_goes_out_while_the_rest_is_held(tmp_path: Path) -> None:
    channel = Channel(tmp_path)
    first = channel.publish([*records(4), *records(4, 10, place=1)])
    second = channel.publish(
        [*records(3), *records(4, 10, place=1), *records(3, 20, place=1, kind="well")]
    )
    assert len(first) == 2 and [r for r in second if r in first] == first
    assert [r["kind"] for r in second if r not in first] == ["well"]


def test_nothing_public_changes_when_hidden_numbers_do(tmp_path: Path) -> None:
    """Upstream renumbers every record and adds one: the numbers of its records explain nothing."""
    channel = Channel(tmp_path, aggregate=Aggregate(by=("kind",)))
    channel.publish(records(5))
    before = channel.data
    channel.publish(records(6, 500))
    assert channel.data == before


def test_a_column_of_another_type_is_still_the_same_row(tmp_path: Path) -> None:
    channel = Channel(tmp_path)
    assert len(channel.publish(records(3))) == 1
    assert len(channel.publish(records(2), SCHEMA.set(2, pa.field("year", pa.float64())))) == 1, (
        "one record fewer does not take it away"
    )


def test_a_withdrawal_is_never_held_back_and_takes_nothing_else_along(tmp_path: Path) -> None:
    channel = Channel(tmp_path, aggregate=Aggregate(by=("kind",), collect=("year",)))
    sites = [*records(3), *records(6, 10, kind="well")]
    assert [(r["kind"], r["records"], r["year"]) for r in channel.publish(sites)] == [
        ("kiln", "3 to 5", "1900"),
        ("well", "6 to 14", "1900"),
    ]
    for lost in (sites[0], sites[3]):
        channel.withdraw(lost)
    assert [(r["kind"], r["records"]) for r in channel.publish(sites)] == [("well", "3 to 5")], (
        "one record is enough"
    )
    more = [*sites, *records(2, 20, kind="well")]
    assert [(r["kind"], r["records"]) for r in channel.publish(more)] == [("well", "3 to 5")], (
        "seven by now, two of them new: held"
    )
    channel.withdraw(sites[4])
    assert [(r["kind"], r["records"]) for r in channel.publish(more)] == [("well", "3 to 5")], (
        "what is held does not go out with it"
    )
    for lost in more[5:9]:
        channel.withdraw(lost)
    assert channel.publish(more) == [], "two are left"


def test_a_value_that_went_with_its_row_comes_back_by_itself(tmp_path: Path) -> None:
    channel = Channel(tmp_path, aggregate=Aggregate(by=("kind",), collect=("year",)))
    assert [r["year"] for r in channel.publish(records(5))] == ["1900"]
    assert channel.publish(records(2)) == []
    assert [r["year"] for r in channel.publish([*records(4), record(9, year=1950)])] == [None], (
        "two more of that year"
    )
    assert [r["year"] for r in channel.publish([*records(5), record(9, year=1950)])] == ["1900"]


def test_other_rules_are_a_first_release(tmp_path: Path) -> None:
    channel = Channel(tmp_path)
    channel.publish(records(5))
    assert len(channel.publish(records(4))) == 1
    channel.release = Release(withhold=("id",), h3_resolution=5, min_records=5)
    assert channel.publish(records(4)) == []


def test_the_order_of_records_leaves_no_trace_in_what_explains_them(tmp_path: Path) -> None:
    sites = [record(n, place=n % 2, kind="ab"[n % 3 == 0], year=1900 + n % 2) for n in range(40)]
    for groups in (None, Aggregate(by=("kind",), collect=("year",)), Aggregate(collect=("kind",))):
        made = []
        for seed in (1, 2):
            channel = Channel(folder_in(tmp_path), aggregate=groups)
            channel.publish(random.Random(seed).sample(sites, 40))
            made.append((channel.data, channel.before.read_bytes() if channel.before else b""))
        assert made[0] == made[1]


# -- any sequence of releases

RULES: dict[str, dict[str, Any]] = {
    "cells": {},
    "cells alone": {"withhold": ("id", "kind", "year")},
    "groups": {"aggregate": Aggregate(by=("kind",))},
    "lists": {
        "withhold": ("id", "lat", "lon"),
        "h3_resolution": None,
        "aggregate": Aggregate(by=("year",), collect=("kind",)),
    },
    "one": {
        "withhold": ("id", "lat", "lon"),
        "h3_resolution": None,
        "aggregate": Aggregate(collect=("kind",)),
    },
}
Facts = dict[tuple[Any, ...], Any]  # what is public, one by one -> how it is told


def facts(rules: str, shown: list[dict[str, Any]]) -> Facts:
    """Rows by their keys, and each value a row lists."""
    found: Facts = {}
    for row in shown:
        keys = [
            n for n in row if n != "records" and not (n == "kind" and rules in ("lists", "one"))
        ]
        key = tuple(row[n] for n in keys)
        assert key not in found, "each row once"
        found[key] = row.get("records", True)
        if rules in ("lists", "one"):
            found |= {
                (*key, "lists", value): True for value in (row["kind"] or "").split("; ") if value
            }
    return found


def behind(rules: str, sites: list[Record], shown: Facts) -> dict[tuple[Any, ...], set[str]]:
    """The records behind everything that is public or could be, counted here without what is
    tested.
    """
    found: dict[tuple[Any, ...], set[str]] = {}
    for site in sites:
        cell = h3.latlng_to_cell(site["lat"], site["lon"], 5)
        keys: list[tuple[Any, ...]] = {
            "cells": [(cell, site["kind"], site["year"])],
            "cells alone": [(cell,)],
            "groups": [(cell, site["kind"])],
            "lists": [(site["year"],), (site["year"], "lists", site["kind"])],
            "one": [(), ("lists", site["kind"])],
        }[rules]
        if rules == "cells" and keys[0] not in shown:
            keys = [(cell, None, None)]
        for key in keys:
            found.setdefault(key, set()).add(site["id"])
    return found


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("seeds", [2, pytest.param(40, marks=pytest.mark.drill)])
def test_every_difference_between_releases_is_explained_by_k_records_or_a_withdrawal(
    tmp_path: Path, rules: str, seeds: int
) -> None:
    for seed in range(seeds):
        chance, k = random.Random(f"{rules} {seed}"), 3 + seed % 2
        channel = Channel(folder_in(tmp_path), **RULES[rules], min_records=k)
        sites: list[Record] = []
        last: Facts = {}
        # what was behind a fact when it last changed in public
        since: dict[tuple[Any, ...], set[str]] = {}
        for number in range(14):
            sites = changed(sites, chance, number)
            withdrawn = {r["records"]["id"] for r in channel.rules}
            if sites and chance.random() < 0.3:
                channel.withdraw(chance.choice(sites))
            left = [s for s in sites if {"records": {"id": s["id"]}} not in channel.rules]
            gone = {s["id"] for s in sites} - {s["id"] for s in left} - withdrawn
            shown = facts(rules, channel.publish(sites))
            now = behind(rules, left, shown)
            touched = {key for key, ids in behind(rules, sites, last).items() if ids & gone}
            touched |= {key for key, ids in behind(rules, sites, shown).items() if ids & gone}
            for key in {*shown, *last}:
                row = key[: key.index("lists")] if "lists" in key else key
                if shown.get(key) == last.get(key):
                    continue
                # else the value comes or goes with its row
                if row == key or (row in shown and row in last):
                    difference = since.get(key, set()) ^ now.get(key, set())
                    assert len(difference) >= k or key in touched, (
                        key,
                        last.get(key),
                        shown.get(key),
                    )
                since[key] = now.get(key, set())
            # a withdrawal tells of no other records
            since |= {key: now.get(key, set()) for key in touched if key in last}
            for key, told in shown.items():
                count = len(now.get(key, ()))
                assert count, "somebody is behind whatever is shown"
                if key in touched:
                    assert count >= k, "a withdrawal leaves nothing that fewer than k explain"
                if key not in last:
                    assert count >= k
                    assert told is True or told == band(count, k)
            last = shown


def changed(sites: list[Record], chance: random.Random, number: int) -> list[Record]:
    """Records come, go and change, a few at a time; now and then many."""
    kept = [s for s in sites if chance.random() > chance.choice((0.0, 0.05, 0.3))]
    kept = [
        {**s, "kind": chance.choice(("kiln", "well", "mound"))} if chance.random() < 0.05 else s
        for s in kept
    ]
    new = chance.choice((0, 1, 1, 2, 5, 12))
    return kept + [
        record(
            100 * number + n,
            place=chance.randrange(2),
            kind=chance.choice(("kiln", "well")),
            year=chance.choice((1900, 1900, 1950)),
        )
        for n in range(new)
    ]


@pytest.mark.parametrize("rules", RULES)
def test_one_record_more_or_less_shows_only_where_k_or_the_edge_of_a_band_is_crossed(
    tmp_path: Path, rules: str
) -> None:
    chance, k = random.Random(rules), 3
    sites = changed(changed([], chance, 1), random.Random(2), 2) + records(14, 900)
    own = facts(rules, Channel(folder_in(tmp_path), **RULES[rules]).publish(sites))
    begun = Channel(folder_in(tmp_path), **RULES[rules])
    begun.publish(sites)
    last = begun.data
    edges = (k, 2 * k, 5 * k) if rules in ("groups", "lists", "one") else (k,)
    for number in range(4):
        one = chance.choice(sites)
        more = (
            [*sites, {**one, "id": f"new-{number}"}]
            if number % 2
            else [s for s in sites if s is not one]
        )
        twin = facts(rules, Channel(folder_in(tmp_path), **RULES[rules]).publish(more))
        before, after = behind(rules, sites, own), behind(rules, more, twin)
        for key in {key for key in {*own, *twin} if own.get(key) != twin.get(key)}:
            counts = sorted((len(before.get(key, ())), len(after.get(key, ()))))
            assert any(counts[0] < edge <= counts[1] for edge in edges), key
        same = Channel(folder_in(tmp_path), **RULES[rules])
        same.before = begun.before
        same.publish(more)
        assert same.data == last, "after it was public, one record changes nothing at all"
