"""A story as one HTML page that asks nobody for anything: no script, no font, no picture from
elsewhere.
"""

from collections.abc import Iterable
from html import escape

from kfm.diff.base import plain
from kfm.story.figure import figure
from kfm.story.node import Proof, Section, Sentence, Story
from kfm.story.words import when

__all__ = ["html"]

_CSS = """
:root{color-scheme:light dark;--paper:light-dark(#fbfaf6,#14181a);--surface:light-dark(#fff,#1b2022);--sunk:light-dark(#f3f1ea,#101315);
--line:light-dark(#dfdbd0,#333a3d);--line-strong:light-dark(#857f70,#818b8d);--ink:light-dark(#1e2320,#e9e7e0);--ink-2:light-dark(#4b524c,#bcbeb6);
--ink-3:light-dark(#656a62,#9da199);--link:light-dark(#1b567f,#8fc6ee);--sun:light-dark(#e3a81c,#f0c14b);--focus:light-dark(#1e2320,#fff3c9);
--plum:light-dark(#5d3a78,#9a76c0);--label:light-dark(#5d3a78,#d0b0ea);--new:light-dark(#2a6549,#86cda6);--new-bg:light-dark(#b7d8c4,#26573f);
--new-fg:light-dark(#14462d,#cdf2de);--sans:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Noto Sans","Liberation Sans",Arial,sans-serif;
--mono:ui-monospace,SFMono-Regular,"SF Mono",Menlo,Consolas,"Liberation Mono",monospace}
*,*::before,*::after{box-sizing:border-box}html{-webkit-text-size-adjust:100%;scroll-padding-top:1.5rem}
body{margin:0;background:var(--paper);color:var(--ink);font:.9375rem/1.5 var(--sans);overflow-wrap:break-word}
h1,h2,p,ul,ol,figure{margin:0;padding:0}h1{font-size:1.75rem;line-height:1.15;font-weight:650;letter-spacing:-.015em;text-wrap:balance}
h2{font-size:1.0625rem;line-height:1.3;font-weight:650}a{color:var(--link);text-decoration-thickness:1px;text-underline-offset:.18em}
code{font-family:var(--mono);font-size:.92em;font-variant-ligatures:none}svg{display:block}
:focus-visible{outline:2px solid var(--focus);outline-offset:2px;border-radius:2px}
.skip{position:absolute;left:-999rem;top:0;background:var(--surface);padding:.5rem 1rem}.skip:focus{left:.5rem;top:.5rem}
.vh{position:absolute;width:1px;height:1px;margin:-1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.wrap{max-width:80rem;margin-inline:auto;padding-inline:clamp(1rem,2.2vw,1.5rem)}main.wrap{padding-block:1.5rem 2rem}
.top{background:var(--surface);border-bottom:1px solid var(--line)}.top .wrap{display:flex;align-items:center;min-height:3.25rem;gap:.5rem}
.brand{display:inline-flex;align-items:center;gap:.5rem;font-weight:700}.brand svg{width:22px;height:22px}.brand rect{fill:var(--ink-3);opacity:.5}
.brand .flower{fill:var(--sun);opacity:1}.brand small{font-weight:400;color:var(--ink-3);font-size:.8125rem}
.head{margin-bottom:1.5rem}.lede{color:var(--ink-2);max-width:46rem;margin-top:.5rem}
.facts{display:flex;flex-wrap:wrap;gap:.25rem 1rem;align-items:center;font-size:.8125rem;color:var(--ink-2);margin-top:.5rem}
.state{display:inline-flex;align-items:center;gap:.45em;font-weight:500;color:var(--new)}
.g{width:18px;height:18px;border-radius:3px;background:var(--new-bg);color:var(--new-fg);display:inline-grid;place-items:center}
.g path{fill:none;stroke:currentColor;stroke-width:2;stroke-linecap:round;stroke-linejoin:round}
.chip{border:1px solid var(--line-strong);border-radius:3px;padding:.05rem .45rem;font-size:.75rem;line-height:1.55;background:var(--surface)}
.chip.label{border-color:var(--label);color:var(--label);font-weight:600}.chip.public{border-color:var(--new);color:var(--new);font-weight:600}
.two{display:grid;gap:2rem;grid-template-columns:minmax(0,1fr)}.two>*{min-width:0}
@media(min-width:62rem){.two{grid-template-columns:minmax(0,43rem) 23rem;gap:3rem;justify-content:start}}
.story{max-width:43rem;font-size:1.0625rem;line-height:1.65}.story>*+*{margin-top:1rem}.story section>*+*{margin-top:.6rem}
.story section+section{margin-top:2rem}.story h2{font-size:1.3125rem}.when{font-size:.8125rem;color:var(--ink-3);display:block;font-weight:400}
.story ul{list-style:none}.story li{padding-left:1.1rem;position:relative}.story li+li{margin-top:.3rem}
.story li::before{content:"";position:absolute;left:.1rem;top:.7em;width:.35rem;height:.35rem;border-radius:1px;background:var(--line-strong)}
.ref{font-size:.75em;line-height:0;vertical-align:.35em;margin-left:1px;text-decoration:none;font-weight:650;padding:.3em .15em}
.cmd{background:var(--sunk);border:1px solid var(--line);border-radius:5px;padding:.4rem .65rem;font-size:.8125rem;line-height:1.55}
.cmd code{overflow-wrap:anywhere;user-select:all}.cmd code::before{content:"$ ";color:var(--ink-3)}.cmd+.cmd{margin-top:.4rem}
.card{background:var(--surface);border:1px solid var(--line);border-radius:5px;padding:1rem}.card>h2{margin-bottom:.5rem}.card>p{font-size:.8125rem;color:var(--ink-2)}
.evidence{list-style:none;margin-top:.5rem}.evidence>li{border-top:1px solid var(--line);padding:.75rem 0;font-size:.8125rem;display:grid;grid-template-columns:2rem minmax(0,1fr)}
.evidence>li:target{background:color-mix(in srgb,var(--sun) 16%,transparent)}.evidence b{color:var(--link)}.evidence code{overflow-wrap:anywhere;font-size:.75rem}
.quiet{color:var(--ink-3)}.figure{border:1px solid var(--line);border-radius:5px;background:var(--surface)}.figure .pair{display:grid;grid-template-columns:1fr 1fr}
.figure svg{width:100%;height:auto}.figure .pair>*+*{border-left:1px solid var(--line)}.figure figcaption{font-size:.8125rem;color:var(--ink-2);padding:.5rem .75rem;border-top:1px solid var(--line);line-height:1.5}
.dot{fill:var(--plum)}.cell{fill:none;stroke:var(--line-strong)}.cell.on{fill:color-mix(in srgb,var(--plum) 48%,var(--surface))}
.twin{border-top:1px solid var(--line);background:var(--surface);font-size:.8125rem;color:var(--ink-2)}
.twin .wrap{display:flex;flex-wrap:wrap;gap:.5rem 1.5rem;padding-block:.75rem;align-items:center}.twin code{overflow-wrap:anywhere}
@media print{:root{color-scheme:light}body{background:#fff;font-size:10.5pt}.top,.skip{display:none}.two{display:block}aside{margin-top:2rem}}
"""
_HEAD = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
    ' content="width=device-width,initial-scale=1"><meta http-equiv="Content-Security-Policy"'
    " content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
    '<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns=\'http://www.w3.org/2000/svg\''
    " viewBox='0 0 3 3'%3E%3Crect width='3' height='3' fill='%23857f70'/%3E%3Crect x='1' y='1'"
    " width='1' height='1' fill='%23e3a81c'/%3E%3C/svg%3E\">"
)
_SQUARES = "".join(
    f'<rect{" class=flower" if (x, y) == (16, 8) else ""} x="{x}" y="{y}" width="6" height="6" rx="1"/>'
    for y in (0, 8, 16)
    for x in (0, 8, 16)
)
_BRAND = (
    f'<header class="top"><div class="wrap"><span class="brand"><svg viewBox="0 0 22 22"'
    f' aria-hidden="true">{_SQUARES}</svg>kfm <small>Kansas Frontier Matrix</small></span></div></header>'
)
_TICK = '<span class="g"><svg viewBox="0 0 18 18" width="18" height="18" aria-hidden="true"><path d="m4.5 9.5 3 3 6-7"/></svg></span>'


def html(story: Story) -> str:
    """The whole page."""
    title = f"How this layer was produced: {_e(story.title)}, generation {story.generation}"
    body = (
        f'<a class="skip" href="#main">Skip to content</a>{_BRAND}<main class="wrap" id="main">'
        f'{_head(story)}<div class="two"><article class="story">{_article(story)}</article>'
        f"{_aside(story)}</div></main>{_foot(story)}"
    )
    return (
        f"{_HEAD}<title>{title}</title><style>{_CSS}</style></head>\n<body>{body}</body></html>\n"
    )


def _e(value: object) -> str:
    """Whatever the data says, as text and nothing else."""
    return escape(plain(str(value)), quote=True)


def _head(story: Story) -> str:
    label = story.governance.sensitivity or "no label"
    style = "public" if label == "public" else "label"
    words = sum(len(one.text.split()) for section in story.sections for one in section.sentences)
    minutes = max(1, round(words / 200))
    return (
        '<div class="head"><h1>How this layer was produced</h1><p class="lede">'
        f"{_e(story.title)}, generation {story.generation}. Written from the records of what was done;"
        ' each number below names a file that shows it.</p><p class="facts">'
        f'<span class="state">{_TICK}Signed, digests compared</span>'
        f"<span>official since {_time(story.produced.official_at)}</span>"
        f'<span class="chip {style}">{_e(label)}</span>'
        f'<span class="chip">{_e(story.governance.licence)}</span>'
        f"<span>{minutes} minute{'' if minutes == 1 else 's'} to read</span></p></div>"
    )


def _time(moment: str | None) -> str:
    return (
        f'<time datetime="{_e(moment)}">{_e(when(moment))}</time>' if moment else "an unknown time"
    )


def _article(story: Story) -> str:
    cited = set[int]()
    return "".join(_section(section, story, cited) for section in story.sections)


def _section(section: Section, story: Story, cited: set[int]) -> str:
    moment = f'<span class="when">{_e(section.when)}</span>' if section.when else ""
    told = [_sentence(one, cited) for one in section.sentences]
    body = (
        f"<ul>{''.join(f'<li>{one}</li>' for one in told)}</ul>"
        if section.listed
        else f"<p>{' '.join(told)}</p>"
    )
    commands = "".join(f'<div class="cmd"><code>{_e(c)}</code></div>' for c in section.commands)
    drawn = ""
    if section.id == "summary" and story.governance.h3_resolution is not None:
        drawn = figure(story.governance.min_records or 1)
    return (
        f'<section aria-labelledby="h-{section.id}"><h2 id="h-{section.id}">{moment}'
        f"{_e(section.title)}</h2>{body}{drawn}{commands}</section>"
    )


def _sentence(one: Sentence, cited: set[int]) -> str:
    return f"{_e(one.text)}&#8288;{''.join(_ref(n, cited) for n in one.evidence)}"


def _ref(number: int, cited: set[int]) -> str:
    """A link to a file; where it is cited first, the file links back."""
    first = "" if number in cited else f' id="r{number}"'
    cited.add(number)
    return f'<a class="ref" href="#e{number}"{first} aria-label="Evidence {number}">[{number}]</a>'


def _aside(story: Story) -> str:
    cited = {n for section in story.sections for one in section.sentences for n in one.evidence}
    listed = "".join(_proof(proof, proof.n in cited) for proof in story.evidence)
    return (
        '<aside aria-label="Evidence"><section class="card"><h2>Evidence</h2><p>Files below the'
        " workspace. Whoever doubts a sentence opens its file and computes the digest.</p>"
        f'<ol class="evidence">{listed}</ol></section></aside>'
    )


def _proof(proof: Proof, cited: bool) -> str:
    what = f'<a href="#r{proof.n}">{_e(proof.what)}</a>' if cited else _e(proof.what)
    by = (
        f'; its digest is named by <a href="#e{proof.named_by}">{proof.named_by}</a>'
        if proof.named_by is not None
        else ""
    )
    return (
        f'<li id="e{proof.n}"><b>{proof.n}</b><span>{what}<br><span class="quiet">{_e(proof.shows)}{by}'
        f"</span><br><code>{_e(proof.path)}</code><br><code>{_e(proof.digest)}</code></span></li>"
    )


def _foot(story: Story) -> str:
    ref = f"{story.dataset_id}@{story.generation}"
    parts: Iterable[str] = (
        f"<span>Permanent address <code>{_e(story.node_id)}</code></span>",
        f"<span>As JSON <code>kfm story {_e(ref)} --format json</code></span>",
        f"<span>In a terminal <code>kfm story {_e(ref)}</code></span>",
    )
    return f'<footer class="twin"><div class="wrap">{"".join(parts)}</div></footer>'
