"""kfm beside its peers, measured in one run: `python -m benchmarks`."""
