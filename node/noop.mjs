export * from "../src/kfm/template/src/pipelines/updater/noop.mjs"
