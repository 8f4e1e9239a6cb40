"""What a person does to what is official, or is to be: approve, reject, withdraw, roll back.

Door: `approve.py`, `withdraw.py`, `rollback.py`, `reconsider.py`; a generation is appended through
`append_act.py` alone. An act is durable before it is official, whoever comes next finishes it, and every
version stays where it is. Nothing here makes a version from upstream or removes a byte: that is
`run/` and `upkeep/`.
"""
