"""One transaction, and what can be done in it.

`base.Tx` holds the views, one for each noun; `sqlite` keeps the promise in a file, an extra keeps it
on a server. Nothing outside of a transaction is touched by it.
"""
