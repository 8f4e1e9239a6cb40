"""When a dataset is due."""
