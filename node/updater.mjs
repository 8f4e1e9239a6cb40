export * from "../src/kfm/template/src/pipelines/updater/updater.mjs"
