/**
 * The four artifacts of a run: structured log, event stream, idempotency state, publisher trace.
 * @module
 */

import { appendFileSync, lstatSync, mkdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs"
import { homedir } from "node:os"
import { join, relative } from "node:path"

import { new_run_id } from "./idempotency/keygen.mjs"

/** A moment as RFC 3339 in UTC, with a fraction only when there is one. */
export const now = () => new Date().toISOString().replace(/\.000Z$/, "Z").replace(/\.(\d{3})Z$/, ".$1000Z")

/**
 * A text, which may be JSON, with a name for a folder of this machine; a longer name stays, and so does a folder of one word inside a path that is
 * not of this machine.
 * @param {string} text
 * @param {string} place
 * @param {string} name
 */
export function renamed(text, place, name) {
  const before = place.split("/").length > 2 ? "" : "(?:(?<=\\\\[nrt])|(?<![\\p{L}\\p{N}_.~-]))"
  const plain = place.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")
  return text.replace(new RegExp(`${before}${plain}(?![\\p{L}\\p{N}_-])`, "gu"), () => name)
}

/** Writes JSON lines into the run's folder, and says them aloud where somebody listens. */
export class RunLog {
  /**
   * @param {string} workspace
   * @param {string} dataset_id
   * @param {{dry_run: boolean, verbose: boolean, run_id?: string, folder?: string}} how
   */
  constructor(workspace, dataset_id, { dry_run, verbose, run_id = new_run_id(), folder }) {
    this.dataset_id = dataset_id
    this.run_id = run_id
    this.verbose = verbose
    this.marks = dry_run ? { dry_run: true } : {}
    this.view = dry_run || folder ? null : join(workspace, "artifacts")
    this.folder = folder ?? join(workspace, "data/work", dataset_id, "runs", run_id, "artifacts")
    this.private = [[workspace, "<workspace>"], ...(homedir() === "/" ? [] : [[homedir(), "~"]])]
    /** @type {{[file: string]: string}} */
    this.waiting = {}
    this.seq = 0
  }

  /**
   * What may be written down: no personal data, no machine path, no secret.
   * @param {string} text
   */
  mask(text) {
    for (const [place, name] of this.private) text = renamed(text, place, name)
    return text
      .replace(/[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+/g, "<e-mail>")
      .replace(/\b(bearer|token|api[_-]?key|secret|password)([=:\s]+)(?!\*)[^\s"',;&]{6,}/gi, "$1$2***")
  }

  /**
   * @param {string} file
   * @param {object} line
   */
  write(file, line) {
    this.waiting[file] = (this.waiting[file] ?? "") + this.mask(JSON.stringify({ run_id: this.run_id, ...line })) + "\n"
  }

  /**
   * @param {string} event
   * @param {string} stage
   * @param {{[field: string]: unknown}} fields
   */
  say(event, stage, fields) {
    const ts = now()
    this.write("run.jsonl", { ts, level: "info", event, stage, dataset_id: this.dataset_id, ...fields, ...this.marks })
    if (!this.verbose) return
    const facts = Object.entries({ ...fields, ...this.marks }).filter(([, v]) => v !== null && v !== "" && !(Array.isArray(v) && !v.length))
    const told = facts.map(([k, v]) => `${k}=${v === true ? "True" : v === false ? "False" : v}`).join(" ")
    process.stderr.write(`${ts.slice(11, 19)} ${this.dataset_id.padEnd(20)} ${event.padEnd(22)} ${told}\n`)
  }

  /**
   * @param {string} name
   * @param {object} payload
   */
  event(name, payload) {
    const line = { event_id: new_run_id(), name, ts: now(), ...payload, ...this.marks }
    this.write("event_log.jsonl", line)
    return line
  }

  /** @param {object} call */
  trace(call) {
    this.seq += 1
    this.write("publisher_trace.jsonl", { seq: this.seq, ts: now(), ...call })
  }

  /**
   * Telemetry, then the ledger's last word, then the key and what became of it; all of it appears at the end of a run.
   * @param {import("./publisher/base.mjs").Publisher} publisher
   * @param {{[field: string]: any}} state
   * @param {{source_id: string, reason: string, took_ms: number, fields: object}} how
   */
  close(publisher, state, { source_id, reason, took_ms, fields }) {
    const payload = { duration_ms: took_ms, dataset: this.dataset_id, source_id, trigger: "manual", idempotency_state: state.state, artifact_count: 0 }
    const event = this.event("updater.run", payload)
    publisher.emit_event("updater.run", { run_id: this.run_id, ...event })
    this.say("telemetry.emitted", "telemetry", { event_id: event.event_id })
    this.say("run.ended", "ledger", { state: state.state, reason, duration_ms: took_ms, ...fields })
    mkdirSync(this.folder, { recursive: true })
    for (const [file, text] of Object.entries(this.waiting)) appendFileSync(join(this.folder, file), text, { flush: true })
    const text = this.mask(JSON.stringify({ ...state, ...this.marks }, null, 2)) + "\n"
    writeFileSync(join(this.folder, ".idempotency.json.tmp"), text, { flush: true })
    renameSync(join(this.folder, ".idempotency.json.tmp"), join(this.folder, "idempotency.json"))
    this.waiting = {}
    this.show()
  }

  /** `artifacts` of the workspace leads to those of the newest run; what is no link of ours stays, and no run depends on it. */
  show() {
    if (!this.view) return
    const beside = join(this.folder, ".artifacts.tmp")
    try {
      const there = lstatSync(this.view, { throwIfNoEntry: false })
      if (there && !there.isSymbolicLink()) return
      symlinkSync(relative(join(this.view, ".."), this.folder), beside)
      renameSync(beside, this.view)
    } catch {
      // a folder that nobody may write to
    }
  }
}
