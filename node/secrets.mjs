export * from "../src/kfm/template/src/pipelines/updater/secrets.mjs"
