"""Questions about lineage: what something comes from, what comes from it, and by which way.

Answers come from the index alone, and only what the boundary lets the reader know of is in them:
what is hidden is left out before anything is counted.
It decides nothing and writes nothing.
"""
