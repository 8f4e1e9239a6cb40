export * from "../src/kfm/template/src/pipelines/updater/run_log.mjs"
