"""When data is asked for: cadences, windows, revisits, and the scheduler that puts the jobs."""
