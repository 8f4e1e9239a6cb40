"""kfm keeps public-interest datasets fresh and can prove every byte it publishes."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

TYPE_CHECKING = False  # that of `typing`, which costs more to load than all of this
if TYPE_CHECKING:
    import os

    from kfm.data.workspace import Workspace

__all__ = ["__version__", "open"]

__version__ = "0.1.0"

_MOVED = {  # what workspaces and connector authors were shown -> where it lives
    "kfm.stages": "kfm.runners.stages",
    "kfm.publisher": "kfm.world.publisher",
    "kfm.publisher.base": "kfm.world.publisher.base",
    "kfm.publisher.github_actions": "kfm.world.publisher.github_actions",
    "kfm.publisher.noop": "kfm.world.publisher.noop",
    "kfm.secrets": "kfm.workspace.secrets",
    "kfm.errors": "kfm.model.errors",
    "kfm.canonical": "kfm.model.canonical",
    "kfm.connectors.kinds": "kfm.kinds",
    "kfm.connectors.kinds.base": "kfm.connectors.kind",
}


def open(
    folder: "str | os.PathLike[str] | None" = None, *, reader: str | None = None
) -> "Workspace":
    """Open a workspace to read its data: `kfm.open("demo").dataset("ks_earthquakes").latest()`.

    Without a folder it is that of KFM_WORKSPACE, or of the folder one is in. `reader` says who it
    is for: what needs a grant goes to who has one. Nothing is loaded before this is called.
    """
    from kfm.data.workspace import open_data

    return open_data(folder, reader=reader)


class _Moved:
    """Imports that were shown keep working; asked last, and only for what nothing else has
    found.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, _Moved()) if name in _MOVED else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        from importlib import import_module

        found = import_module(_MOVED[module.__name__])
        module.__dict__.update(
            {
                name: value
                for name, value in vars(found).items()
                if not name.startswith("__") or name == "__all__"
            }
        )
        module.__path__ = []

    @staticmethod
    def get_code(name: str) -> object:
        """`python -m` under the old name."""
        from importlib.util import find_spec

        found = find_spec(_MOVED[name])
        return found.loader.get_code(found.name) if found is not None else None  # type: ignore[union-attr]


sys.meta_path.append(_Moved)
