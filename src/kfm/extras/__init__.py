"""What needs more than the core: each part loads its libraries itself and names the extra that
brings them.
"""
