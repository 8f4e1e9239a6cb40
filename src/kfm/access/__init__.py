"""What somebody may have of what is there, and is told of it.

Door: `boundary.py`, which every way out asks; `references.py` says which version a name means,
`status.py` how a dataset stands. A name is resolved through the channel, never through what happens
to lie around; labels, licence, approvals and rules are those of now. Nothing here changes anything.
"""
