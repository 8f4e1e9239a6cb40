/**
 * The configuration of an update: YAML or JSON, unknown keys refused with their path.
 * @module
 */

import { readFileSync } from "node:fs"
import { basename } from "node:path"

import { loads, NotIJson } from "./canonical.mjs"
import { KfmError, Left, usage } from "./errors.mjs"
import { plain_yaml } from "./plain_yaml.mjs"

/**
 * @typedef {{source_id: string, source_url: string, format: "csv" | "json" | "geojson"}} Source
 * @typedef {{dataset_id: string, pipeline_version: string, sources: Source[], workspace: string | null, window: string | null, publisher: string}} Config
 */

const WHAT = "an updater configuration"
const WRONG = "Correct that key; unknown keys are not ignored."
const ID = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
const DATASET_ID = "^[a-z][a-z0-9_]{0,62}$"
const SOURCE = { source_id: ["str", ID], source_url: ["text"], format: ["enum", "csv", "geojson", "json"] }

/** A value that is not what the configuration asks for. */
class Wrong extends Error {
  /**
   * @param {string} why
   * @param {string} at
   * @param {string} hint
   */
  constructor(why, at, hint = "") {
    super(at === "$" ? why : `${why} - at \`${at}\``)
    this.hint = hint
  }
}

/**
 * @param {string} path
 * @returns {Config}
 */
export function load_config(path) {
  const name = basename(path)
  let raw
  try {
    raw = readFileSync(path)
  } catch (error) {
    const missing = /** @type {NodeJS.ErrnoException} */ (error).code === "ENOENT"
    if (missing) throw usage(`${name} does not exist.`, WHAT, "Check the path.")
    throw usage(`${name} cannot be read.`, WHAT, "Check the path and its permissions.")
  }
  try {
    return checked(parse(raw, name))
  } catch (error) {
    if (error instanceof Wrong) throw usage(`${name}: ${error.message}.`, WHAT, WRONG + error.hint)
    throw error
  }
}

/**
 * Plain values from YAML or JSON.
 * @param {Uint8Array} raw
 * @param {string} name
 */
export function parse(raw, name) {
  if (raw.length > 1 << 20) throw usage(`${name} is larger than 1 MiB.`, "a configuration file", "Check the path.")
  if (!name.endsWith(".json")) {
    const plain = plain_yaml(raw)
    if (plain === undefined) throw new Left(`${name} is not plain YAML`)
    return plain
  }
  try {
    return loads(raw)
  } catch (error) {
    if (!(error instanceof NotIJson)) throw error
    throw new KfmError(`Not I-JSON at $: ${error.message}.`, { expected: "one JSON value in UTF-8 without a byte order mark", code: 2, name: "NotIJson" })
  }
}

/**
 * @param {any} plain
 * @returns {Config}
 */
function checked(plain) {
  members(plain, "$", { dataset_id: 1, pipeline_version: 1, sources: 1, workspace: 0, window: 0, publisher: 0 })
  const { sources } = plain
  if (!Array.isArray(sources)) throw new Wrong(`Expected \`array\`, got \`${kind(sources)}\``, "$.sources")
  if (!sources.length) throw new Wrong("Expected `array` of length >= 1", "$.sources")
  return {
    dataset_id: text(plain.dataset_id, "$.dataset_id", DATASET_ID),
    pipeline_version: text(plain.pipeline_version, "$.pipeline_version", "."),
    sources: sources.map((each, n) => source(each, `$.sources[${n}]`)),
    workspace: optional(plain.workspace, "$.workspace"),
    window: optional(plain.window, "$.window"),
    publisher: plain.publisher === undefined ? "local" : one_of(plain.publisher, "$.publisher", ["github_actions", "local", "noop", "trace"]),
  }
}

/**
 * @param {any} plain
 * @param {string} at
 * @returns {Source}
 */
function source(plain, at) {
  members(plain, at, { source_id: 1, source_url: 1, format: 1 })
  return {
    source_id: text(plain.source_id, `${at}.source_id`, ID),
    source_url: text(plain.source_url, `${at}.source_url`, "."),
    format: /** @type {Source["format"]} */ (one_of(plain.format, `${at}.format`, Object.values(SOURCE.format).slice(1))),
  }
}

/**
 * @param {any} plain
 * @param {string} at
 * @param {{[key: string]: number}} known
 */
function members(plain, at, known) {
  if (kind(plain) !== "object") throw new Wrong(`Expected \`object\`, got \`${kind(plain)}\``, at)
  for (const key of Object.keys(plain)) {
    if (Object.hasOwn(known, key)) continue
    const there = Object.keys(known).sort()
    throw new Wrong(`Object contains unknown field \`${key}\``, at, ` Keys there are ${there.join(", ")}.${meant(key, there)}`)
  }
  for (const key of Object.keys(known)) if (known[key] && !(key in plain)) throw new Wrong(`Object missing required field \`${key}\``, at)
}

/**
 * @param {string} word
 * @param {string[]} known
 */
function meant(word, known) {
  const near = known.find((each) => distance(word, each) <= 2)
  return near ? ` Did you mean \`${near}\`?` : ""
}

/**
 * @param {string} a
 * @param {string} b
 */
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, n) => n)
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i]
    for (let j = 1; j <= b.length; j += 1) next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1))
    row = next
  }
  return row[b.length]
}

/** @param {unknown} value */
function kind(value) {
  if (value === null) return "null"
  if (Array.isArray(value)) return "array"
  if (typeof value === "number") return Number.isInteger(value) ? "int" : "float"
  return { string: "str", boolean: "bool", object: "object" }[/** @type {string} */ (typeof value)] ?? "object"
}

/**
 * @param {unknown} value
 * @param {string} at
 * @param {string} pattern
 */
function text(value, at, pattern) {
  if (typeof value !== "string") throw new Wrong(`Expected \`str\`, got \`${kind(value)}\``, at)
  if (pattern === "." && !value) throw new Wrong("Expected `str` of length >= 1", at)
  if (pattern !== "." && !new RegExp(pattern).test(value)) throw new Wrong(`Expected \`str\` matching regex '${pattern}'`, at)
  return value
}

/**
 * @param {unknown} value
 * @param {string} at
 */
function optional(value, at) {
  if (value === undefined || value === null) return null
  if (typeof value !== "string") throw new Wrong(`Expected \`str | null\`, got \`${kind(value)}\``, at)
  return value
}

/**
 * @param {unknown} value
 * @param {string} at
 * @param {string[]} known
 */
function one_of(value, at, known) {
  if (typeof value !== "string") throw new Wrong(`Expected \`str\`, got \`${kind(value)}\``, at)
  if (!known.includes(value)) throw new Wrong(`Invalid enum value '${value}'`, at, ` It may be ${known.join(", ")}.`)
  return value
}
