"""`python -m workers run --concurrency=4` and `python -m workers run-job TYPE --dataset
kfm://dataset/<id>`.
"""

import sys

from kfm.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["worker", *sys.argv[1:]]))
