"""KFM Connector Runner: dataset_connector_skeleton/promote

Stage: promote
Purpose: make a validated run official, when its approvals suffice
Inputs: the proposal of the run
Outputs: data/processed/<dataset_id>/<version_id>, DCAT, PROV and STAC in data/catalog; promote_receipt.json
Zone writes:
- raw: no
- work: yes
- processed: yes
Governance invariants:
- Processed is the only publishable truth
- Fail closed on missing licence, sensitivity, receipts, checksums or catalogs
- Receipts of a promotion: run_record, validation_report, run_manifest
- Catalogs: DCAT and PROV always, STAC when spatial
"""

import sys

from kfm.stages import main

if __name__ == "__main__":
    sys.exit(main("promote", __file__))
