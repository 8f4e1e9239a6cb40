export * from "../src/kfm/template/src/pipelines/updater/canonical.mjs"
