"""KFM Connector Runner: dataset_connector_skeleton/ingest

Stage: ingest
Purpose: look at upstream and keep what it has, byte for byte
Inputs: data/registry/<dataset_id>.yml; upstream, through the governed fetcher
Outputs: data/raw/<dataset_id>/manifest.yml, checksums.sha256 and the capture; ingest_receipt.json
Zone writes:
- raw: yes
- work: yes
- processed: no
Governance invariants:
- Processed is the only publishable truth
- Fail closed on missing licence, sensitivity, receipts, checksums or catalogs
- Receipts of a promotion: run_record, validation_report, run_manifest
- Catalogs: DCAT and PROV always, STAC when spatial
"""

import sys

from kfm.stages import main

if __name__ == "__main__":
    sys.exit(main("ingest", __file__))
