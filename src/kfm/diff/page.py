"""A comparison as one HTML page that asks nobody for anything: no script, no font, no picture from
elsewhere.
"""

from collections.abc import Iterable, Sequence
from html import escape

from kfm.diff.base import Change, Diff, number, shown, title
from kfm.diff.map import draw

__all__ = ["html"]

_CSS = """
:root{color-scheme:light dark;--page:light-dark(#faf9f5,#15191b);--card:light-dark(#fff,#1c2123);--head:light-dark(#f1efe8,#111416);
--rule:light-dark(#dcd8cc,#363e41);--ink:light-dark(#1d221f,#eae8e1);--soft:light-dark(#555b54,#b3b6ae);--sun:light-dark(#dfa317,#efbf48);
--add:light-dark(#1e5c40,#90d5af);--add-bg:light-dark(#e1f0e6,#193126);--del:light-dark(#972815,#ffa893);--del-bg:light-dark(#fae5e0,#3b201a);
--chg:light-dark(#6a4500,#f1cc7b);--chg-bg:light-dark(#fcf0ce,#392e12);--move:light-dark(#1a547c,#8ec5ed)}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI","Noto Sans",Arial,sans-serif}
main{max-width:76rem;margin:auto;padding:1.5rem clamp(1rem,2.5vw,2rem) 3rem}h1{font-size:1.75rem;line-height:1.2;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.0625rem;margin:2rem 0 .5rem}h3{font-size:.9375rem;margin:1.25rem 0 .5rem}p{margin:.25rem 0;color:var(--soft)}
code,td{font-variant-numeric:tabular-nums}code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.92em;overflow-wrap:anywhere}
.big{display:flex;flex-wrap:wrap;gap:.75rem 2.25rem;margin:1.25rem 0 0;padding:1rem 1.25rem}.big div{display:flex;flex-direction:column-reverse}
.big dd{margin:0;font-size:1.375rem;font-weight:600;line-height:1.25}.big dt{font-size:.8125rem;color:var(--soft)}
.card{background:var(--card);border:1px solid var(--rule);border-radius:6px}.pair{display:grid;gap:0 1.75rem;grid-template-columns:minmax(0,1fr)}
@media(min-width:62rem){.pair{grid-template-columns:minmax(0,1.1fr) minmax(0,1fr)}}.pair>:only-child{grid-column:1/-1}.scroll{overflow-x:auto}
.scroll:focus-visible{outline:2px solid var(--ink);outline-offset:2px}table{border-collapse:collapse;width:100%;font-size:.8125rem}
th,td{text-align:left;padding:.4rem .7rem;vertical-align:top;border-top:1px solid var(--rule)}thead th{background:var(--head);border-top:0;
color:var(--soft);font-weight:600;white-space:nowrap}tbody th{font-weight:500}td code{overflow-wrap:normal}
td{max-width:24rem;overflow-wrap:break-word}.c{min-width:8rem}.k{white-space:nowrap}.nums :is(th,td):not(:first-child){text-align:right;white-space:nowrap}.add .s,.add .k{background:var(--add-bg);color:var(--add)}.del .s,.del .k{background:var(--del-bg);color:var(--del)}
.mod .s,.c{background:var(--chg-bg)}.mod .s{color:var(--chg)}.s{width:1%;font-weight:700}
del{color:var(--del);text-decoration:none}ins{color:var(--add);text-decoration:none;font-weight:600}
figure{margin:0;overflow:hidden}figure>svg{display:block;width:100%;height:auto;background:var(--head)}figcaption{display:flex;flex-wrap:wrap;
gap:.25rem 1.1rem;padding:.5rem .75rem;border-top:1px solid var(--rule);font-size:.8125rem;color:var(--soft)}
figcaption span{display:inline-flex;align-items:center;gap:.4em}figcaption svg{width:16px;height:16px;flex:none}
svg text{font:12px system-ui,Arial,sans-serif;fill:var(--soft)}.g{stroke:var(--rule);fill:none}.ma{fill:var(--add);stroke:var(--card)}
.md{fill:var(--card);stroke:var(--del);stroke-width:2}.mc{fill:var(--sun);stroke:var(--ink)}.mm{fill:none;stroke:var(--move);stroke-width:1.8}
.mh{fill:var(--move)}.vh{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
footer{margin-top:2.5rem;padding-top:.75rem;border-top:1px solid var(--rule);font-size:.8125rem;color:var(--soft)}
@media print{body{background:#fff}.scroll{overflow:visible}}
"""
_HEAD = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
    ' content="width=device-width,initial-scale=1"><meta http-equiv="Content-Security-Policy"'
    " content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)
_KINDS = {"changed": ("mod", "±"), "removed": ("del", "−"), "added": ("add", "+")}
_KIND = '<span class="vh">Kind</span>'


def html(diff: Diff) -> str:
    """The whole page."""
    name = _e(f"{diff.a} → {diff.b}")
    picture, tables = draw(diff), [part for part in (_profile(diff), _columns(diff)) if part]
    pair = "".join(
        f"<div>{part}</div>" for part in ([picture, "".join(tables)] if picture else tables) if part
    )
    body = f'<h1>{name}</h1>{_summary(diff)}<div class="pair">{pair}</div>{_rows(diff)}'
    foot = (
        f"<footer>The same in a terminal: <code>kfm diff {_e(diff.a)} {_e(diff.b)}</code></footer>"
    )
    return f"{_HEAD}<title>{name}</title><style>{_CSS}</style></head>\n<body><main>{body}{foot}</main></body></html>\n"


def _e(value: object) -> str:
    """Whatever the data says, as text and nothing else."""
    return escape(shown(value), quote=True)


def _table(label: str, head: Iterable[str], rows: Iterable[str], style: str = "") -> str:
    columns = "".join(f'<th scope="col">{text}</th>' for text in head)
    return (
        f'<div class="scroll card" role="group" aria-label="{label}" tabindex="0"><table'
        f' class="{style}"><thead><tr>{columns}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _summary(diff: Diff) -> str:
    if diff.same:
        why = (
            "The files were only written anew: other bytes, the same rows and columns."
            if diff.reencoded
            else "Nothing differs."
        )
        return f"<p>{why} {diff.equal:,} rows are equal.</p>"
    facts = {
        "rows added": f"+ {diff.added:,}",
        "rows removed": f"− {diff.removed:,}",
        "rows changed": f"± {diff.changed:,}",
        "rows equal": f"{diff.equal:,}",
        "columns touched": f"{len(diff.touched)} of {diff.columns.common}",
    }
    facts |= {"geometries moved": f"{diff.moved:,}"} if diff.moved else {}
    facts |= (
        {"rows share a key, compared whole": f"{sum(diff.duplicates):,}"}
        if any(diff.duplicates)
        else {}
    )
    return (
        '<dl class="big card">'
        + "".join(f"<div><dt>{what}</dt><dd>{count}</dd></div>" for what, count in facts.items())
        + "</dl>"
    )


def _profile(diff: Diff) -> str:
    rows = [
        "<tr><th"
        f' scope="row">{_e(title(m))}</th><td>{_e(number(m, m.before))}</td><td>{_e(number(m, m.after))}</td>'
        f"<td>{_e(number(m, m.change, signed=True))}</td></tr>"
        for m in diff.shifts
    ]
    return (
        "<h2>In the profile</h2>"
        + _table("Profile", ("Measure", "Before", "After", "Change"), rows, "nums")
        if rows
        else ""
    )


def _columns(diff: Diff) -> str:
    rows = [
        f'{_sign(kind)}<th scope="row">{_e(n)}</th><td>{_e(what)}</td></tr>'
        for kind, n, what in diff.remarks
    ]
    return (
        "<h2>In the columns</h2>" + _table("Columns", (_KIND, "Column", "What changed"), rows)
        if rows
        else ""
    )


def _sign(kind: str) -> str:
    style, sign = _KINDS[kind]
    return f'<tr class="{style}"><td class="s">{sign}<span class="vh">{kind}</span></td>'


def _rows(diff: Diff) -> str:
    by = "matched by " + ", ".join(diff.key) if diff.keyed else "compared whole"
    found = (
        f"<h2>In the rows</h2><p>Rows are {_e(by)}; {len(diff.samples):,} of {diff.differences:,}"
        " differences are shown.</p>"
    )
    for kind in _KINDS:
        some = [c for c in diff.samples if c.kind == kind]
        if some:
            names = list(dict.fromkeys(n for c in some for n in c.cells))
            far = ["moved"] if any(c.moved_m is not None for c in some) else []
            head = [_KIND, *map(_e, (*some[0].key, *names)), *far]
            label = f"{kind.capitalize()} rows"
            found += (
                f"<h3>{label}</h3>{_table(label, head, (_row(c, names, bool(far)) for c in some))}"
            )
    return found if diff.samples else ""


def _row(change: Change, names: Sequence[str], far: bool) -> str:
    key = "".join(f'<td class="k"><code>{_e(v)}</code></td>' for v in change.key.values())
    moved = (
        f"<td>{'' if change.moved_m is None else f'{change.moved_m:,.0f} m'}</td>" if far else ""
    )
    return f"{_sign(change.kind)}{key}{''.join(_cell(change, n) for n in names)}{moved}</tr>"


def _cell(change: Change, name: str) -> str:
    if name not in change.cells:
        return '<td><span class="vh">equal</span></td>'
    old, new = map(_e, change.cells[name])
    return {"added": f"<td>{new}</td>", "removed": f"<td>{old}</td>"}.get(
        change.kind, f'<td class="c"><del>{old}</del> → <ins>{new}</ins></td>'
    )
