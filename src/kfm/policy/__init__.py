"""Rules asked as code, embedded or by OPA.

A rule that is missing, broken, slow or odd denies.
"""
