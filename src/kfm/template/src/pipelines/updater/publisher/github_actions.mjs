/**
 * The publisher for GitHub Actions: files go to the workspace's zones, facts become outputs of the step and words on the job's page.
 * Artifacts are uploaded by the engine, when a run ends there.
 * @module
 */

import { appendFileSync } from "node:fs"

import { dumps } from "../canonical.mjs"
import { new_run_id } from "../idempotency/keygen.mjs"
import { LocalPublisher } from "./local.mjs"

const HEAD = "| dataset | run | ended | took |\n|---|---|---|---|\n"

/** @param {string} dataset_id */
export const group_of = (dataset_id) => `pipelines-updater-${dataset_id}`

/** @extends {LocalPublisher} */
export class GithubActionsPublisher extends LocalPublisher {
  /**
   * @param {string} workspace
   * @param {{output?: string, summary?: string}} files
   */
  constructor(workspace, { output = process.env.GITHUB_OUTPUT, summary = process.env.GITHUB_STEP_SUMMARY } = {}) {
    super(workspace)
    this.output = output
    this.summary = summary
    this.ended = 0
  }

  /**
   * @param {string} name
   * @param {string} value
   */
  set_output(name, value) {
    const fence = `kfm_${new_run_id()}` // a value cannot contain what it does not know
    if (this.output) appendFileSync(this.output, `${name}<<${fence}\n${value}\n${fence}\n`)
  }

  /**
   * @param {string} [name]
   * @param {{[field: string]: unknown}} [payload]
   */
  emit_event(name = "", payload = {}) {
    this.set_output(name.replaceAll(".", "_"), dumps(payload))
    if (name !== "updater.run" || payload.dataset === undefined) return
    this.set_output("concurrency_group", group_of(String(payload.dataset)))
    const cells = ["dataset", "run_id", "idempotency_state", "duration_ms"].map((cell) => payload[cell] ?? "")
    if (this.summary) appendFileSync(this.summary, `${this.ended ? "" : HEAD}| ${cells.join(" | ")} ms |\n`)
    this.ended += 1
  }

  /**
   * @param {string} tag
   * @param {{[path: string]: string}} assets
   */
  publish_release(tag, assets) {
    const made = super.publish_release(tag, assets)
    this.set_output("release", tag)
    return made
  }
}
