"""The engine: look, claim, part, assemble, promote.

One file for each arrow of the walk (docs/architecture.md). Every `yield` stands between two durable
operations.
"""
