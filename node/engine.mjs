export * from "../src/kfm/template/src/pipelines/updater/engine.mjs"
