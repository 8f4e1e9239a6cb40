export * from "../src/kfm/template/src/pipelines/updater/runner.mjs"
