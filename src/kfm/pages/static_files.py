"""The files that pages are made with: style sheet, modules, the map library. A fixed list, each
known by its bytes.
"""

from pathlib import Path
from typing import Annotated, Any

from litestar import Response, get
from litestar.exceptions import NotFoundException

from kfm.reader.kinds import OPTIONS, TEXT, Answers, part
from kfm.reader.route import PROBLEMS

__all__ = ["FILES", "static"]

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".txt": "text/plain"}
_TYPES |= dict.fromkeys((".mjs", ".js"), "text/javascript")
# name -> the file; what is not here is not handed out
FILES = {
    path.relative_to(_FOLDER).as_posix(): path
    for path in sorted(_FOLDER.rglob("*"))
    if path.suffix in _TYPES
}


@get(
    "/static/{name:path}",
    sync_to_thread=True,
    responses=PROBLEMS,
    opt={OPTIONS: Answers(kinds=dict.fromkeys(sorted({*_TYPES.values()}), TEXT), alone=True)},
)
def static(name: Annotated[Path, part("name")]) -> Response[Any]:
    """One of the files of pages."""
    path = FILES.get(str(name).removeprefix("/"))
    if path is None:
        raise NotFoundException
    return Response(path.read_bytes(), media_type=_TYPES[path.suffix])
