export * from "../src/kfm/template/src/pipelines/updater/errors.mjs"
