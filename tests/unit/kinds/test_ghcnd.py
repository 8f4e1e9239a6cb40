"""GHCN-Daily: flags, zeros, missing days, what is set aside, and what is asked for."""

import calendar
import json
import random
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from tests.given.verbs import SHARED

from kfm.connectors.base import CaptureRefused, InputFile, Refused, TransformResult
from kfm.connectors.child.process import run_inline
from kfm.connectors.kind import Ask, NotFetched
from kfm.connectors.operations import Acquire, Read
from kfm.connectors.read import text
from kfm.extras.agencies import ghcnd

LARNED, TREE = "USC00144530", "https://www.ncei.noaa.gov/pub/data/ghcn/daily/"
NOAA = SHARED / "data" / "noaa-ghcnd"
recorded = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not NOAA.exists(), reason="not run: the recordings are not beside this repository"
    ),
]


def month(
    values: dict[int, str | int],
    yyyymm: str = "201907",
    element: str = "TMAX",
    station: str = LARNED,
) -> str:
    """A line; a value is a figure, or eight characters with its flags."""
    slots = [values.get(day, -9999) for day in range(1, 32)]
    return f"{station}{yyyymm}{element}" + "".join(
        f"{s:5}   " if isinstance(s, int) else s for s in slots
    )


def job(*files: Path, form: str = "dly", **options: Any) -> Read:
    inputs = tuple(InputFile(source_id=f.stem, path=str(f), digest="") for f in files)
    return Read(
        dataset_id="daily",
        source_kind="ghcnd",
        format=form,
        inputs=inputs,
        options=options,
        artifact="x.parquet",
        max_quarantined=1.0,
    )


def made(
    tmp_path: Path, lines: list[str] | str, form: str = "dly", end: str = "\n", **options: Any
) -> tuple[list[Any], TransformResult]:
    """The rows of one file and the result."""
    file = tmp_path / f"{LARNED}.{form}"
    file.write_bytes(
        (lines if isinstance(lines, str) else "".join(line + end for line in lines)).encode()
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    result = run_inline(job(file, form=form, **options), scratch)
    return pq.read_table(scratch / "x.parquet").to_pylist(), result


def rejects(tmp_path: Path, result: TransformResult) -> list[tuple[int, str]]:
    if result.quarantine is None:
        return []
    found = [
        json.loads(line)
        for line in (tmp_path / "scratch" / result.quarantine).read_text().splitlines()
    ]
    return [(r["line"], r["rule"]) for r in found]


# -- station files


def test_a_zero_a_trace_a_failed_check_and_a_missing_day_are_four_different_things(tmp_path):
    line = month({1: "    0  0", 2: "    0T 0", 3: "  254 X7", 5: "   13   "}, element="PRCP")
    rows, result = made(tmp_path, [line])
    seen = [
        (
            r["observed_on"].day,
            r["value"],
            r["good"],
            r["trace"],
            r["measurement_flag"],
            r["quality_flag"],
            r["source_flag"],
        )
        for r in rows
    ]
    assert seen == [
        (1, 0.0, True, False, None, None, "0"),
        (2, 0.0, True, True, "T", None, "0"),
        (3, 25.4, False, False, None, "X", "7"),
        (5, 1.3, True, False, None, None, None),
    ]
    assert (result.books.read, result.books.written) == (4, 4)
    assert {r["unit"] for r in rows} == {"mm"}


@pytest.mark.parametrize(
    ("element", "unit", "value"),
    [
        ("TMIN", "Cel", 1.7),
        ("AWND", "m/s", 1.7),
        ("SNOW", "mm", 17.0),
        ("SN32", "Cel", 1.7),
        ("WT16", None, 17.0),
        ("ASTP", None, 17.0),
    ],
)
def test_figures_become_the_unit_of_their_element(tmp_path, element, unit, value):
    rows, _ = made(tmp_path, [month({1: 17}, element=element)], elements=[])
    assert [(r["element"], r["unit"], r["value"]) for r in rows] == [(element, unit, value)]


@pytest.mark.parametrize("elements", [[], ["TMAX", "TMIN"]])
def test_an_element_that_nobody_knows_is_set_aside_whatever_is_registered_beside_it(
    tmp_path, elements
):
    lines = [
        month({1: 17}, element="TMAX"),
        month({1: 17}, element="TMXA"),
        month({1: 17}, element="TMIN"),
    ]
    rows, result = made(tmp_path, lines, elements=elements)
    assert ([r["element"] for r in rows], rejects(tmp_path, result)) == (
        ["TMAX", "TMIN"],
        [(2, "ghcnd.element")],
    )
    rows, result = made(tmp_path, lines, elements=["TMXA"])
    assert ([r["element"] for r in rows], result.books.dropped) == (["TMXA"], {"element": 2})


@pytest.mark.parametrize(
    ("element", "figure", "rule"),
    [
        ("TMAX", 9999, "value.sentinel"),
        ("PRCP", 9999, "value.sentinel"),
        ("SNWD", 9999, "value.sentinel"),
        ("TMIN", -999, "value.range"),
        ("TMAX", 951, "value.range"),
        ("PRCP", -1, "value.range"),
        ("WDF2", 361, "value.range"),
    ],
)
def test_a_value_that_cannot_be_true_is_set_aside_unless_noaa_flagged_it(
    tmp_path, element, figure, rule
):
    line = month({1: 17, 2: figure, 3: f"{figure:5} X7", 4: 18}, element=element)
    rows, result = made(tmp_path, [line], elements=[])
    assert [(r["observed_on"].day, r["good"]) for r in rows] == [(1, True), (3, False), (4, True)]
    assert rejects(tmp_path, result) == [(1, rule)]
    assert (result.books.read, result.books.written, result.books.quarantined) == (4, 3, 1)


def test_a_day_that_does_not_exist_is_set_aside_and_the_rest_of_its_month_stays(tmp_path):
    rows, result = made(
        tmp_path, [month({28: 10, 29: 11, 31: 12}, "201902"), month({29: 13}, "202002")]
    )
    assert [str(r["observed_on"]) for r in rows] == ["2019-02-28", "2020-02-29"]
    assert rejects(tmp_path, result) == [(1, "ghcnd.day"), (1, "ghcnd.day")]
    assert (result.books.read, result.books.quarantined) == (4, 2)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (month({1: 5})[:-4], "ghcnd.width"),
        (month({1: 5}) + " ", "ghcnd.width"),
        (month({1: 5}, "201913"), "ghcnd.line"),
        (month({1: 5}, "000007"), "ghcnd.line"),
        (month({1: 5}, "2O1907"), "ghcnd.line"),
        (month({1: 5}, element="tmax"), "ghcnd.line"),
        (month({1: 5}, station="USC00144531"), "ghcnd.station"),
        (month({4: " 1 5    "}), "ghcnd.value"),
        (month({31: "-       "}), "ghcnd.value"),
        (month({1: " 5-5    "}), "ghcnd.value"),
        (month({1: "   5    "}), "ghcnd.value"),
        (month({1: " --5    "}), "ghcnd.value"),
        (month({1: "  1.5   "}), "ghcnd.value"),
        (month({1: "    5 \x7f "}), "ghcnd.value"),
    ],
)
def test_a_line_that_cannot_be_read_is_set_aside_whole(tmp_path, line, rule):
    rows, result = made(tmp_path, [month({1: 7}), line, month({1: 8}, "201908")])
    assert [r["value"] for r in rows] == [0.7, 0.8]
    assert rejects(tmp_path, result) == [(2, rule)]
    assert result.books.read == 3


def test_lines_of_other_elements_are_dropped_and_counted(tmp_path):
    lines = [month({1: 7}), month({1: 8, 2: 9}, element="SNOW"), month({1: 1}, element="PRCP")]
    rows, result = made(tmp_path, lines, elements=["TMAX", "PRCP"])
    assert [r["element"] for r in rows] == ["TMAX", "PRCP"]
    assert result.books.dropped == {"element": 1}
    assert result.books.read == 3


def test_a_file_of_another_station_is_refused(tmp_path):
    with pytest.raises(CaptureRefused, match="is one of that station") as refused:
        made(tmp_path, [month({1: 7}, station="USC00144531")] * 3)
    assert refused.value.code == "ghcnd.station"


def test_an_error_page_in_place_of_a_station_is_refused(tmp_path):
    with pytest.raises(CaptureRefused) as refused:
        made(tmp_path, "<html><body>Service unavailable</body></html>")
    assert refused.value.code == "html"


def test_a_line_without_end_is_refused(tmp_path):
    with pytest.raises(CaptureRefused) as refused:
        made(tmp_path, month({1: 7}) + "\n" + "7" * (3 << 20))
    assert refused.value.code == "ghcnd.line"


def test_line_ends_blank_lines_and_a_missing_last_end_change_nothing(tmp_path):
    lines = [month({1: 7, 2: 8}), month({3: 9}, element="PRCP")]
    plain, _ = made(tmp_path, lines)
    assert len(plain) == 3
    assert made(tmp_path, lines, end="\r\n")[0] == plain
    assert made(tmp_path, "\n".join(lines))[0] == plain
    rows, result = made(tmp_path, f"{lines[0]}\n\n{lines[1]}\n   \n{lines[1][:50]}\n")
    assert rows == plain
    assert rejects(tmp_path, result) == [(5, "ghcnd.width")]


def test_blanks_that_were_taken_from_the_ends_of_lines_change_nothing(tmp_path):
    lines = [
        month({1: 7, 31: 8}),
        month({3: 9}, element="PRCP"),
        month({31: "    4T  "}, "201908", "PRCP"),
    ]
    plain, _ = made(tmp_path, lines)
    stripped = [line.rstrip() for line in lines]
    assert len(plain) == 4 and [len(line) for line in stripped] == [266, 266, 267]
    for end in ("\n", "\r\n"):
        rows, result = made(tmp_path, stripped, end=end)
        assert (rows, result.books.quarantined) == (plain, 0)


def test_a_last_line_that_was_cut_off_refuses_the_file(tmp_path):
    with pytest.raises(CaptureRefused) as refused:
        made(tmp_path, month({1: 7}) + "\n" + month({31: "    4 X7"}, "201908")[:-2])
    assert (refused.value.code, refused.value.detail["line"]) == ("truncated", 2)


def test_lines_of_a_wrong_width_are_still_those_of_their_station(tmp_path):
    rows, result = made(tmp_path, [month({1: 7}) + "  ", month({1: 8})[:-9]])
    assert (rows, rejects(tmp_path, result)) == ([], [(1, "ghcnd.width"), (2, "ghcnd.width")])


def spoilt(seed: int) -> list[str]:
    """Some months with all that may go wrong in them."""
    chance = random.Random(seed)
    lines = []
    for _ in range(60):
        slot = lambda: (  # noqa: E731
            f"{chance.choice([-9999, 0, 5, -17, 99999, -999, 1234]):5}"
            + "".join(chance.choices("  TXI0", k=3))
        )
        values = {day: slot() for day in range(1, 32) if chance.random() < 0.8}
        line = month(
            values,
            f"{chance.randrange(1890, 2030)}{chance.randrange(1, 13):02}",
            chance.choice(["TMAX", "PRCP", "SNOW", "WT01"]),
        )
        for _ in range(chance.choice([0, 0, 0, 1, 2])):
            at = chance.randrange(len(line))
            line = line[:at] + chance.choice("-0 A\x01é9x") + line[at + 1 :]
        lines.append(line if chance.random() > 0.1 else line[: chance.randrange(len(line))])
    return lines


def plainly(number: int, line: str, station: str, wanted: set[str]) -> list[Any]:
    """What one line should give, said as simply as possible."""
    line = line + " " * (269 - len(line.encode())) if len(line.encode()) > 265 else line
    year, mon, element = line[11:15], line[15:17], line[17:21]
    raw = line.encode()
    if not line.strip():
        return []
    if len(raw) != 269:
        return [(number, "ghcnd.width")]
    figures = raw.isascii() and (year + mon).isdigit() and int(year) > 0 and 1 <= int(mon) <= 12
    if not (
        figures
        and (element.isalnum() and element.upper() == element)
        and all(c.isalnum() or c in "_-" for c in line[:11])
    ):
        return [(number, "ghcnd.line")]
    if line[:11] != station:
        return [(number, "ghcnd.station" if line[:11].upper() == line[:11] else "ghcnd.line")]
    if element not in wanted:
        return [(number, "drop:element" if element == "WT01" else "ghcnd.element")]
    out: list[Any] = []
    for day in range(31):
        value, flags = line[21 + 8 * day : 26 + 8 * day], line[26 + 8 * day : 29 + 8 * day]
        if not value.lstrip(" ").removeprefix("-").isdigit() or not all(
            " " <= f <= "~" for f in flags
        ):
            return [(number, "ghcnd.value")]
        if int(value) == -9999:
            continue
        if day >= calendar.monthrange(int(year), int(mon))[1]:
            out.append((number, "ghcnd.day"))
            continue
        number_of = int(value) / (1 if element == "SNOW" else 10)
        low, high = {"TMAX": (-95, 65), "PRCP": (0, 2000), "SNOW": (0, 3000)}[element]
        if flags[1] == " " and (int(value) in (9999, 99999) or not low <= number_of <= high):
            out.append((number, "value.sentinel" if int(value) in (9999, 99999) else "value.range"))
            continue
        out.append(
            (f"{year}-{mon}-{day + 1:02}", element, number_of, *(f.strip() or None for f in flags))
        )
    return out


@pytest.mark.parametrize("seed", range(20))
def test_whole_columns_and_single_lines_say_the_same(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 3000)
    lines, wanted = spoilt(seed), {"TMAX", "PRCP", "SNOW"}
    expected = [
        found
        for number, line in enumerate(lines, 1)
        for found in plainly(number, line, LARNED, wanted)
    ]
    file = tmp_path / f"{LARNED}.dly"
    file.write_bytes("".join(line + "\n" for line in lines).encode())
    reader = ghcnd.readers(job(file, elements=sorted(wanted)))[0]
    shown = ("observed_on", "element", "value", "measurement_flag", "quality_flag", "source_flag")
    found = list(reader.rows())
    assert [tuple(r.row[c] for c in shown) for r in found if r.row is not None] == [
        e for e in expected if len(e) == 6
    ]
    assert [(r.line, r.problem[0]) for r in found if r.problem is not None] == [
        e for e in expected if len(e) == 2
    ]
    assert all(
        r.raw().rstrip() == lines[r.line - 1].encode().decode("ascii", "replace").rstrip()
        for r in found
    )


def test_where_blocks_are_cut_leaves_no_trace(tmp_path, monkeypatch):
    lines = [line for line in spoilt(1) if line.isascii()]
    _, whole = made(tmp_path, lines)
    before = rejects(tmp_path, whole)
    monkeypatch.setattr(text, "BLOCK", 1000)
    _, cut = made(tmp_path, lines)
    assert (cut.content_id, cut.books, rejects(tmp_path, cut)) == (
        whole.content_id,
        whole.books,
        before,
    )


# -- the access service's CSV


def test_csv_gives_the_same_table_and_an_empty_field_is_no_value(tmp_path):
    rows, result = made(
        tmp_path,
        f'"STATION","DATE","PRCP","TMAX"\n"{LARNED}","2019-07-01","  0.0","35.0"\n"{LARNED}","2019-07-02",,"-1.7"\n',
        "csv",
    )
    assert [(str(r["observed_on"]), r["element"], r["value"], r["unit"]) for r in rows] == [
        ("2019-07-01", "PRCP", 0.0, "mm"),
        ("2019-07-01", "TMAX", 35.0, "Cel"),
        ("2019-07-02", "TMAX", -1.7, "Cel"),
    ]
    # not asked for, so not known
    assert {(r["good"], r["trace"], r["source_flag"]) for r in rows} == {(None, None, None)}
    assert result.books.read == 3


def test_csv_attributes_are_the_flags(tmp_path):
    head = "STATION,NAME,DATE,PRCP,PRCP_ATTRIBUTES,TMAX,TMAX_ATTRIBUTES\n"
    rows, _ = made(
        tmp_path, head + f'{LARNED},"LARNED, KS",2019-07-01,0.0,"T,,7,0700",41.1,",I,7"\n', "csv"
    )
    seen = [
        (
            r["element"],
            r["measurement_flag"],
            r["quality_flag"],
            r["source_flag"],
            r["good"],
            r["trace"],
        )
        for r in rows
    ]
    assert seen == [("PRCP", "T", None, "7", True, True), ("TMAX", None, "I", "7", False, False)]


def test_csv_values_that_are_none_are_set_aside_and_other_elements_dropped(tmp_path):
    body = f"{LARNED},2019-07-01,5,-9999\n{LARNED},2019-07-02,,x\nlarned,2019-07-03,,1\n{LARNED},2019-02-31,,1\n{LARNED},2019-07-04,,2\n"
    rows, result = made(tmp_path, "STATION,DATE,SNOW,TMAX\n" + body, "csv")
    assert [r["value"] for r in rows] == [2.0]
    assert rejects(tmp_path, result) == [
        (2, "ghcnd.value"),
        (3, "ghcnd.value"),
        (4, "ghcnd.value"),
        (5, "type"),
    ]
    assert result.books.dropped == {"element": 1}


def test_csv_without_station_day_and_element_is_refused(tmp_path):
    with pytest.raises(CaptureRefused, match="station, day, temp") as refused:
        made(tmp_path, "station,day,temp\na,b,1\n", "csv")
    assert refused.value.code == "csv.header"


# -- the station list

IOLA = "US1KSAL0001  37.8906  -95.3911  320.0 KS IOLA 2.7 SSE                                "
WICHITA = "USW00003928  37.6475  -97.4300 -999.9 KS WICHITA EISENHOWER AP          GSN     72450"
COLLEGEPORT = (
    "USC00411885  28.7264  -96.1703    4.9 TX COLLEGEPORT                        HCN      "
)


def test_the_station_list_is_a_table_of_points(tmp_path):
    rows, result = made(tmp_path, [IOLA, WICHITA, "USW0000 broken", COLLEGEPORT], "txt", state="KS")
    assert [r.pop("geometry")[:1] for r in rows] == [b"\x01", b"\x01"]
    iola, wichita = rows
    assert iola == {
        "station_id": "US1KSAL0001", "name": "IOLA 2.7 SSE", "state": "KS", "latitude": 37.8906, "longitude": -95.3911,
        "elevation": 320.0, "gsn": False, "network": None, "wmo_id": None,
    }  # fmt: skip
    assert (wichita["elevation"], wichita["gsn"], wichita["wmo_id"]) == (None, True, "72450")
    assert result.bbox == (-97.43, 37.6475, -95.3911, 37.8906)
    assert rejects(tmp_path, result) == [(3, "ghcnd.line")]
    assert result.books.dropped == {"state": 1}


# -- asking


class Upstream:
    """Serves files by the end of their address, and notes what was asked for."""

    def __init__(self, folder: Path, files: dict[str, str]) -> None:
        self.folder, self.files, self.asked, self.kept = folder, files, [], []
        self.logged: list[str] = []

    def ask(self, form: str = "dly", urls: tuple[str, ...] = (TREE,), **options: Any) -> Ask:
        asking = Acquire(
            dataset_id="daily",
            source_kind="ghcnd",
            format=form,
            urls=urls,
            options=options,
            artifact="x.parquet",
        )
        return Ask(
            asking, self._serve, lambda event, **fields: self.logged.append(f"{event} {fields}")
        )

    def _serve(self, message: dict[str, Any]) -> dict[str, Any]:
        paths = []
        for item in message.get("items") or [message]:
            self.asked.append(item["url"])
            name = next((n for n in self.files if item["url"].endswith(n)), None)
            if name is None:
                return {"error": f"{item['url']} answered 404."}
            path = self.folder / item["name"]
            path.write_text(self.files[name])
            self.kept += [item["name"]] if item.get("keep", True) else []
            paths.append(str(path))
        return {"paths": paths} if "items" in message else {"path": paths[0]}


LIST = "\n".join([IOLA, WICHITA, COLLEGEPORT]) + "\n"


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    stations = {
        f"all/{s}.dly": month({1: 5}, station=s) + "\n"
        for s in ("US1KSAL0001", "USW00003928", "USC00411885")
    }
    return Upstream(tmp_path, {"ghcnd-stations.txt": LIST, **stations})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"state": "KS"}, ["US1KSAL0001", "USW00003928"]),
        ({"state": "KS", "prefix": "USW"}, ["USW00003928"]),
        ({"state": "KS", "limit": 1}, ["US1KSAL0001"]),
        ({"stations": ["USC00411885", "US1KSAL0001"]}, ["USC00411885", "US1KSAL0001"]),
    ],
)
def test_the_list_says_which_stations_are_asked_for(upstream, options, expected):
    ghcnd.acquire(upstream.ask(**options))
    assert upstream.kept == ["stations", *expected]
    assert upstream.asked == [
        TREE + "ghcnd-stations.txt",
        *(f"{TREE}all/{s}.dly" for s in expected),
    ]


@pytest.mark.parametrize(
    "at", [45, 39, 20], ids=["inside a name", "before its state", "inside a latitude"]
)
def test_a_list_that_ends_inside_a_station_was_cut(tmp_path, upstream, at):
    cut = f"{IOLA}\n{WICHITA}\n{COLLEGEPORT[:at]}"
    with pytest.raises(CaptureRefused, match=f"cut off.*line 3.*{at} characters wide, not 85"):
        made(tmp_path, cut, "txt", prefix="US")
    upstream.files["ghcnd-stations.txt"] = cut
    with pytest.raises(Refused, match="cut off"):
        ghcnd.acquire(upstream.ask(state="KS"))


def test_a_list_that_was_saved_without_blanks_may_end_in_a_short_line(tmp_path):
    assert (
        len(
            made(
                tmp_path,
                "\n".join(line.rstrip() for line in (COLLEGEPORT, WICHITA, IOLA)),
                "txt",
                prefix="US",
            )[0]
        )
        == 3
    )


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({}, "names no station"),
        ({"stations": ["USC00411885", "USC00999999"]}, "asks for USC00999999 not"),
        ({"state": "ZZ"}, "not in the list"),
        ({"stations": ["larned"]}, "'larned' is not a station id"),
        ({"stations": ["USC00411885"] * 2}, "named twice"),
        ({"state": "KS", "elephants": ["TMAX"]}, "elephants"),
    ],
)
def test_a_choice_that_chooses_nothing_is_refused(upstream, options, word):
    with pytest.raises(Refused, match=word):
        ghcnd.acquire(upstream.ask(**options))
    assert not [s for s in upstream.kept if s != "stations"]


def test_the_captured_list_is_no_station(tmp_path, upstream):
    ghcnd.acquire(upstream.ask(state="KS"))
    scratch = tmp_path / "s"
    scratch.mkdir()
    result = run_inline(job(*(tmp_path / name for name in upstream.kept)), scratch)
    assert pq.read_table(scratch / "x.parquet").column("station_id").to_pylist() == [
        "US1KSAL0001",
        "USW00003928",
    ]
    assert result.books.read == 2


def test_a_listed_station_without_a_file_is_refused_by_name_or_left_out(upstream):
    del upstream.files["all/US1KSAL0001.dly"]
    with pytest.raises(Refused, match="Station US1KSAL0001 has no file upstream"):
        ghcnd.acquire(upstream.ask(state="KS"))
    upstream.kept.clear()
    ghcnd.acquire(upstream.ask(state="KS", allow_missing=True))
    assert upstream.kept == ["stations", "USW00003928"]
    assert upstream.logged == ["ghcnd.missing {'station': 'US1KSAL0001'}"]


def test_trouble_on_the_way_is_never_taken_for_a_missing_station(upstream, monkeypatch):
    def serve(message: dict[str, Any]) -> dict[str, Any]:
        return (
            upstream._serve(message)
            if "items" not in message
            else {"error": "the server answered 503."}
        )

    ask = upstream.ask(state="KS", allow_missing=True)
    monkeypatch.setattr(ask, "_ask", serve)
    with pytest.raises(NotFetched, match="503"):
        ghcnd.acquire(ask)


def test_both_stamps_are_the_change_token(upstream):
    sentence = "The current version of GHCN Daily is 3.27-upd-2020051420 (i.e, an update),\ncreated from: 3.27-por-2020050222.\n"
    upstream.files["ghcnd-version.txt"] = sentence
    assert ghcnd.change_token(upstream.ask()) == "3.27-upd-2020051420 3.27-por-2020050222"
    assert upstream.kept == []
    upstream.files["ghcnd-version.txt"] = "Under maintenance 3.27-upd-2020051420"
    assert ghcnd.change_token(upstream.ask()) is None
    assert ghcnd.change_token(upstream.ask("csv", (TREE + "x.csv",))) is None


def test_csv_is_asked_for_in_metric_units_only(upstream):
    service = "https://www.ncei.noaa.gov/access/services/data/v1?dataset=daily-summaries&stations=X"
    upstream.files["&units=metric"] = "x"
    ghcnd.acquire(upstream.ask("csv", (service + "&units=metric", service + "&a=1&units=metric")))
    assert upstream.kept == ["daily-1", "daily-2"]
    for wrong in ("", "&units=standard"):
        with pytest.raises(Refused, match="units"):
            ghcnd.acquire(upstream.ask("csv", (service + wrong,)))


def test_the_list_alone_may_be_named_by_its_own_address(upstream):
    ghcnd.acquire(upstream.ask("txt", (TREE + "ghcnd-stations.txt",)))
    ghcnd.acquire(upstream.ask("txt"))
    assert upstream.asked == [TREE + "ghcnd-stations.txt"] * 2
    assert urlsplit(upstream.asked[0]).path.endswith("/daily/ghcnd-stations.txt")


# -- recordings


def by_pandas(path: Path) -> Any:
    """The same table from pandas: one row per value that is present."""
    import pandas as pd

    days = range(1, 32)
    names = ["id", "year", "month", "element", *(f"{k}{d}" for d in days for k in "vmqs")]
    widths = [11, 4, 2, 4, *([5, 1, 1, 1] * 31)]
    table = pd.read_fwf(
        path, widths=widths, names=names, header=None, dtype=str, keep_default_na=False
    )
    parts = [
        table[["id", "year", "month", "element"]].assign(
            day=d, **{k: table[f"{k}{d}"] for k in "vmqs"}
        )
        for d in days
    ]
    long = pd.concat(parts)
    return long[long.v.astype(int) != -9999].assign(v=lambda t: t.v.astype(int))


class TestRecordings:
    pytestmark = recorded

    def test_larned_agrees_with_pandas(self, tmp_path):
        rows, result = made(tmp_path, (NOAA / "all" / f"{LARNED}.dly").read_text())
        assert (result.books.read, result.books.written, len(rows)) == (112_460, 112_460, 112_460)
        assert (result.profile["observed_on"].min, result.profile["observed_on"].max) == (
            "1904-04-01",
            "2008-05-31",
        )
        other = by_pandas(NOAA / "all" / f"{LARNED}.dly")
        figures = {
            "PRCP": (37_583, 626_296, 30_374),
            "TMAX": (37_515, 7_656_978, 234),
            "TMIN": (37_362, 2_268_808, 833),
        }
        for element, named in figures.items():  # values, their sum in tenths, true zeros
            theirs, ours = (
                other[other.element == element].v,
                [r["value"] for r in rows if r["element"] == element],
            )
            assert (len(theirs), theirs.sum(), (theirs == 0).sum()) == named
            assert (len(ours), round(sum(ours) * 10), ours.count(0.0)) == named
        assert all(r["good"] for r in rows)

    def test_collegeport_keeps_every_flag(self, tmp_path):
        file = NOAA / "all" / "USC00411885.dly"
        scratch = tmp_path / "s"
        scratch.mkdir()
        result = run_inline(job(file, elements=[]), scratch)
        rows, other = pq.read_table(scratch / "x.parquet").to_pylist(), by_pandas(file)
        assert result.books.written == len(other) == len(rows) == 2419
        for column, theirs in (
            ("measurement_flag", other.m),
            ("quality_flag", other.q),
            ("source_flag", other.s),
        ):
            counts = theirs.value_counts().to_dict()
            assert {k or "": sum((r[column] or "") == k for r in rows) for k in counts} == counts
        assert sum(not r["good"] for r in rows) == (other.q != "").sum() == 18
        # NOAA presumed these zeros, and says so
        assert {r["measurement_flag"] for r in rows if r["element"] == "PRCP"} == {"P"}

    def test_the_access_service_agrees_with_pandas(self, tmp_path):
        import pandas as pd

        file = NOAA / "access-data-service" / "USC00144531.csv"
        rows, result = made(tmp_path, file.read_text(), "csv")
        other = pd.read_csv(file)
        assert len(other) == 4437
        assert (
            result.books.read == int(other[["PRCP", "TMAX", "TMIN"]].notna().sum().sum()) == 13_034
        )
        assert (
            sum(r["value"] == 0 and r["element"] == "PRCP" for r in rows)
            == (other.PRCP == 0).sum()
            == 3476
        )
        for element in ("PRCP", "TMAX", "TMIN"):
            assert sum(r["value"] for r in rows if r["element"] == element) == pytest.approx(
                other[element].sum()
            )

    def test_kansas_has_1900_stations(self, tmp_path):
        import pandas as pd

        rows, result = made(tmp_path, (NOAA / "ghcnd-stations.ks.txt").read_text(), "txt")
        other = pd.read_csv(NOAA / "ghcnd-stations-resaved.ks.csv")
        assert (result.books.written, result.books.quarantined) == (1900, 0)
        assert [r["station_id"] for r in rows] == other.siteid.to_list()
        assert sum(r["latitude"] for r in rows) == pytest.approx(other.lat.sum())
        assert result.bbox == pytest.approx(
            (other.long.min(), other.lat.min(), other.long.max(), other.lat.max())
        )

    def test_the_recorded_sentence_gives_both_stamps(self, upstream):
        upstream.files["ghcnd-version.txt"] = (NOAA / "ghcnd-version.txt").read_text()
        assert ghcnd.change_token(upstream.ask()) == "3.27-upd-2020051420 3.27-por-2020050222"


def test_a_release_says_when_it_was_made() -> None:
    older, newer = (
        ghcnd.stamp("3.32-upd-2026110818 3.32-por-2026110100"),
        ghcnd.stamp("3.32-upd-2026110918 3.32-por-2026110100"),
    )
    assert (older, newer) == ("2026-11-08T18:00:00Z", "2026-11-09T18:00:00Z")
    assert [ghcnd.stamp(t) for t in ("3.32-upd-20261399", "", "3.32-por-2026110100")] == [
        None,
        None,
        None,
    ]
