"""KFM Connector Runner: dataset_connector_skeleton/backfill

Stage: backfill
Purpose: run a past window in batches, oldest first; a restart skips what is done
Inputs: --since and --until; upstream, at the pace it allows
Outputs: one run per batch with all its receipts; data/work/<dataset_id>/backfills/<backfill_id>.json
Zone writes:
- raw: yes
- work: yes
- processed: only by the promote step of each run
Governance invariants:
- Processed is the only publishable truth
- Fail closed on missing licence, sensitivity, receipts, checksums or catalogs
- Receipts of a promotion: run_record, validation_report, run_manifest
- Catalogs: DCAT and PROV always, STAC when spatial
"""

import sys

from kfm.stages import main

if __name__ == "__main__":
    sys.exit(main("backfill", __file__))
