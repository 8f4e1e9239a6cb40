"""`python -m kfm` is the `kfm` command."""

import sys

from kfm.cli import main

if __name__ == "__main__":
    sys.exit(main())
