export * from "../../src/kfm/template/src/pipelines/updater/scheduler/webhook_validator.mjs"
