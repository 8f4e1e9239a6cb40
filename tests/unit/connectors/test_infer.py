"""Types that nobody states: the odd value is set aside, whatever it is and wherever it stands, and
a type stays what it was.
"""

import json

import pytest
from tests.given.tables import columns

from kfm.connectors.table.infer import Census, settle


def csv(*cells, name="height_m", key="site"):
    return f"{key},{name}\n" + "".join(f"s{n},{cell}\n" for n, cell in enumerate(cells))


@pytest.mark.parametrize(
    ("usual", "odd", "kind"),
    [
        ("1.5", "tall", "number"), ("7", "tall", "integer"), ("7", "99999999999999999999", "integer"), ("7", "0x1F", "integer"), ("7", "1 000", "integer"),
        ("true", "maybe", "boolean"), ("2020-01-01", "yesterday", "date"), ("2020-01-01T00:00:00Z", "2020-01-01", "timestamp"),
        ("2020-01-01", "2020-13-01", "date"), ("1.5", "1,5", "number"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", [0, 500, 999])
def test_one_odd_cell_is_set_aside_with_its_line_and_the_column_keeps_its_type(
    made, usual, odd, kind, at
):
    cells = [usual] * 1000
    cells[at] = f'"{odd}"'
    table = made("csv", csv(*cells))
    assert table.types["height_m"] == kind
    assert [(r["line"], r["rule"]) for r in table.rejects] == [
        (at + 2, "type")
    ] and "height_m" in table.rejects[0]["reason"]
    told = f"Column 'height_m' is {kind}; 1 of 1,000 values is not, and its row is set aside."
    assert told in table.result.warnings and table.result.lines == {told: f"line {at + 2:,}"}


@pytest.mark.parametrize("odd", ["tall", [1], {"a": 1}, True, "007x"])
def test_one_odd_value_in_json_is_set_aside_too(made, odd):
    rows = [{"v": 1.5}] * 500 + [{"v": odd}] + [{"v": 2}] * 500
    table = made("json", json.dumps(rows))
    assert table.types == {"v": "number"}
    assert [(r["line"], r["rule"]) for r in table.rejects] == [(501, "type")]


def test_a_number_beyond_64_bits_is_odd_among_integers_only(made):
    assert [
        r["line"] for r in made("json", json.dumps([{"v": 1}] * 500 + [{"v": 2**70}])).rejects
    ] == [501]
    table = made("json", json.dumps([{"v": 1.5}] * 500 + [{"v": 2**70}]))
    assert table.types == {"v": "number"} and not table.rejects


def test_from_one_in_a_hundred_on_the_column_is_text_and_the_run_says_so(made):
    assert made("csv", csv(*["1"] * 100, "x")).types["height_m"] == "integer"
    table = made("csv", csv(*["1"] * 99, "x"))
    assert table.types["height_m"] == "string" and not table.rejects
    assert any("height_m string (not all are numbers)" in w for w in table.result.warnings)


def test_decimals_among_whole_numbers_are_not_odd(made):
    table = made("csv", csv(*["1"] * 1000, "2.5"))
    assert table.types["height_m"] == "number" and not table.rejects


def test_the_first_run_says_what_it_inferred_in_one_line(made):
    table = made(
        "csv",
        "site,zip_code,plot,height_m,seen\n" + "s1,66044,007,1.5,2020-01-01\n" * 2,
        business_key=("site",),
    )
    (said,) = table.result.warnings
    assert said == (
        "Inferred: site string (key), zip_code string (named as an id), plot string (leading zeros or more than 15 digits), height_m number,"
        " seen date; `kfm dataset schema ks_test --write` writes the types of all columns down."
    )
    assert not made("csv", "a\n1\n", schema={"a": "integer"}).result.warnings


def test_one_leading_zero_makes_a_column_text_for_it_would_be_lost(made):
    table = made("csv", csv(*["7"] * 5000, "007"))
    assert (
        table.types["height_m"] == "string"
        and table.rows[-1]["height_m"] == "007"
        and not table.rejects
    )
    table = made("json", json.dumps([{"v": 7}] * 5000 + [{"v": "007"}]))
    assert table.types == {"v": "string"} and table.rows[-1] == {"v": "007"}


@pytest.mark.parametrize("late", [False, True])
def test_text_that_most_values_are_not_is_odd_wherever_the_sample_ended(made, late):
    # more than 1 in 100 of the sample, less of all
    odd, usual = ["tall"] * 150, [str(n) for n in range(20_000)]
    table = made("csv", csv(*([*usual, *odd] if late else [*odd, *usual])))
    assert table.types["height_m"] == "integer" and len(table.rejects) == 150


# -- after the first version


@pytest.mark.parametrize("kind", ["string", "number", "integer"])
def test_a_column_keeps_the_type_it_has_in_the_official_version(made, kind):
    known = columns(site="string", height_m=kind)
    table = made("csv", csv(*["7"] * 300), known=known)
    assert table.types["height_m"] == kind and not table.result.warnings
    # no value says anything else
    assert made("csv", csv(*[""] * 300), known=known).types["height_m"] == kind


@pytest.mark.parametrize(
    ("odd", "was"), [("tall", "number"), ("1.5", "integer"), ("007", "integer")]
)
def test_what_a_type_of_the_official_version_does_not_hold_is_odd_while_it_is_rare(made, odd, was):
    known = columns(site="string", height_m=was)
    table = made("csv", csv(*["7"] * 300, odd), known=known)
    assert table.types["height_m"] == was and [(r["line"], r["rule"]) for r in table.rejects] == [
        (302, "type")
    ]
    table = made("csv", csv(*["7"] * 300, *[odd] * 30), known=known)
    assert table.types["height_m"] != was and not table.rejects  # the quality gate asks a person


@pytest.mark.parametrize("ending", [["tall"], ["1.5"], ["007"], [""], ["tall"] * 40, ["nan"]])
def test_the_same_bytes_give_the_same_table_as_a_first_run_and_again(made, ending):
    text = csv(*["7"] * 400, *ending)
    first = made("csv", text)
    again = made("csv", text, known=first.result.schema)
    assert again.data == first.data and again.rejects == first.rejects


def test_a_column_that_is_new_is_inferred_and_told(made):
    table = made(
        "csv", "site,height_m,n\ns1,7,1\n", known=columns(site="string", height_m="number")
    )
    assert table.types == {"site": "string", "height_m": "number", "n": "integer"}
    assert [w.partition(";")[0] for w in table.result.warnings] == ["Inferred: n integer"]


def test_an_integer_key_in_json_stays_one_unless_a_single_value_is_text(made):
    assert made("json", json.dumps([{"k": n} for n in range(500)]), business_key=("k",)).types == {
        "k": "integer"
    }
    table = made(
        "json", json.dumps([{"k": n} for n in range(500)] + [{"k": "A5"}]), business_key=("k",)
    )
    assert table.types == {"k": "string"} and not table.rejects


def test_no_value_at_all_is_text_or_what_it_was():
    assert settle(Census()) == "string" and settle(Census(), known="number") == "number"


def told(table):
    return [w for w in table.result.warnings if w.startswith("Column")]


def test_what_is_told_of_a_column_counts_what_there_is_and_what_is_set_aside(made):
    rows = [f"s{n},2020-01-{n % 28 + 1:02d}T00:00:00Z,{'' if n % 2 else n}" for n in range(1000)]
    rows[10], rows[20], rows[998] = (
        "s10,2020-01-11T00:00:00Z,tall",
        "s20,2020-01-21T00:00:00Z,nan",
        "s998,2020-01-19T00:00:00Z,wide",
    )
    text = "site,seen,height_m\n" + "\n".join(rows) + "\n"
    three = "3 of 500 values are not, and their rows are set aside."
    assert told(made("csv", text)) == [f"Column 'height_m' is integer; {three}"]
    stated = made("csv", text, schema={"site": "string", "seen": "timestamp", "height_m": "number"})
    assert told(stated) == [f"Column 'height_m' is number; {three}"] and list(
        stated.result.lines.values()
    ) == ["line 12"]
    window = {
        "time_column": "seen",
        "since": "2020-01-11T00:00:00Z",
        "until": "2020-01-12T00:00:00Z",
    }
    assert told(made("csv", text, **window)) == [
        "Column 'height_m' is integer; 1 of 36 values is not, and its row is set aside."
    ]
    fixed = {r["digest"]: {"height_m": "7"} for r in stated.rejects[:2]}
    mended = made(
        "csv",
        text,
        fixes=fixed,
        schema={"site": "string", "seen": "timestamp", "height_m": "number"},
    )
    assert mended.result.books.quarantined == 1
    assert told(mended) == [
        "Column 'height_m' is number; 1 of 500 values is not, and its row is set aside."
    ]


def test_nothing_is_told_of_values_that_are_kept_and_each_column_of_a_row_counts(made):
    # read as a number all the same
    assert not told(made("json", json.dumps([{"v": 1.5}] * 500 + [{"v": 2**70}])))
    both = made("json", json.dumps([{"a": 1, "b": True}] * 500 + [{"a": "x", "b": "y"}]))
    assert [w.partition(";")[2] for w in told(both)] == [
        " 1 of 501 values is not, and its row is set aside."
    ] * 2
    assert both.result.books.quarantined == 1
