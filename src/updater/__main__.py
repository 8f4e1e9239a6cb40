"""`python -m updater run --config F [--dry-run --window --verbose --force]`."""

import sys

from kfm.cli.updater import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
