"""One store: the ledger and journals of runs, leases, jobs, and what is indexed from evidence."""
