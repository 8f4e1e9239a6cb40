export * from "../src/kfm/template/src/pipelines/updater/config.mjs"
