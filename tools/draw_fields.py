"""The keys a person writes, as docs/fields.md: from the records themselves and the comments beside them."""

import ast
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = {  # heading -> (file, record); a record that others hold comes after them
    "`data/registry/<dataset_id>.yml`": ("model/dataset.py", "DatasetEntry"),
    "`source`": ("model/dataset.py", "Source"),
    "`source.packed`": ("model/dataset.py", "Packed"),
    "`schema`, one of its columns": ("model/dataset.py", "Column"),
    "`location`": ("model/dataset.py", "Location"),
    "`extent`": ("model/dataset.py", "Extent"),
    "`release`": ("model/dataset.py", "Release"),
    "`release.aggregate`": ("model/dataset.py", "Aggregate"),
    "`quality`": ("model/dataset.py", "Quality"),
    "`change`": ("model/dataset.py", "Change"),
    "`canary`": ("model/dataset.py", "Canary"),
    "`backfill`": ("model/dataset.py", "Past"),
    "`slo`": ("model/dataset.py", "Slo"),
    "`kfm.yml`": ("model/dataset.py", "WorkspaceConfig"),
    "`polite`": ("model/dataset.py", "Polite"),
    "`polite.hosts`, one of them": ("model/dataset.py", "HostLimits"),
    "`pools`, one of them": ("model/dataset.py", "PoolLimits"),
    "`catalogues`, one of them": ("model/dataset.py", "Catalogue"),
    "`notify`": ("model/dataset.py", "Notify"),
    "`github`": ("model/dataset.py", "Github"),
    "`webhooks`": ("model/dataset.py", "Webhooks"),
    "`serve`": ("reader/settings.py", "Serve"),
    "`serve.oidc`": ("reader/settings.py", "Issuer"),
    "`runners`": ("model/dataset.py", "Runners"),
    "`telemetry`": ("model/dataset.py", "TelemetryTargets"),
    "`alerts`": ("model/dataset.py", "Alerts"),
    "`alerts.channels`, one of them": ("model/dataset.py", "AlertChannel"),
    "`telemetry.energy`": ("model/dataset.py", "EnergyFactors"),
    "`pipelines/orchestration/schedules/<name>.yml`": ("model/schedule.py", "Schedule"),
    "`pipelines/orchestration/webhooks/<source_id>.yml`": ("model/webhook.py", "WebhookSource"),
    "`map`": ("model/webhook.py", "EventMap"),
    "`pipelines/orchestration/backfills/<name>.yml`": ("jobs/backfill_plan.py", "BackfillPlan"),
    "`partitioning`": ("jobs/backfill_plan.py", "Partitioning"),
    "`acceptance`": ("jobs/backfill_plan.py", "Acceptance"),
    "`rate`": ("jobs/backfill_plan.py", "RateLimit"),
    "`--config` of `python -m updater run`": ("model/dataset.py", "UpdaterConfig"),
    "`sources`, one of them": ("model/dataset.py", "UpdaterSource"),
}
HEAD = """# The keys of every file that people write

Made from the records by `make schemas`; a test compares. A key that is not here is refused, with its place and the nearest name;
`schemas/config/` has the same as JSON Schema.
"""


def page() -> str:
    parts = [HEAD]
    for heading, (file, name) in PAGES.items():
        source = (ROOT / "src" / "kfm" / file).read_text()
        (record,) = (
            node
            for node in ast.parse(source).body
            if isinstance(node, ast.ClassDef) and node.name == name
        )
        said = re.sub(r"\s+", " ", ast.get_docstring(record) or "")
        said = re.sub(r"^`[^`]+`\.$", "", said)
        said = re.sub(r"^`[^`]+`: (\w)", lambda found: found[1].upper(), said)
        rows = [
            _row(field, source.splitlines())
            for field in record.body
            if isinstance(field, ast.AnnAssign)
        ]
        parts.append(
            f"\n## {heading}\n\n{textwrap.fill(said, 140)}\n\n| key | value | not stated | meaning |\n|---|---|---|---|\n"
            + "".join(rows)
        )
    return "".join(parts)


def _row(field: ast.AnnAssign, lines: list[str]) -> str:
    assert isinstance(field.target, ast.Name)
    beside = lines[(field.end_lineno or field.lineno) - 1].partition("  # ")[2]
    above, number = list[str](), field.lineno - 2
    while lines[number].strip().startswith("# "):
        above.insert(0, lines[number].strip(" #"))
        number -= 1
    default = "required" if field.value is None else _default(field.value)
    meaning = " ".join([*above, beside]).strip().replace("None:", "not stated:")
    cells = (f"`{field.target.id}`", _type(field.annotation), default, meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        said = str(value.value).lower() if isinstance(value.value, bool) else value.value
        return "" if said in (None, "") else f"`{said}`"
    text = ast.unparse(value)
    return (
        "" if text in ("()", "{}", "UNSET", "msgspec.UNSET") or text.endswith("()") else f"`{text}`"
    )


WORDS = {  # what Python calls it -> what people do
    "str": "text", "Text": "text", "bool": "true or false", "int": "a whole number", "float": "a number", "Share": "a share, 0 to 1",
    "Identifier": "a name", "DatasetId": "the id of a dataset", "KindName": "a kind of source", "Format": "a format", "Json": "keys of its own", "Count": "a whole number from 1", "Length": "a length of time", "Range": "SINCE/UNTIL",
    "WebhookKind": "kfm or github or s3 or sns or lakefs or stac or cloudevents or generic", "Reference": "a reference",
    "Sensitivity": "public or restricted or sensitive-location or aggregate-only",
}  # fmt: skip


def _type(annotation: ast.expr) -> str:
    """What may stand there, without what only Python needs."""
    text = ast.unparse(annotation)
    text = re.sub(r" \| (?:msgspec\.)?UnsetType| \| None", "", text)
    text = re.sub(r"Annotated\[(.+?), msgspec\.Meta\(.*?\)\]", r"\1", text)
    text = re.sub(r"tuple\[(.+?), \.\.\.\]", r"list of \1", text)
    text = re.sub(r"dict\[\w+, (\w+)\]", r"names, each with \1", text)
    text = re.sub(r"tuple\[(.+?)\]", lambda found: f"{found[1].count(',') + 1} numbers", text)
    text = re.sub(
        r"Literal\[(.+?)\]", lambda found: found[1].replace("'", "").replace(", ", " or "), text
    )
    held = {record: "keys below" for _, record in PAGES.values()}
    text = re.sub(r"\b[A-Za-z]+\b", lambda found: (WORDS | held).get(found[0], found[0]), text)
    text = text.replace("list of a name", "list of names").replace("list of text", "list of texts")
    text = text.replace("list of the id of a dataset", "list of ids of datasets")
    return text.replace(" | ", " or ")


if __name__ == "__main__":
    print(page(), end="")
