"""The modules of pages as one plain script: a browser loads no module from a folder, and a copy has
to work there too.
"""

import re

from kfm.pages.static_files import FILES

__all__ = ["one_script"]

_ALWAYS = ("copy.mjs", "theme.mjs", "times.mjs", "grid.mjs", "keys.mjs", "kfm.mjs", "slider.mjs")
_ASKING = (
    "row.mjs",
    "table.mjs",
    "verify.mjs",
)  # they read files beside the page, which no folder allows
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.mjs";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_THEME = """\
const kept = /(?:^|; )kfm_theme=(light|dark)(?:;|$)/.exec(document.cookie);
if (kept) document.documentElement.dataset.theme = kept[1];
const inFolder = location.protocol === "file:", beside = document.currentScript.src;
"""
_MAP = """\
const asks = document.querySelector("[data-map], [data-rows], #verify-now");
if (inFolder && asks) document.getElementById("in-folder").hidden = false;
if (!inFolder && document.querySelector("[data-map]")) import(new URL("map.mjs", beside));
"""


def one_script() -> str:
    """All of them in their order, each in a scope of its own."""
    parts = ["// Made of the modules of pages; see map.mjs for the map.\n", _THEME]
    parts += [_scoped(name) for name in _ALWAYS]
    parts += ["if (!inFolder) {\n", *map(_scoped, _ASKING), "}\n", _MAP]
    return f"{{\n{''.join(parts)}}}\n"


def _scoped(name: str) -> str:
    text = FILES[name].read_text()
    offers = [found[1] for found in _EXPORT.finditer(text)]
    text = _IMPORT.sub(lambda found: f"const {{{found[1]}}} = of_{found[2]};", text)
    text = _EXPORT.sub("", text)
    own = f"of_{name.removesuffix('.mjs')}"
    return f"const {own} = (() => {{\n{text}return {{ {', '.join(offers)} }};\n}})();\n"
