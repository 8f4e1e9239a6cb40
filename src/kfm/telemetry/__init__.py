"""What happened, told to machines: a line for every run that ended, what it is measured by, and
what it took.

Nothing here may delay or fail a run: lines are appended to a file of this machine, and sent on by a
process of its own. Decides nothing, and is never read to decide.
"""
