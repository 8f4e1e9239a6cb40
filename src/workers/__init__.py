"""`python -m workers`: the workers' own entry point."""
