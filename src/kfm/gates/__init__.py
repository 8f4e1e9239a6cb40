"""Gates: pure judges of evidence. No gates configured is a deny."""
