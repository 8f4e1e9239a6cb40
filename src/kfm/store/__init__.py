"""One transaction, and what can be done in it.

`base.Tx` holds the views, one for each noun; `sqlite` and `postgres` keep the same promise. Nothing
outside of a transaction is touched by it.
"""
