"""diff: what exactly changed between two versions, counted over all rows and shown on some."""
