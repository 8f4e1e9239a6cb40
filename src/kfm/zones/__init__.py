"""Named bytes that appear whole or not at all.

Whoever writes a file writes it here: durable when the call returns, never half. It knows nothing of
what the bytes mean.
"""
