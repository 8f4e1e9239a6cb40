"""What a run stands on: the back ends of one workspace, what is to be brought up to date, how it
ended.

Seams are named here and made in `workspace`; whoever needs one or two of them takes those.
"""
