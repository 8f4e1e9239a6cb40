export * from "../src/kfm/template/src/pipelines/updater/did_you_mean.mjs"
