/**
 * `node updater.mjs run --config F [--dry-run --window --verbose --force]`: the updater's own command line, as the engine's.
 *
 * What Node does itself: it looks at upstream, makes the key, decides in the shared ledger, and when nothing changed writes that down with
 * the run's four artifacts. A change, and everything that is not plainly at rest, goes to the engine with the same words.
 * @module
 */

import { mkdtempSync } from "node:fs"
import { tmpdir } from "node:os"
import { basename, dirname, join, resolve } from "node:path"

import { load_config } from "./config.mjs"
import { find_engine, hand_over } from "./engine.mjs"
import { KfmError, Left, usage } from "./errors.mjs"
import { digest, run_key, spec_hash } from "./idempotency/keygen.mjs"
import { open_ledger } from "./idempotency/ledger.mjs"
import { ask } from "./look.mjs"
import { folder_of, keep_noop, standing } from "./noop.mjs"
import { TracePublisher } from "./publisher/base.mjs"
import { LocalPublisher } from "./publisher/local.mjs"
import { NoopPublisher } from "./publisher/noop.mjs"
import { RunLog } from "./run_log.mjs"
import { canonical_url, find_workspace, target_of, without_window } from "./target.mjs"

/**
 * @typedef {{config: string, dry_run: boolean, window: string | null, verbose: boolean, force: boolean, json: boolean}} Args
 * @typedef {{[field: string]: any}} Outcome
 */

const HELP = `usage: updater [-h] {run} ...

Run one configured update.

positional arguments:
  {run}

options:
  -h, --help  show this help message and exit
`
const RUN_HELP = `usage: updater run [-h] --config CONFIG [--dry-run] [--window WINDOW]
                   [--verbose] [--force] [--json]

Fetch, validate, transform, publish, record; or say that nothing changed.

options:
  -h, --help            show this help message and exit
  --config CONFIG       YAML or JSON
  --dry-run, --dry_run  disable every mutating side effect
  --window WINDOW       look-back period for incremental sources, such as 7d
  --verbose             human-readable log lines beside the JSON lines
  --force               override idempotency, for debugging
  --json                print the result as JSON
`

/**
 * @param {string[]} words
 * @returns {Promise<number>}
 */
export async function main(words) {
  const as_json = words.includes("--json")
  try {
    if (["-h", "--help"].includes(words[0])) return show(HELP)
    const args = parsed(words)
    return args === null ? show(RUN_HELP) : await run(args, words)
  } catch (error) {
    if (!(error instanceof KfmError)) throw error
    return fail(error, as_json)
  }
}

/** @param {string} text */
function show(text) {
  process.stdout.write(text)
  return 0
}

/**
 * @param {KfmError} error
 * @param {boolean} as_json
 */
function fail(error, as_json) {
  const { happened, expected, remedy, exit_code } = error
  process.stderr.write([`✕ ${happened}`, expected && `  expected  ${expected}`, remedy && `  next      ${remedy}`].filter(Boolean).join("\n") + "\n")
  if (as_json) process.stdout.write(JSON.stringify({ error: error.name, happened, expected, remedy, exit_code }, null, 2) + "\n")
  return exit_code
}

/**
 * The words of a command line; null: help is wanted.
 * @param {string[]} words
 * @returns {Args | null}
 */
export function parsed(words) {
  const takes = "`updater --help` shows what it takes."
  if (!words.length) throw usage("Command is missing.", "other arguments", takes)
  if (words[0] !== "run") throw usage(`Command: invalid choice: '${words[0]}' (choose from 'run').`, "other arguments", takes)
  /** @type {Args} */
  const args = { config: "", dry_run: false, window: null, verbose: false, force: false, json: false }
  const rest = words.slice(1)
  /** @type {string[]} */
  const unknown = []
  while (rest.length) {
    const [flag, given] = /** @type {string} */ (rest.shift()).split(/=(.*)/s)
    if (flag === "-h" || flag === "--help") return null
    if (flag === "--config" || flag === "--window") {
      const value = given ?? rest.shift()
      if (value === undefined || (given === undefined && value.startsWith("--"))) throw usage(`${flag}: expected one argument.`, "other arguments", "`updater run --help` shows what it takes.")
      args[/** @type {"config" | "window"} */ (flag.slice(2))] = value
    } else if (["--dry-run", "--dry_run"].includes(flag)) args.dry_run = true
    else if (["--verbose", "--force", "--json"].includes(flag)) args[/** @type {"verbose" | "force" | "json"} */ (flag.slice(2))] = true
    else unknown.push(flag)
  }
  if (!args.config) throw usage("--config is missing.", "other arguments", "`updater run --help` shows what it takes.")
  if (unknown.length) throw usage(`\`updater\` has no ${unknown[0]}.`, "other arguments", takes)
  return args
}

/**
 * @param {Args} args
 * @param {string[]} words
 */
async function run(args, words) {
  const began = Date.now()
  /** @type {Left} */
  let why
  try {
    return tell(await unchanged(args, began), args, began)
  } catch (error) {
    if (!(error instanceof Left)) throw error
    why = error
  }
  const engine = find_engine([dirname(resolve(args.config)), process.cwd()])
  if (engine) {
    if (args.verbose || why.told) process.stderr.write(`${why.message}: it is left to the engine\n`)
    return hand_over(engine, words)
  }
  try {
    if (args.dry_run) return tell(await dry(args, began, why), args, began)
  } catch (error) {
    if (!(error instanceof Left)) throw error
    why = error
  }
  throw new KfmError(`This needs the engine: ${why.message}.`, {
    expected: "a Python that has kfm: KFM_PYTHON, a .venv around this folder, or python3",
    remedy: "pip install kfm; Node alone says what is unchanged and runs dry.",
  })
}

/**
 * Ask upstream with the validators of what is official; `304` is a NOOP, written down. `Left`: the engine decides.
 * @param {Args} args
 * @param {number} began
 * @returns {Promise<Outcome>}
 */
async function unchanged(args, began) {
  const config = load_config(args.config)
  if (args.force || args.window || config.window) throw new Left("a window or --force is asked for")
  if (config.publisher !== "local" && config.publisher !== "noop") throw new Left(`the publisher ${config.publisher} is the engine's`)
  const workspace = find_workspace(args.config, config.workspace)
  if (!workspace) throw new Left("there is no workspace")
  const dry_run = args.dry_run || config.publisher === "noop"
  const target = target_of(workspace, config)
  const ledger = await open_ledger(workspace.path, workspace.config.store)
  if (!ledger.exists()) throw new Left("there is no ledger yet")
  const before = ledger.read((tx) => standing(tx, workspace.path, folder_of(ledger), target))
  const log = new RunLog(workspace.path, target.dataset_id, { dry_run, verbose: args.verbose })
  log.say("run.triggered", "watch", { trigger: "manual", forced: false })
  for (const [n, source] of target.sources.entries()) {
    const manners = { ...workspace.config, allow_loopback: workspace.config.allow_loopback, sample: workspace.config.sample }
    const answer = await ask(without_window(source.url), before.etags[n], manners).catch((error) => {
      throw error instanceof KfmError ? new Left(error.happened) : error
    })
    if (answer.status !== 304) throw new Left(`upstream answered ${answer.status}`)
    log.say("source.answered", "watch", { source_id: source.source_id, status: 304, etag: before.etags[n], bytes: 0, attempts: 1, waits: [] })
  }
  const look = (/** @type {import("./idempotency/ledger.mjs").Tx} */ tx) => standing(tx, workspace.path, folder_of(ledger), target)
  const found = dry_run ? ledger.read(look) : ledger.transaction((tx) => keep_noop(tx, workspace.path, folder_of(ledger), target, before, log.run_id))
  const names = `generation ${found.head.generation}`
  log.say("run.noop", "idempotency", { reason: "unchanged", names })
  const publisher = new TracePublisher(dry_run ? new NoopPublisher() : new LocalPublisher(workspace.path), (call) => log.trace(call), log.marks)
  const state = idempotency(log, target, before.etags, found.run_key, target.spec_hash, "NOOP")
  log.close(publisher, state, { source_id: target.sources[0].source_id, reason: "unchanged", took_ms: Date.now() - began, fields: { code: "unchanged", names, partition: "" } })
  return outcome(target.dataset_id, log.run_id, { state: "NOOP", reason: "unchanged", names, version_id: found.head.version_id, generation: found.head.generation, dry_run })
}

/**
 * A dry run without the engine: everything is asked for and named, nothing is kept but the run's own artifacts.
 * @param {Args} args
 * @param {number} began
 * @param {Left} why
 * @returns {Promise<Outcome>}
 */
async function dry(args, began, why) {
  const config = load_config(args.config)
  const workspace = find_workspace(args.config, config.workspace)
  if (args.window || config.window) throw new KfmError("A window needs the engine.", { remedy: "pip install kfm", code: 2, name: "UsageError" })
  const folder = workspace ? undefined : join(mkdtempSync(join(tmpdir(), "kfm-updater-")), "artifacts")
  const log = new RunLog(workspace?.path ?? process.cwd(), config.dataset_id, { dry_run: true, verbose: args.verbose, folder })
  log.say("run.triggered", "watch", { trigger: "manual", forced: args.force })
  const sources = config.sources.map((each) => ({ source_id: each.source_id, url: each.source_url }))
  /** @type {string[]} */
  const etags = []
  let bytes = 0
  for (const source of sources) {
    const answer = await ask(without_window(source.url), null, { allow_loopback: true, sample: false, ...workspace?.config })
    if (answer.status !== 200) throw new KfmError(`Upstream answered ${answer.status}.`, { expected: "200", remedy: "Run again later.", code: 4, name: "UpstreamUnavailable" })
    log.say("source.answered", "watch", { source_id: source.source_id, status: 200, etag: answer.etag, bytes: answer.size, digest: answer.digest })
    etags.push(answer.etag)
    bytes += answer.size
  }
  const keys = sources.map((each, n) => run_key(canonical_url(each.url), etags[n], "", config.pipeline_version))
  const key = keys.length === 1 ? keys[0] : spec_hash(keys)
  const reason = `${bytes} bytes to capture; the engine makes the version (${why.message})`
  log.say("run.claimed", "idempotency", { key, forced: args.force, attempt: 0 })
  const publisher = new TracePublisher(new NoopPublisher(), (call) => log.trace(call), log.marks)
  publisher.noop_guard()
  const target = { dataset_id: config.dataset_id, sources, pipeline_version: config.pipeline_version }
  const state = idempotency(log, target, etags, key, asked_for(workspace, config), "CLAIMED")
  log.close(publisher, state, { source_id: sources[0].source_id, reason, took_ms: Date.now() - began, fields: {} })
  return outcome(config.dataset_id, log.run_id, { state: "CLAIMED", reason, names: folder ?? "", dry_run: true })
}

/**
 * What exactly is asked for; where that is the engine's to say, the digest of nothing stands in its place.
 * @param {ReturnType<typeof find_workspace>} workspace
 * @param {ReturnType<typeof load_config>} config
 */
function asked_for(workspace, config) {
  try {
    if (workspace) return target_of(workspace, config).spec_hash
  } catch (error) {
    if (!(error instanceof Left)) throw error
  }
  return digest("").slice(7)
}

/**
 * `idempotency.json`; several sources as a list beside the first.
 * @param {RunLog} log
 * @param {{dataset_id: string, sources: {source_id: string, url: string}[], pipeline_version: string}} target
 * @param {string[]} etags
 * @param {string} key
 * @param {string} asked
 * @param {string} state
 */
function idempotency(log, { dataset_id, sources, pipeline_version }, etags, key, asked, state) {
  const each = sources.map((source, n) => {
    const source_url = canonical_url(source.url)
    return { source_id: source.source_id, source_url, etag: etags[n], key: run_key(source_url, etags[n], "", pipeline_version) }
  })
  const first = { source_url: each[0].source_url, etag: each[0].etag, window: "", pipeline_version, key }
  return { run_id: log.run_id, dataset_id, ...first, output_keys: [], spec_hash: asked, state, ...(each.length > 1 ? { sources: each } : {}) }
}

/**
 * @param {string} dataset_id
 * @param {string} run_id
 * @param {Outcome} told
 * @returns {Outcome}
 */
function outcome(dataset_id, run_id, told) {
  const blank = { exit_code: 0, names: "", version_id: null, generation: null, rows: 0, rows_read: 0, rows_written: 0, quarantined: 0, proposal: null }
  const order = { dataset_id, run_id, state: "", reason: "", ...blank, reasons: [], remedy: "", partition: "", window: "", dry_run: false, change: "", warnings: [] }
  return { ...order, ...told }
}

/**
 * @param {Outcome} found
 * @param {Args} args
 * @param {number} began
 */
function tell(found, args, began) {
  if (args.json) return show(JSON.stringify(found, null, 2) + "\n")
  return show(`${rendered(found, (Date.now() - began) / 1000)}\n`)
}

/**
 * One line for what happened.
 * @param {Outcome} found
 * @param {number} seconds
 */
export function rendered(found, seconds) {
  const [sign, word] = found.state === "NOOP" ? ["·", "unchanged"] : ["+", "changed"]
  const detail = found.reason !== "unchanged" ? found.reason : found.names
  return `  ${sign} ${found.dataset_id.padEnd(22)} ${found.dry_run ? "dry run: " : ""}${word.padEnd(12)} ${detail}  ${seconds.toFixed(2)} s`
}

if (["runner.mjs", "updater.mjs"].includes(basename(process.argv[1] ?? ""))) process.exitCode = await main(process.argv.slice(2))
