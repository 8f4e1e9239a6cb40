export * from "../../src/kfm/template/src/pipelines/updater/publisher/local.mjs"
