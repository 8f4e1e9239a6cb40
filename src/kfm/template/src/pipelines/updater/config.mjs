/**
 * The configuration of an update: YAML or JSON, unknown keys refused with their path.
 * @module
 */

import { readFileSync } from "node:fs"
import { basename } from "node:path"

import { loads, NotIJson } from "./canonical.mjs"
import { told } from "./did_you_mean.mjs"
import { KfmError, Left, usage } from "./errors.mjs"
import { plain_yaml } from "./plain_yaml.mjs"
import { looks_like_a_credential } from "./secrets.mjs"
import { check_address } from "./url.mjs"

/**
 * @typedef {{source_id: string, source_url: string, format: "csv" | "json" | "geojson"}} Source
 * @typedef {(value: unknown, at: string) => any} Check
 * @typedef {{dataset_id: string, pipeline_version: string, sources: Source[], workspace: string | null, window: string | null, publisher: string}} Config
 */

const WHAT = "an updater configuration"
const WRONG = "Correct that key; unknown keys are not ignored."
const ID = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
const DATASET_ID = "^[a-z][a-z0-9_]{0,62}$"
const OPTIONAL = ["workspace", "window", "publisher"]
const UNREAD = /** @type {{[code: string]: string}} */ ({
  EISDIR: "Is a directory", EACCES: "Permission denied", EPERM: "Operation not permitted", ENOTDIR: "Not a directory",
  ENAMETOOLONG: "File name too long", ELOOP: "Too many levels of symbolic links",
})
/** @type {{[key: string]: Check}} */
const SOURCE = {
  source_id: (value, at) => text(value, at, ID),
  source_url: (value, at) => text(value, at, "."),
  format: (value, at) => one_of(value, at, ["csv", "json", "geojson"]),
}
/** @type {{[key: string]: Check}} */
const CONFIG = {
  dataset_id: (value, at) => text(value, at, DATASET_ID),
  pipeline_version: (value, at) => text(value, at, "."),
  sources,
  workspace: optional,
  window: optional,
  publisher: (value, at) => one_of(value, at, ["local", "noop", "trace", "github_actions"]),
}

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
  const name = path === "." ? "" : basename(path)
  let raw
  try {
    raw = readFileSync(path || ".")
  } catch (error) {
    const { code = "", message } = /** @type {NodeJS.ErrnoException} */ (error)
    if (code === "ENOENT") throw usage(`${name} does not exist.`, WHAT, "Check the path.")
    throw usage(`${name} cannot be read: ${UNREAD[code] ?? message}.`, WHAT, "Check the path and its permissions.")
  }
  // one that was written as a fraction is told apart from an integer where it is refused
  const plain = parse(raw, name, (digits) => (/^-?[0-9]+$/.test(digits) ? Number(digits) : Object(Number(digits))))
  refuse_secrets(plain, name, "$")
  try {
    return checked(plain, name)
  } catch (error) {
    if (error instanceof Wrong) throw usage(`${name}: ${error.message}.`, WHAT, WRONG + error.hint)
    throw error
  }
}

/**
 * Plain values from YAML or JSON.
 * @param {Uint8Array} raw
 * @param {string} name
 * @param {(digits: string) => any} number
 */
export function parse(raw, name, number = Number) {
  if (raw.length > 1 << 20) throw usage(`${name} is larger than 1 MiB.`, "a configuration file", "Check the path.")
  if (!name.endsWith(".json")) {
    const plain = plain_yaml(raw, number)
    if (plain === undefined) throw new Left(`${name} is not plain YAML`)
    return plain
  }
  try {
    return loads(raw, number)
  } catch (error) {
    if (!(error instanceof NotIJson)) throw error
    const { path, message, expected, remedy } = error
    throw new KfmError(`Not I-JSON at ${path}: ${message}.`, { expected, remedy, code: 2, name: "NotIJson" })
  }
}

/**
 * What looks like a credential is refused wherever it stands; the message names the place and not the value.
 * @param {any} value
 * @param {string} name
 * @param {string} at
 */
function refuse_secrets(value, name, at) {
  if (Array.isArray(value)) for (const [n, inner] of value.entries()) refuse_secrets(inner, name, `${at}[${n}]`)
  else if (kind(value) === "object") for (const [key, inner] of Object.entries(value)) refuse_secrets(inner, name, `${at}.${key}`)
  else if (typeof value === "string" && looks_like_a_credential(value))
    throw usage(`${name}: ${at} holds a secret itself.`, "a reference: env:NAME, or credential:NAME of `credentials` in kfm.yml", "Move the secret out and name where it is.")
}

/**
 * @param {any} plain
 * @param {string} name
 * @returns {Config}
 */
function checked(plain, name) {
  const config = /** @type {Config} */ ({ workspace: null, window: null, publisher: "local", ...members(plain, "$", CONFIG) })
  for (const each of config.sources) check_address(each.source_url)
  if (new Set(config.sources.map((each) => each.source_id)).size < config.sources.length) throw usage(`${name}: a source_id stands twice.`, "each source once", "Rename one.")
  if (new Set(config.sources.map((each) => each.format)).size > 1) throw usage(`${name}: the sources have different formats.`, "one format per dataset", "Split the configuration.")
  return config
}

/**
 * The members of an object, each looked at where it stands; then what is missing.
 * @param {any} plain
 * @param {string} at
 * @param {{[key: string]: Check}} known
 */
function members(plain, at, known) {
  if (kind(plain) !== "object") throw new Wrong(`Expected \`object\`, got \`${kind(plain)}\``, at)
  /** @type {{[key: string]: any}} */
  const found = {}
  for (const [key, value] of Object.entries(plain)) {
    if (!Object.hasOwn(known, key)) throw new Wrong(`Object contains unknown field \`${key}\``, at, told("Keys there are", key, Object.keys(known)))
    found[key] = known[key](value, `${at}.${key}`)
  }
  for (const key of Object.keys(known)) if (!OPTIONAL.includes(key) && !(key in found)) throw new Wrong(`Object missing required field \`${key}\``, at)
  return found
}

/**
 * @param {any} value
 * @param {string} at
 */
function sources(value, at) {
  if (!Array.isArray(value)) throw new Wrong(`Expected \`array\`, got \`${kind(value)}\``, at)
  if (!value.length) throw new Wrong("Expected `array` of length >= 1", at)
  return value.map((each, n) => members(each, `${at}[${n}]`, SOURCE))
}

/** @param {unknown} value */
function kind(value) {
  if (value === null) return "null"
  if (Array.isArray(value)) return "array"
  if (value instanceof Number) return "float"
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
  if (!known.includes(value)) throw new Wrong(`Invalid enum value '${value}'`, at, told("It may be", value, known))
  return value
}
