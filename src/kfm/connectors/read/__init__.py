"""Strangers' formats as rows: text, CSV, JSON, archives, geometry, reference systems, catalogues.

What is read is hostile until it is read: a reader holds no document, refuses by name and
types nothing. Nothing here knows of tables.
"""
