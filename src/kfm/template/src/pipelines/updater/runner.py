"""The dispatcher behind `python -m updater`: everything it does lives in the installed package."""

import sys

from updater.__main__ import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
