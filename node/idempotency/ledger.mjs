export * from "../../src/kfm/template/src/pipelines/updater/idempotency/ledger.mjs"
