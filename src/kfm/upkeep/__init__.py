"""Keep it whole: verify, mend, rebuild, remove, erase, and say how things are."""
