"""The data from Python: `kfm.open(FOLDER)` gives a workspace, a dataset of it, a version of that.

A face: it asks and shows, it decides nothing. Every read passes `access/boundary.py` at the moment
it is made, under the labels, the licence and the rules of then; nothing is kept open in between.
"""

from kfm.data.dataset import Dataset
from kfm.data.version import Checked, Version
from kfm.data.workspace import Run, Workspace, open_data

__all__ = ["Checked", "Dataset", "Run", "Version", "Workspace", "open_data"]
