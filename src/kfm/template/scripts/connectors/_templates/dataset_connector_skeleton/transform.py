"""KFM Connector Runner: dataset_connector_skeleton/transform

Stage: transform
Purpose: make the canonical table of the capture: UTF-8, UTC, declared units and types
Inputs: the capture of the run; connector.py and mapping.yml
Outputs: a part in data/work/<dataset_id>/parts; transform_receipt.json
Zone writes:
- raw: no
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
    sys.exit(main("transform", __file__))
