"""Strangers' data becomes tables, in a child that can do nothing else.

`base` and `operations` say what is asked of it and answered, `kind` and `loading` what a kind of
source is. `read` makes rows of strangers' formats, `table` a table of rows, `release` what may
leave of a private one, `child` is the process all of it runs in. Nothing here knows of runs or
versions.
"""
