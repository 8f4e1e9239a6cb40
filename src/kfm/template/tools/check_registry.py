"""Check registry, schedules and plans against their schemas. Exit 0: all of it is well."""

import subprocess
import sys

for words in (("dataset", "check"), ("schedule", "list"),):
    if code := subprocess.run([sys.executable, "-m", "kfm", *words]).returncode:
        sys.exit(code)
