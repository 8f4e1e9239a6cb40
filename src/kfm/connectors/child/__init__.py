"""The process that strangers' data and connector code are confined to.

`process` is the parent's side, `inside` the child's, `perform` what it is asked for; `guard` is
what it takes from itself, `code`, `feed` and `hooks` what connector code is and is given.
"""
