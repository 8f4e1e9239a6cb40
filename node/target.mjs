export * from "../src/kfm/template/src/pipelines/updater/target.mjs"
