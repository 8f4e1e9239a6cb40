#!/bin/sh
# Works the table until it is stopped, from wherever it is called. A convenience: `python -m workers run` does the same.
cd "$(dirname "$0")/../../.." && exec python -m workers run "$@"
