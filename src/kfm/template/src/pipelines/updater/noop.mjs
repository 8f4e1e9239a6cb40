/**
 * Whether there is nothing to do, decided in one transaction by the engine's rules: a strong validator of the head version, an equal key, an
 * equal spec. Whatever else the ledger shows (an open run, a lease that is held, something left to finish) is the engine's.
 * @module
 */

import { existsSync, readdirSync, readFileSync } from "node:fs"
import { uptime } from "node:os"
import { dirname, join } from "node:path"

import { Left } from "./errors.mjs"
import { digest, job_id, new_run_id, run_key, spec_hash } from "./idempotency/keygen.mjs"
import { is_free, is_whole } from "./idempotency/ledger.mjs"
import { now } from "./run_log.mjs"
import { canonical_url } from "./target.mjs"

/**
 * @typedef {import("./idempotency/ledger.mjs").Row} Row
 * @typedef {import("./idempotency/ledger.mjs").Tx} Tx
 * @typedef {{head: Row, key: Row, etags: string[], run_key: string}} Standing
 */

const INGEST = "ingest.pull_source"
const OPEN = ["CLAIMED", "STAGED", "PROPOSED"]
const SECONDS = /** @type {{[unit: string]: number}} */ ({ s: 1, m: 60, h: 3600, d: 86_400, w: 604_800 })
const NEWEST = 64
const LEASE_NS = 15n * 10n ** 9n

/**
 * What stands, and what upstream is to be asked with. Throws `Left` for everything that is not plainly at rest.
 * @param {Tx} tx
 * @param {string} workspace
 * @param {string} ledger the folder of the ledger
 * @param {import("./target.mjs").Target} target
 * @returns {Standing}
 */
export function standing(tx, workspace, ledger, target) {
  const { dataset_id } = target
  check_rest(tx, ledger, target)
  const head = tx.find("generation", { dataset_id }).sort((a, b) => b.generation - a.generation)[0]
  if (!head?.version_id || (["rollback", "void"].includes(head.kind) && head.contents === "{}")) throw new Left("nothing is official yet")
  check_files(workspace, dataset_id, head)
  check_root(tx, workspace)
  const key = tx.get("head_key", { dataset_id, partition: "", win: "" })
  if (!key || key.version_id !== head.version_id) throw new Left("what is official was not seen by a look of this kind")
  if (key.spec_hash !== target.spec_hash) throw new Left("something else is asked for than what is official was made by")
  if (tx.get("source_state", { dataset_id, source_url: target.sources[0].url })) throw new Left("validators of this source are not trusted")
  const etags = key.etag ? JSON.parse(key.etag) : []
  if (etags.length !== target.sources.length || !etags.every(Boolean)) throw new Left("upstream gave no strong validator")
  if (is_due(target.entry.source.recheck, key.full_check_at)) throw new Left("it is time to look at everything again")
  return { head, key, etags, run_key: key_of(target, etags) }
}

/**
 * The key of several sources is one over theirs.
 * @param {import("./target.mjs").Target} target
 * @param {string[]} etags
 */
export function key_of(target, etags) {
  const keys = target.sources.map((each, n) => run_key(canonical_url(each.url), etags[n], "", target.pipeline_version))
  return keys.length === 1 ? keys[0] : spec_hash(keys)
}

/**
 * @param {Tx} tx
 * @param {string} ledger
 * @param {import("./target.mjs").Target} target
 */
function check_rest(tx, ledger, { dataset_id, lease }) {
  const now = clock() // windows of it are leased below its name
  for (const row of tx.find("lease", {}).filter(({ name }) => name === dataset_id || `${name}/`.startsWith(`${lease}/`)))
    if (!is_free(row, ledger, now)) throw new Left(`another run holds ${row.name}`, true)
  const runs = tx.find("ledger", { dataset_id })
  const open = runs.find((row) => OPEN.includes(row.state))
  if (open) throw new Left(`run ${open.run_id} is ${open.state} and not finished`, true)
  if (runs.some((row) => row.ended_at !== null && !row.archived)) throw new Left("a run that ended is not archived yet")
  if (!runs.slice(-NEWEST).every(is_whole)) throw new Left("a row of the ledger is damaged")
  for (const name of [dataset_id, INGEST]) if (tx.get("switch", { name })) throw new Left(`${name} is switched off`)
  if (tx.find("outbox", { dataset_id, state: "waiting" }).length) throw new Left("an announcement waits")
}

/**
 * @param {string} workspace
 * @param {string} dataset_id
 * @param {Row} head
 */
function check_files(workspace, dataset_id, head) {
  const data = join(workspace, "data")
  /** @param {number} number */
  const file = (number) => join(data, "catalog/channels", dataset_id, `${String(number).padStart(8, "0")}.json`)
  if (!existsSync(file(head.generation)) || digest(readFileSync(file(head.generation))) !== head.file_digest) throw new Left("the newest generation is not as it was")
  if (existsSync(file(head.generation + 1))) throw new Left("there is a newer generation")
  const acts = join(data, "work", dataset_id, "acts")
  if (existsSync(acts) && readdirSync(acts).length) throw new Left("what a person did is not finished")
  const dcat = join(data, "catalog/dcat", `${dataset_id}.json`)
  if (!existsSync(dcat) || JSON.parse(readFileSync(dcat, "utf8"))["kfm:generation"] !== head.generation) throw new Left("the catalog is behind")
}

/**
 * The trust root is the one that the ledger has seen. A newer one is the engine's to verify, an older or another one its to refuse.
 * @param {Tx} tx
 * @param {string} workspace
 */
function check_root(tx, workspace) {
  const known = tx.get("meta", { key: "root" })
  if (!known) return
  const { version, fingerprint, digest: wanted } = JSON.parse(known.value)
  const folder = join(workspace, "keys/root")
  const files = existsSync(folder) ? readdirSync(folder).filter((name) => /^[0-9]{4}\.json$/.test(name)).sort() : []
  const [first, last] = [files[0], files[files.length - 1]].map((name) => (name ? digest(readFileSync(join(folder, name))) : ""))
  if (files.length !== version || first !== fingerprint || last !== wanted) throw new Left("the trust root is not the one that the ledger knows")
}

/**
 * @param {string} every
 * @param {string} since
 */
function is_due(every, since) {
  const found = /^([0-9]+)([smhdw])$/.exec(every)
  const age = (Date.now() - Date.parse(since)) / 1000
  return !found || !(age >= 0 && age < Number(found[1]) * SECONDS[found[2]])
}

/** The clock that leases run by: time since this machine started, and which start that was. */
export function clock() {
  const file = "/proc/sys/kernel/random/boot_id"
  if (!existsSync(file)) throw new Left("leases run by a clock that is not here")
  return { boot_id: readFileSync(file, "utf8").trim(), boot_ns: BigInt(Math.floor(uptime() * 1e6)) * 1000n }
}

/**
 * Upstream said that nothing changed: write that down, unless what stands moved since it was asked.
 * @param {Tx} tx
 * @param {string} workspace
 * @param {string} ledger
 * @param {import("./target.mjs").Target} target
 * @param {Standing} before
 * @param {string} run_id
 */
export function keep_noop(tx, workspace, ledger, target, before, run_id) {
  const found = standing(tx, workspace, ledger, target)
  if (found.head.generation !== before.head.generation || found.key.etag !== before.key.etag) throw new Left("what is official moved meanwhile")
  const { dataset_id } = target
  const timestamp = now()
  finish_job(tx, target, timestamp)
  const place = { dataset_id, partition: "", win: "" }
  const names = `generation ${found.head.generation}`
  tx.put("noop", { run_id, ...place, key: found.run_key, reason: "unchanged", names, timestamp, packed: 0, code: "unchanged" })
  tx.put("meta", { key: `look/${dataset_id}/`, value: `${run_id}\nunchanged` })
  tx.put("head_key", { ...found.key, run_key: found.run_key, checked_at: timestamp })
  take_lease(tx, target.lease)
  return found
}

/**
 * The lease was ours for this one transaction: whoever held it before and wakes up is fenced.
 * @param {Tx} tx
 * @param {string} name
 */
function take_lease(tx, name) {
  const epoch = Number(tx.get("meta", { key: "epoch" })?.value ?? 1)
  const old = tx.get("lease", { name })
  const token = old && old.epoch === epoch ? old.token + 1 : 1
  const { boot_id, boot_ns } = clock()
  tx.put("lease", { name, epoch, token, holder: null, boot_id, expires_ns: boot_ns + LEASE_NS })
}

/**
 * The job was put, taken and done in this one transaction.
 * @param {Tx} tx
 * @param {import("./target.mjs").Target} target
 * @param {string} at
 */
function finish_job(tx, { dataset_id, entry }, at) {
  const inputs = [{ kind: "dataset", id: `kfm://dataset/${dataset_id}` }]
  const old = tx.get("job", { job_id: job_id(INGEST, inputs, { partition: "" }, null) })
  if (!old) throw new Left("it never ran here")
  if (old.state === "running" || old.forced || old.again) throw new Left("its job is somebody's")
  const ended = { state: "ended", again: 0, forced: 0, owner: null, attempts: 0, losses: 0, not_before: 0, outcome: "succeeded", ended_at: at, error: "", cancel: 0 }
  if (old.state === "queued") return tx.put("job", { ...old, ...ended })
  const pool = tx.get("pool", { name: entry.pool })
  if (!pool) throw new Left("its pool is new")
  const lane = tx.get("lane", { pool: entry.pool, dataset_id })
  const vtime = Math.max(lane?.tail ?? 0, pool.vtime) + 1
  tx.put("lane", { pool: entry.pool, dataset_id, tail: vtime })
  const envelope = JSON.stringify({ requested_by: "system", inputs, parameters: {}, trace: { parent_run_id: null, correlation_id: new_run_id() } })
  const put = { generation: old.generation + 1, reason: "", put_at: at, pool: entry.pool, priority: 0, vtime, put_ms: Date.now(), envelope, token: 0, max_attempts: 5, started_at: null, wait_ms: null }
  return tx.put("job", { ...old, ...put, ...ended })
}

/**
 * The folder of a ledger's file.
 * @param {{file: string}} ledger
 */
export const folder_of = (ledger) => dirname(ledger.file)
