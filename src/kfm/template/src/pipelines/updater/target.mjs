/**
 * What is to be brought up to date, as the engine names it: the workspace, the registered entry, the addresses, and the hash of all that was
 * asked for. What Node does not know how to name exactly is left to the engine.
 * @module
 */

import { existsSync, lstatSync, readdirSync, readFileSync, statSync } from "node:fs"
import { dirname, extname, join, parse as parsePath, resolve } from "node:path"

import { dumps } from "./canonical.mjs"
import { parse } from "./config.mjs"
import { nearest } from "./did_you_mean.mjs"
import { KfmError, Left, usage } from "./errors.mjs"
import { digest, spec_hash } from "./idempotency/keygen.mjs"
import { host_of } from "./url.mjs"

/**
 * @typedef {{path: string, config: {[key: string]: any}}} Workspace
 * @typedef {{dataset_id: string, entry: {[key: string]: any}, sources: {source_id: string, url: string}[], pipeline_version: string, spec_hash: string, lease: string}} Target
 */

/** Raised by the engine when a gate judges differently. */
export const GATES_MARK = "kfm gates 2"
/** What the engine fills in where an entry says nothing. */
export const ENTRY = {
  description: "", owners: [], custodian: null, licence: null, rights: null, licence_proof: null, sensitivity: null, policy_label: null,
  care_label: null, release: null, location: null, business_key: [], schema: [], crs: "OGC:CRS84", extent: null, time_zone: "UTC",
  cadence: null, interval: null, revisit: [], freshness: "24h", pool: "default", retention: null, approvals: 0, derive: [], drivers: [],
  merge: "replace", partitions: [], max_quarantined: 0.01, pipeline_version: "1.0.0", canary: null, aliases: [], retired: null,
}
/** The same of its source. */
export const SOURCE = {
  kind: "http_file", url: "", urls: [], format: "", options: {}, datasets: [], join_on: [], encoding: null, hosts: [], records: null,
  area: [], time_column: null, recheck: "24h", headers: {}, completeness: 0,
}
/** Of the thresholds of quality. */
export const QUALITY = { min_rows: 1, max_rows: null, max_null_share: {}, valid_geometry: true, max_row_change: null, max_null_change: null }
/** Of a column. */
export const COLUMN = { nullable: true, unit: null }
/** Of an extent. */
export const EXTENT = { bbox: null, start: null, end: null }
/** Of limits of change. */
export const CHANGE = { rows: 0.2, cells: 0.5, deletions: 0.2 }
/** Where those datasets come from that a dry run without a workspace finds registered. */
export const SAMPLES = /** @type {{[dataset_id: string]: string}} */ ({
  ks_earthquakes: "quakes.sample.kfm.example", ks_stream_gauges: "water.sample.kfm.example", ks_weather_stations: "weather.sample.kfm.example",
})
const REGISTRY = "data/registry"
const ENDS = [".yml", ".yaml", ".json"]
const FIRST_LIMIT = 64 * 2 ** 30 // what went without saying when the first hashes were made
const WORKSPACE = { store: "sqlite:///ledger/idempotency.sqlite", zones: "file:///data", allow_loopback: false, sample: false, contact: "" }

/**
 * The workspace that a configuration names, or the nearest around this folder; null: none.
 * @param {string} config the path of the file
 * @param {string | null} named
 * @returns {Workspace | null}
 */
export function find_workspace(config, named) {
  if (named !== null) {
    const folder = resolve(dirname(config), named)
    if (!existsSync(join(folder, "kfm.yml"))) throw usage(`${folder} is not a kfm workspace.`, "a folder with kfm.yml", "Make one with `kfm init DIR`, or name one with -w.")
    return opened(folder)
  }
  for (let folder = process.cwd(); ; folder = dirname(folder)) {
    if (existsSync(join(folder, "kfm.yml"))) return opened(folder)
    if (folder === dirname(folder)) return null
  }
}

/** @param {string} path */
function opened(path) {
  const config = { ...WORKSPACE, ...parse(readFileSync(join(path, "kfm.yml")), "kfm.yml") }
  if (config.zones !== WORKSPACE.zones) throw new Left("the zones lie elsewhere")
  return { path, config }
}

/**
 * Refuse a dataset that is not registered, and a source whose host is none of its: its licence and labels say nothing about what comes from
 * there. Without a workspace a dataset that is no sample is what its first source says.
 * @param {Workspace | null} workspace
 * @param {import("./config.mjs").Config} config
 */
export function check_sources(workspace, { dataset_id, sources }) {
  const known = workspace ? hosts_of(workspace, dataset_id) : [SAMPLES[dataset_id] ?? host_of(sources[0].source_url)]
  for (const host of sources.map((each) => host_of(each.source_url))) {
    if (known.includes(host)) continue
    throw usage(
      `${host} is not a host of ${dataset_id}; its licence and labels say nothing about what comes from there.`,
      `one of ${[...new Set(known)].sort().join(", ")}`,
      `Add it to source.hosts in ${REGISTRY}/${dataset_id}.yml if the registry's licence covers it.`,
    )
  }
}

/**
 * @param {Workspace} workspace
 * @param {string} dataset_id
 * @returns {string[]}
 */
function hosts_of(workspace, dataset_id) {
  const source = written(workspace, dataset_id)?.source
  if (typeof source?.url !== "string" || !Array.isArray(source.hosts ?? [])) throw new Left("its entry does not say where it comes from")
  return [host_of(source.url), ...(source.hosts ?? [])]
}

/**
 * @param {Workspace} workspace
 * @param {import("./config.mjs").Config} config
 * @returns {Target}
 */
export function target_of(workspace, config) {
  const { dataset_id } = config
  const entry = registered(workspace, dataset_id)
  if (existsSync(join(workspace.path, "scripts/connectors", dataset_id, "connector.py"))) throw new Left("its connector is Python")
  if (existsSync(join(workspace.path, "data/work", dataset_id, "quarantine"))) throw new Left("people may have corrected records of it")
  const sources = config.sources.map((each) => ({ source_id: each.source_id, url: each.source_url }))
  const source = { ...entry.source, url: config.sources[0].source_url, format: config.sources[0].format }
  const plain = /** @type {{[key: string]: any}} */ ({ ...entry, source })
  delete plain.canary // what is tried beside it, and what is said of its past, change nothing that a run does
  delete plain.backfill
  const updater_id = `${source.kind}.${dataset_id}`
  const { pipeline_version } = config
  const spec = {
    registry: plain,
    registry_digest: digest(dumps(plain)),
    policy_digest: policy_digest(workspace),
    sources,
    partition: "",
    window: "",
    connector: null,
    pipeline_version,
    updater_id,
  }
  return { dataset_id, entry: { ...entry, source }, sources, pipeline_version, spec_hash: spec_hash(spec), lease: `${dataset_id}/-` }
}

/**
 * A registered entry as its hashes are made of it; one that asks for more than Node does is left to the engine.
 * @param {Workspace} workspace
 * @param {string} dataset_id
 */
function registered(workspace, dataset_id) {
  const given = written(workspace, dataset_id)
  const source = { ...SOURCE, max_bytes: FIRST_LIMIT, ...given.source }
  const entry = { ...ENTRY, ...given, source, quality: { ...QUALITY, ...given.quality } }
  entry.schema = entry.schema.map((/** @type {object} */ column) => ({ ...COLUMN, ...column }))
  if (entry.extent) entry.extent = { ...EXTENT, ...entry.extent }
  if (entry.change) entry.change = { ...CHANGE, ...entry.change }
  const open = [entry.sensitivity, entry.policy_label].every((label) => label === "public") && entry.care_label === null
  if (!open || entry.release) throw new Left("it is not public without obligations")
  if (source.kind !== "http_file" || source.urls.length || Object.keys(source.headers).length)
    throw new Left(`a source of kind ${source.kind} with these settings is the engine's`)
  if (entry.canary || entry.partitions.length || entry.retired || entry.cadence === "static") throw new Left("its entry asks for more than a look")
  return entry
}

/**
 * An entry as somebody wrote it; whether it is right is the engine's to say.
 * @param {Workspace} workspace
 * @param {string} dataset_id
 * @returns {any}
 */
function written(workspace, dataset_id) {
  const folder = join(workspace.path, REGISTRY)
  const name = ENDS.map((end) => `${dataset_id}${end}`).find((each) => statSync(join(folder, each), { throwIfNoEntry: false })?.isFile())
  if (!name) throw unregistered(workspace, dataset_id)
  return parse(readFileSync(join(folder, name)), name)
}

/**
 * Nobody registered a dataset of this name; which one was probably meant, or is what it is called now.
 * @param {Workspace} workspace
 * @param {string} dataset_id
 */
function unregistered(workspace, dataset_id) {
  const folder = join(workspace.path, REGISTRY)
  const files = existsSync(folder) ? readdirSync(folder).filter((name) => ENDS.includes(extname(name))) : []
  const known = [...new Set(files.map((name) => parsePath(name).name))].sort()
  const renamed = known.find((each) => aliases(workspace, each).includes(dataset_id))
  const near = nearest(dataset_id, known)
  const hint = near ? `Did you mean \`${near}\`?` : `Register it with \`kfm dataset new ${dataset_id} --url URL\`; \`kfm dataset list\` shows what there is.`
  const remedy = renamed ? `It is called \`${renamed}\` now.` : hint
  return new KfmError(`There is no dataset ${dataset_id}.`, { expected: `${REGISTRY}/${dataset_id}.yml`, remedy, code: 2, name: "Unregistered" })
}

/**
 * What a dataset was called before; nothing where that cannot be read here.
 * @param {Workspace} workspace
 * @param {string} dataset_id
 * @returns {string[]}
 */
function aliases(workspace, dataset_id) {
  try {
    const found = written(workspace, dataset_id)?.aliases
    return Array.isArray(found) ? found : []
  } catch {
    return []
  }
}

/** @param {Workspace} workspace */
function policy_digest(workspace) {
  const folder = join(workspace.path, "policy")
  const names = existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith(".rego") && !name.endsWith("_test.rego")) : []
  const files = names.filter((name) => lstatSync(join(folder, name)).isFile())
  const rules = Object.fromEntries(files.map((name) => [name, digest(readFileSync(join(folder, name)))]))
  return digest(`${GATES_MARK} ${digest(dumps(rules))}`)
}

/**
 * The address as keys have it: a template as it is registered; another only when it is spelled canonically already.
 * @param {string} url
 */
export function canonical_url(url) {
  if (url.includes("{") || /^https?:\/\/[a-z0-9_.-]+(:[0-9]+)?\/[A-Za-z0-9\-._~!$&'()*+,;=:@/]*(\?[A-Za-z0-9\-._~!$&'()*+,;=:@/?]*)?$/.test(url)) {
    if (!/^(http:\/\/[^/]*:80|https:\/\/[^/]*:443)\//.test(url)) return url
  }
  throw new Left("its address is spelled otherwise than keys have it")
}

/**
 * The address without a window: query fields that are nothing but an empty placeholder are left out.
 * @param {string} template
 */
export function without_window(template) {
  const [address, query] = template.split("#")[0].split(/\?(.*)/s)
  const fields = (query ?? "").split("&").filter((field) => field && !/^[^=]*=\{(since|until)\}$/.test(field))
  const url = address + (fields.length ? `?${fields.join("&")}` : "")
  if (/[{}]/.test(url)) throw new Left("its address asks for a day or a partition")
  return url
}
