export * from "../../src/kfm/template/src/pipelines/updater/idempotency/keygen.mjs"
