"""What a connector states of its dataset, filled in where registry entry and mapping.yml say nothing."""

import msgspec
from msgspec import UNSET

from kfm.connect import Field, Source
from kfm.connectors.child.code import read_code
from kfm.model import Column, DatasetEntry, Json, UsageError

__all__ = ["with_mapping", "with_stated"]


def with_stated(entry: DatasetEntry, code: bytes) -> DatasetEntry:
    """The entry with the columns, the key, the credentials and the path of records that its
    connector states; what the registry says of them wins.

    Code that cannot be read states nothing here: whoever would run it is told why.
    """
    source = _source(code, entry.dataset_id)
    if source is None:
        return entry
    said = {c.name: c for c in entry.schema}
    columns = [said.pop(f.name) if f.name in said else _column(f) for f in source.columns]
    key = entry.business_key or tuple(f.name for f in source.columns if f.key)
    return msgspec.structs.replace(
        entry,
        schema=(*columns, *said.values()),
        business_key=key,
        source=msgspec.structs.replace(
            entry.source,
            records=entry.source.records if entry.source.records is not None else source.records,
            **_authorised(entry, source),
        ),
    )


def with_mapping(given: object, code: bytes, dataset_id: str) -> object:
    """What mapping.yml holds, with the columns that the connector states; what it says of a column
    wins.
    """
    source = _source(code, dataset_id)
    plain = {} if given is None else given
    if source is None or not source.columns or not isinstance(plain, dict):
        return given
    listed = plain.get("columns", ())
    if not isinstance(listed, list | tuple) or not all(isinstance(c, dict) for c in listed):
        return given  # whoever decodes it says what is wrong
    said = {c.get("to"): c for c in listed}
    columns = [
        {**_of_file(f), **said.pop(f.name, {})} for f in source.columns if f.type != "geometry"
    ]
    return {**plain, "columns": [*columns, *said.values()]}


def _source(code: bytes, dataset_id: str) -> Source | None:
    try:
        return read_code(code, f"scripts/connectors/{dataset_id}/connector.py").source
    except UsageError:
        return None


def _column(field: Field) -> Column:
    return Column(
        name=field.name,
        type=field.type,
        nullable=not field.required,
        unit=field.unit,
        text="free" if field.free_text else UNSET,
        min=UNSET if field.min is None else field.min,
        max=UNSET if field.max is None else field.max,
        sentinels=field.sentinels or UNSET,
    )


def _of_file(field: Field) -> Json:
    """A column as mapping.yml writes it."""
    found: Json = {
        "from": field.name if field.at is None else field.at,
        "to": field.name,
        "type": field.type,
        "required": field.required,
        "unit": field.unit,
        "format": list(field.format),
        "nulls": list(field.nulls),
    }
    return found


def _authorised(entry: DatasetEntry, source: Source) -> Json:
    """How the registered server is told who asks: headers, and fields of the addresses."""
    if source.auth is None:
        return {}
    there = {name.lower() for name in entry.source.headers}
    added = {n: v for n, v in source.auth.headers.items() if n.lower() not in there}
    fields = "&".join(f"{n}={v}" for n, v in source.auth.fields.items())

    def with_fields(url: str) -> str:
        return f"{url}{'&' if '?' in url else '?'}{fields}" if fields else url

    return {
        "headers": entry.source.headers | added,
        "url": with_fields(entry.source.url),
        "urls": tuple(map(with_fields, entry.source.urls)),
    }
