export * from "../../src/kfm/template/src/pipelines/updater/publisher/noop.mjs"
