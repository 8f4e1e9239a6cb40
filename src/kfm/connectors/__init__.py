"""Strangers' data becomes tables, in a child that can do nothing else.

`process` is the parent's side, `child` the other; between them go jobs and results, and files by
path. Nothing here knows of runs or versions.
"""
