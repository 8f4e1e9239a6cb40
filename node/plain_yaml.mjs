export * from "../src/kfm/template/src/pipelines/updater/plain_yaml.mjs"
