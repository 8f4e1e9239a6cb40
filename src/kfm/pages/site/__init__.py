"""A static copy of what anybody may see of datasets: `kfm export site`.

Every file of it is an answer of the reader to nobody in particular, decided by the same boundary and
written down in the same log; only its links are turned into relative ones. Doors: `copy.py`
(everything that goes in), `put.py` (whole or not at all).
"""
