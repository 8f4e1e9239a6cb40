export * from "../../src/kfm/template/src/pipelines/updater/publisher/github_actions.mjs"
