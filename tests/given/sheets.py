"""Writes small spreadsheets by hand, whatever is wrong with them."""

import io
import zipfile
from xml.sax.saxutils import escape, quoteattr

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
FORMATS = ("General", "yyyy-mm-dd", "yyyy-mm-dd hh:mm", "h:mm", "[h]:mm:ss", "0.00E+00")
ODF = "urn:oasis:names:tc:opendocument:xmlns"


def zipped(parts: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in parts.items():
            file.writestr(name, data)
    return out.getvalue()


def letter(column: int) -> str:
    return chr(65 + column)


def cell(place: str, value: object) -> str:
    """One cell: a number, a text, True or False, or its whole inside as `<…>`."""
    if isinstance(value, str) and value.startswith("<c"):
        return value.replace("<c", f'<c r="{place}"', 1)
    if isinstance(value, bool):
        return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float):
        return f'<c r="{place}"><v>{value!r}</v></c>'
    return f'<c r="{place}" t="inlineStr"><is><t>{escape(str(value))}</t></is></c>'


def sheet(rows: dict[int, list[object]] | list[list[object]], merged: tuple[str, ...] = ()) -> str:
    numbered = rows if isinstance(rows, dict) else dict(enumerate(rows, 1))
    lines = "".join(
        f'<row r="{n}">'
        + "".join(cell(f"{letter(i)}{n}", v) for i, v in enumerate(row) if v is not None)
        + "</row>"
        for n, row in numbered.items()
    )
    spans = "".join(f'<mergeCell ref="{ref}"/>' for ref in merged)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><worksheet xmlns="{MAIN}"><sheetData>{lines}'
        f"</sheetData>{f'<mergeCells>{spans}</mergeCells>' if spans else ''}</worksheet>"
    )


def xlsx(
    *sheets: str,
    names: tuple[str, ...] = (),
    strings: tuple[str, ...] = (),
    from_1904: bool = False,
) -> bytes:
    """A workbook; `<c s="1">` shows days, 2 moments, 3 times, 4 lengths of time."""
    names = names or tuple(f"Sheet{n}" for n in range(1, len(sheets) + 1))
    listed = "".join(
        f'<sheet name={quoteattr(name)} sheetId="{n}" r:id="r{n}"/>'
        for n, name in enumerate(names, 1)
    )
    relations = "".join(
        f'<Relationship Id="r{n}" Type="{OFFICE}/worksheet" Target="worksheets/sheet{n}.xml"/>'
        for n in range(1, len(sheets) + 1)
    )
    relations += f'<Relationship Id="s" Type="{OFFICE}/styles" Target="styles.xml"/>'
    relations += (
        f'<Relationship Id="t" Type="{OFFICE}/sharedStrings" Target="/xl/sharedStrings.xml"/>'
    )
    codes = "".join(
        f'<numFmt numFmtId="{170 + n}" formatCode={quoteattr(code)}/>'
        for n, code in enumerate(FORMATS)
    )
    styles = "".join(f'<xf numFmtId="{170 + n}"/>' for n in range(len(FORMATS)))
    first = '<workbookPr date1904="1"/>' if from_1904 else ""
    main = f'<Relationship Id="w" Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
    texts = "".join(
        f"<si>{t if t.startswith('<') else f'<t>{escape(t)}</t>'}</si>" for t in strings
    )
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": f'<Relationships xmlns="{PACKAGE}">{main}</Relationships>',
            "xl/workbook.xml": (
                f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}">{first}<sheets>{listed}</sheets></workbook>'
            ),
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}">{relations}</Relationships>',
            "xl/styles.xml": (
                f'<styleSheet xmlns="{MAIN}"><numFmts>{codes}</numFmts><cellStyleXfs><xf/></cellStyleXfs>'
                f"<cellXfs>{styles}</cellXfs></styleSheet>"
            ),
            "xl/sharedStrings.xml": f'<sst xmlns="{MAIN}">{texts}</sst>',
            **{f"xl/worksheets/sheet{n}.xml": s for n, s in enumerate(sheets, 1)},
        }
    )


def ods_cell(value: object) -> str:
    if value is None:
        return "<table:table-cell/>"
    if isinstance(value, str) and value.startswith("<"):
        return value
    if isinstance(value, bool):
        said = str(value).lower()
        return f'<table:table-cell office:value-type="boolean" office:boolean-value="{said}"/>'
    if isinstance(value, int | float):
        return f'<table:table-cell office:value-type="float" office:value="{value!r}"><text:p>x</text:p></table:table-cell>'
    return f'<table:table-cell office:value-type="string"><text:p>{escape(str(value))}</text:p></table:table-cell>'


def ods_row(row: list[object], attributes: str = "") -> str:
    return f"<table:table-row {attributes}>{''.join(map(ods_cell, row))}</table:table-row>"


def ods(**sheets: list[list[object] | str]) -> bytes:
    tables = "".join(
        f'<table:table table:name="{name}">'
        + "".join(r if isinstance(r, str) else ods_row(r) for r in rows)
        + "</table:table>"
        for name, rows in sheets.items()
    )
    spaces = " ".join(f'xmlns:{n}="{ODF}:{n}:1.0"' for n in ("office", "table", "text"))
    spaces += (
        ' xmlns:calcext="urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0"'
    )
    return zipped(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "content.xml": (
                f"<office:document-content {spaces}><office:body><office:spreadsheet>{tables}"
                "</office:spreadsheet></office:body></office:document-content>"
            ),
            "META-INF/manifest.xml": "<manifest/>",
        }
    )
