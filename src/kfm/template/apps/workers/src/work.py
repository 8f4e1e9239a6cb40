"""`python apps/workers/src/work.py run --concurrency=4` is `python -m workers run --concurrency=4`; workers
themselves are part of the installed package.
"""

import sys

from kfm.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["worker", *sys.argv[1:]]))
