"""What of restricted data may be shown.

Door: `by_rule.py` releases a table by the registry's rules and keeps what stays sealed, `leak.py`
rebuilds the public side and looks whether anything withheld shows in it. What is public never
depends on what is withheld; what no rule shows stays sealed. Nothing here decides whether a
version becomes official, and nothing leaves a sealed table unsealed behind.
"""
