"""Check the documents of this workspace: every link leads somewhere, every head is filled in."""

import sys
from pathlib import Path

from kfm.upkeep.documents import main

sys.exit(main([str(Path(__file__).parents[1])]))
