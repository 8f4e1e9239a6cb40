"""Check the rules: that they can be read here, and their tests. Exit 0: all of it is well."""

import subprocess
import sys

for words in (("policy", "check"), ("policy", "test"),):
    if code := subprocess.run([sys.executable, "-m", "kfm", *words]).returncode:
        sys.exit(code)
