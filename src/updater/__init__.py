"""The documented name of kfm's updater: `python -m updater run --config F`."""
