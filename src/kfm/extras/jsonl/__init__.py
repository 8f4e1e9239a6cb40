"""The store as lines of JSON, `ledger/ledger.jsonl`, for places where SQLite may not keep a file.

It promises what `store/base.py` promises: a transaction is one line, durable when it returns, read
whole or not at all. Queries are asked of tables in memory, which every process fills from the file.
It may not guess: only a line that was cut off at the very end is dropped, and that is kept aside.
"""
