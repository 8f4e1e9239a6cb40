"""KFM Connector Runner: dataset_connector_skeleton/validate

Stage: validate
Purpose: judge the candidate by every gate: schema, geo, time, licence, policy
Inputs: the capture or the part of the run
Outputs: validation_report.json, run_record.json, run_manifest.json; validate_receipt.json
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
    sys.exit(main("validate", __file__))
