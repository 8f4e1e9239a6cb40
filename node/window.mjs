export * from "../src/kfm/template/src/pipelines/updater/window.mjs"
