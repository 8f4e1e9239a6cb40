"""The words: records, identities, canonical JSON, clock, errors, paths.

Everything here is plain data and pure functions; it knows no file, no database and no other room.
"""
