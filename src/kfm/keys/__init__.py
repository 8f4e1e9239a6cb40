"""Who may sign, and what is sealed.

Roots, enrolments, attestations, approvals, data keys and commitments. A key never leaves this room
in plain.
"""
