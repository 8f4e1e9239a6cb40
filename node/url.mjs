export * from "../src/kfm/template/src/pipelines/updater/url.mjs"
