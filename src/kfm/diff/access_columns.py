"""Records that say of themselves that they are not for everybody: columns that speak of access, and
what they say.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["marked", "speaks_of_access"]

_NAMES = re.compile(
    r"(dc(terms)?_)?(data_|record_|site_)?(access|access_?(level|rights?|status|class|constraints?|restrictions?)|restrict(ed|ions?|ion_(level|code|status))|"
    r"sensitiv(e|ity)(_(level|class|code))?|confidential(ity)?(_(level|class|code))?|(security_)?classification|privacy(_level)?|private|"
    r"licen[cs]es?|rights|use_?(constraints?|restrictions?|limitations?)|usage(_rights)?|visibility|embargo(ed)?|is_(restricted|confidential|private|sensitive))"
)
_FLAGS = re.compile(r"(is_)?(restricted|confidential|private|sensitive|embargo(ed)?)")
_NOT = re.compile(
    r"\b(?:not|non|no|un|without)[\s_-]*(?=restrict|confidential|private|sensitive|classified|secret|embargo|proprietary)\w*[\s_-]*\w*"
)
_SAYS = re.compile(
    r"\b(restricted|confidential|private|secret|classified|proprietary|embargo(ed)?|withheld|non[\s_-]?public|not[\s_-]public|"
    r"internal([\s_-]use)?([\s_-]only)?|official[\s_-]use[\s_-]only|sensitive|closed|no[\s_-]access|all[\s_-]rights[\s_-]reserved|"
    r"non[\s_-]?commercial|research([\s_-]use)?[\s_-]only|academic[\s_-]use[\s_-]only|do[\s_-]not[\s_-](share|publish|distribute|release)|"
    r"no[\s_-]?deriv\w*|cc[\s_-]by[\s_-](sa[\s_-])?n[cd]\b[\w.\s-]*)"
)  # fmt: skip


def speaks_of_access(columns: Iterable[str]) -> list[str]:
    """Those columns whose name says that they are about who may see or use a record."""
    return [
        name for name in columns if _NAMES.fullmatch(re.sub(r"[\s.:-]+", "_", name.strip().lower()))
    ]


def _says(column: str, value: str) -> bool:
    text = value.strip().lower()
    if _FLAGS.fullmatch(column.strip().lower()) and text in ("true", "yes", "y", "1", "t"):
        return True
    return bool(
        _SAYS.search(
            _NOT.sub(" ", text)
            if not re.match(r"(not|non)[\s_-]?(public|commercial)", text)
            else text
        )
    )


def marked(files: Mapping[str, Path], columns: Iterable[str]) -> dict[str, dict[str, int]]:
    """Column -> value -> how many records of these tables have it, of values that restrict."""
    import pyarrow as pa  # few tables have such a column
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found: dict[str, dict[str, int]] = {}
    for path in (p for name, p in sorted(files.items()) if name.endswith(".parquet")):
        file = pq.ParquetFile(path)
        for column in (c for c in columns if c in file.schema_arrow.names):
            kind = file.schema_arrow.field(column).type
            if (
                pa.types.is_nested(kind)
                or pa.types.is_binary(kind)
                or pa.types.is_large_binary(kind)
            ):
                continue
            for batch in file.iter_batches(columns=[column]):
                for pair in pc.value_counts(batch.column(0).cast(pa.string())).to_pylist():
                    value = pair["values"]
                    if value is not None and _says(column, value):
                        place = found.setdefault(column, {})
                        place[value] = place.get(value, 0) + int(pair["counts"])
    return found
