/**
 * `node updater.mjs run --config F [--dry-run --window --verbose --force]`: the updater's own command line, as the engine's.
 *
 * What Node does itself: it looks at upstream, makes the key, decides in the shared ledger, and when nothing changed writes that down with
 * the run's four artifacts. A change, and everything that is not plainly at rest, goes to the engine with the same words.
 * @module
 */

import { mkdtempSync } from "node:fs"
import { homedir, tmpdir } from "node:os"
import { basename, dirname, join, resolve } from "node:path"

import { load_config } from "./config.mjs"
import { find_engine, hand_over } from "./engine.mjs"
import { KfmError, Left, quoted, usage } from "./errors.mjs"
import { digest, run_key, spec_hash } from "./idempotency/keygen.mjs"
import { open_ledger } from "./idempotency/ledger.mjs"
import { ask } from "./look.mjs"
import { folder_of, keep_noop, standing } from "./noop.mjs"
import { TracePublisher } from "./publisher/base.mjs"
import { LocalPublisher } from "./publisher/local.mjs"
import { NoopPublisher } from "./publisher/noop.mjs"
import { RunLog, renamed } from "./run_log.mjs"
import { canonical_url, check_sources, find_workspace, target_of, without_window } from "./target.mjs"
import { check_window } from "./window.mjs"

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

const FLAGS = ["-h", "--help", "--config", "--dry-run", "--dry_run", "--window", "--verbose", "--force", "--json"]

/**
 * @param {string[]} words
 * @returns {Promise<number>}
 */
export async function main(words) {
  const as_json = words.includes("--json")
  try {
    const args = parsed(words)
    return typeof args === "string" ? show(args) : await run(args, words)
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
  const home = homedir()
  const masked = (/** @type {string} */ text) => (home.length > 1 ? renamed(text, home, "~") : text)
  process.stderr.write([`✕ ${masked(happened)}`, expected && `  expected  ${expected}`, remedy && `  next      ${masked(remedy)}`].filter(Boolean).join("\n") + "\n")
  if (as_json) process.stdout.write(JSON.stringify({ error: error.name, happened, expected, remedy, exit_code }, null, 2) + "\n")
  return exit_code
}

/**
 * The words of a command line; a text: the help that is wanted.
 * @param {string[]} words
 * @returns {Args | string}
 */
export function parsed(words) {
  const takes = "`updater --help` shows what it takes."
  const rest = [...words]
  /** @type {string[]} */
  const unknown = []
  while (rest.length && is_option(rest[0])) {
    const word = /** @type {string} */ (rest.shift())
    if (is_help(word, takes)) return HELP
    unknown.push(word)
  }
  const command = rest.shift()
  if (command === undefined) throw usage("Command is missing.", "other arguments", takes)
  if (command !== "run") throw usage(`Command: invalid choice: ${quoted(command)} (choose from 'run').`, "other arguments", takes)
  const args = parsed_run(rest, unknown)
  // as the engine tells them: between blanks, flags first
  const told = unknown.join(" ").split(/\s+/).filter(Boolean)
  const flag = told.find((word) => word.startsWith("-"))
  if (args !== RUN_HELP && unknown.length) throw usage(`\`updater\` ${flag ? `has no ${flag.split("=")[0]}` : `does not take ${quoted(told[0])}`}.`, "other arguments", takes)
  return args
}

/**
 * @param {string[]} rest
 * @param {string[]} unknown what is in no place is added here
 * @returns {Args | string}
 */
function parsed_run(rest, unknown) {
  const takes = "`updater run --help` shows what it takes."
  /** @type {{config: string | null, window: string | null, [flag: string]: any}} */
  const args = { config: null, dry_run: false, window: null, verbose: false, force: false, json: false }
  while (rest.length) {
    const word = /** @type {string} */ (rest.shift())
    if (is_help(word, takes)) return RUN_HELP
    const [flag, given] = word.split(/=(.*)/s)
    const name = flag.slice(2).replaceAll("-", "_")
    if (word === "--") unknown.push(word, ...rest.splice(0))
    else if (flag === "--config" || flag === "--window") {
      if (given === undefined && (!rest.length || is_option(rest[0]))) throw usage(`${flag}: expected one argument.`, "other arguments", takes)
      args[name] = given ?? rest.shift()
    } else if (!["--dry-run", "--dry_run", "--verbose", "--force", "--json"].includes(flag)) unknown.push(word)
    else if (given !== undefined) throw usage(`--${name}: ignored explicit argument ${quoted(given)}.`, "other arguments", takes)
    else args[name] = true
  }
  if (args.config === null) throw usage("--config is missing.", "other arguments", takes)
  return /** @type {Args} */ (/** @type {unknown} */ (args))
}

/**
 * Whether help is asked for; it takes no value.
 * @param {string} word
 * @param {string} takes
 */
function is_help(word, takes) {
  const value = /^(?:--help=|-h=?(?=.))(.*)$/s.exec(word)
  if (value) throw usage(`--help: ignored explicit argument ${quoted(value[1])}.`, "other arguments", takes)
  return word === "-h" || word === "--help"
}

/** Whether a word is an option, and no value: no number with a minus, and nothing with a blank. @param {string} word */
const is_option = (word) => /^-./s.test(word) && !/^-\.?\d[-+.,\deE]*$/.test(word) && (!word.includes(" ") || FLAGS.includes(word.split("=")[0]))

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
 * What is asked for: the configuration and its workspace; what the engine refuses before it asks anybody is refused here.
 * @param {Args} args
 */
function wanted(args) {
  const config = load_config(args.config)
  const workspace = find_workspace(args.config, config.workspace)
  if (!workspace && !args.dry_run) throw usage("The configuration names no workspace.", "`workspace: DIR`, or a workspace around this folder", "Make one with `kfm init`.")
  check_sources(workspace, config)
  check_window(args.window || config.window || "")
  return { config, workspace }
}

/**
 * Ask upstream with the validators of what is official; `304` is a NOOP, written down. `Left`: the engine decides.
 * @param {Args} args
 * @param {number} began
 * @returns {Promise<Outcome>}
 */
async function unchanged(args, began) {
  const { config, workspace } = wanted(args)
  if (args.force || args.window || config.window) throw new Left("a window or --force is asked for")
  if (config.publisher !== "local" && config.publisher !== "noop") throw new Left(`the publisher ${config.publisher} is the engine's`)
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
  const { config, workspace } = wanted(args)
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
