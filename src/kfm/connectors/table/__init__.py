"""Rows become one table: typed, judged, told apart by key, written byte for byte the same.

And a table becomes the next: merged with a base, collected of parts, joined, measured. Nothing
here knows of connector code or of processes.
"""
