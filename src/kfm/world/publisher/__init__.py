"""Where files of a run are written to, and who is told."""
