"""What may leave of a private table: by rule, by cell, in groups of at least k; and the search for
what left all the same.

Nothing here decides whether it is published: `judge` does, by what is told here.
"""
