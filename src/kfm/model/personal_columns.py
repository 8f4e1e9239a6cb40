"""What a column looks like: an address, a person's name, coordinates, free text. Such a column is
shown with a steward's reason only.
"""

import re
from collections.abc import Sequence

from msgspec import UNSET

from kfm.model.dataset import Release

__all__ = ["LOOKS", "looks_of", "looks_of_values", "shown_looks"]

_WORDS = {  # of a column's name
    "name": (
        "name names owner owners keeper person persons contact contacts surname firstname lastname"
        " fullname informant landowner collector collectors observer observers recorder resident"
        " tenant email mail phone telephone tel fax mobile ssn author authors"
    ),
    "address": (
        "address addr street road house housenumber postcode postal zip zipcode parcel apn mailing"
    ),
    "coordinates": (
        "lat latitude lon lng long longitude easting eastings northing northings utm mgrs usng"
        " geohash h3 wkt wkb geom geometry coord coords coordinate coordinates position location"
        " point latlon latlng lonlat lnglat plss gps pluscode olc w3w what3words centroid x y"
    ),
    "free text": (
        "note notes remark remarks comment comments description desc narrative memo details text"
        " abstract directions observations"
    ),
}
# Of these only the last says what a column holds: the type of a road is no address.
_LAST = (
    "name names contact contacts person persons mail mobile road house parcel long x y point"
    " position location text"
)
LOOKS = {look: frozenset(words.split()) for look, words in _WORDS.items()}
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|h3|w3w|what3words|[^\W\d_]+")
_STREET = re.compile(
    r"\b\d{1,6}\s+(?:\w+\.?\s+){1,4}(?:st|street|ave|avenue|rd|road|dr|drive|ln|lane|blvd|hwy|highway|ct|court|way)\b",
    re.IGNORECASE,
)
_MANY_WORDS = 6


def looks_of(column: str) -> tuple[str, ...]:
    """What the name of a column makes one think it holds."""
    parts = [w.casefold() for w in _PARTS.findall(column)]
    words = {w for w in parts if w not in _LAST.split()} | {
        *parts[-1:],
        column.casefold(),
        re.sub(r"[\W_]+", "", column).casefold(),
    }
    return tuple(look for look, known in LOOKS.items() if words & known)


def shown_looks(release: Release | None) -> tuple[tuple[str, str], ...]:
    """(column, what it looks like) of the columns a release shows."""
    if release is None or release.show is UNSET:
        return ()
    return tuple((column, look) for column in release.show for look in looks_of(column))


def looks_of_values(texts: Sequence[str]) -> tuple[str, ...]:
    """What the values of a column make one think it holds, when many of them do."""
    if not texts:
        return ()
    share = {
        "address": sum(_STREET.search(t) is not None for t in texts) / len(texts),
        "free text": sum(len(t.split()) > _MANY_WORDS for t in texts) / len(texts),
    }
    return tuple(look for look, part in share.items() if part > 0.3)
