"""Which items a search may mean is found by arithmetic; it is what geometry says."""

import shapely
from hypothesis import given
from hypothesis import strategies as st

from kfm.catalog.base import geometry
from kfm.model import canonical
from kfm.reader.stac_index import After, Items, Row, _Part

LON = st.integers(-18, 18).map(lambda n: 10.0 * n)
LAT = st.tuples(st.integers(-9, 9), st.integers(-9, 9)).map(
    lambda pair: (10.0 * min(pair), 10.0 * max(pair))
)
BOX = st.tuples(LON, LAT, LON).map(lambda b: (b[0], b[1][0], b[2], b[1][1]))


def items(*rows: Row) -> Items:
    return Items([_Part((), rows, True)])


def row(number: int, bbox: tuple[float, float, float, float] = (0, 0, 1, 1), at: int = 0) -> Row:
    return Row("d", f"v{number:02}", (number,), bbox, at, at + 5)


def shape(box: tuple[float, float, float, float]) -> object:
    return shapely.from_geojson(canonical.dumps(geometry(box)))


@given(st.lists(BOX, min_size=1, max_size=8), BOX)
def test_boxes_meet_where_their_shapes_do(boxes: list[tuple[float, ...]], asked: tuple) -> None:
    """Two that touch only at the antimeridian lie on either side of it, as shapes have it."""
    found = items(*(row(n, box) for n, box in enumerate(boxes))).within(asked)  # type: ignore[arg-type]
    for meets, each in zip(found, sorted(enumerate(boxes), key=lambda b: f"v{b[0]:02}")):
        if shapely.intersects(shape(each[1]), shape(asked)):  # type: ignore[arg-type]
            assert meets
        elif meets:
            assert {180.0, -180.0} & {each[1][0], each[1][2], asked[0], asked[2]}


def test_items_stand_the_latest_first_and_a_page_goes_on_behind_the_last() -> None:
    found = items(row(1, at=10), row(2, at=30), row(3, at=30), row(4, at=20))
    assert [each.version_id for each in found.rows] == ["v02", "v03", "v04", "v01"]
    places = [found.behind(After(r.last, r.version_id, r.dataset_id)) for r in found.rows]
    assert places == [1, 2, 3, 4]
    assert found.behind(After(36, "v99", "d")) == 0  # of one that is gone: where it stood


def test_a_time_touches_what_lasts_through_it() -> None:
    found = items(row(1, at=10), row(2, at=30))
    assert list(found.during(12, 14)) == [False, True]
    assert list(found.during(None, 30)) == [True, True]
    assert list(found.during(16, None)) == [True, False]
    assert list(found.named(["v01", "nobody"])) == [False, True]
