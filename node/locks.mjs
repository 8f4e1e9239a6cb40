export * from "../src/kfm/template/src/pipelines/updater/locks.mjs"
