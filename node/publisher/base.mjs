export * from "../../src/kfm/template/src/pipelines/updater/publisher/base.mjs"
