"""Libraries that only some readers want: each is loaded when it is asked for, and one that is
missing is named with what installs it.
"""

from importlib import import_module
from typing import Any

from kfm.model import MissingExtra

__all__ = ["library"]

_INSTALL = {"pyarrow": "pip install 'kfm[geo]'"}


def library(name: str, purpose: str) -> Any:
    """A module that may not be installed. Raises `MissingExtra`."""
    top = name.partition(".")[0]
    try:
        return import_module(name)
    except ImportError as error:
        missing = (error.name or top).partition(".")[0]
        also = f" needs {missing}, which" if missing != top else ""
        raise MissingExtra(
            f"{top}{also} is not installed.",
            expected=f"what {purpose}",
            remedy=f"Run `{_INSTALL.get(missing, f'pip install {missing}')}`.",
        ) from error
