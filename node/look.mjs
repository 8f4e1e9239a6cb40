export * from "../src/kfm/template/src/pipelines/updater/look.mjs"
