/**
 * Identities: each answers one question and is never compared with another kind. `vectors/identities.json` fixes them, byte for byte.
 * @module
 */

import { createHash, randomBytes } from "node:crypto"

import { dumps } from "../canonical.mjs"

const ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/
const DATASET_ID = /^[a-z][a-z0-9_]{0,62}$/
const DEVICE = /^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?$/i
const TAKEN = ["worker", "scheduler"] // leases of these names are not of datasets
const JOBS = Buffer.from("692368c1facc5b1ead6878eb01b10dbd", "hex") // uuid5 of kfm://job

/** @param {string | Uint8Array} data */
const hex = (data) => createHash("sha256").update(data).digest("hex")
/** @param {unknown} value */
const hashed = (value) => hex(dumps(value))

/**
 * `sha256:` and 64 hex digits.
 * @param {string | Uint8Array} data
 */
export const digest = (data) => `sha256:${hex(data)}`

/**
 * Should this run start? Joined by bars; a backslash or a bar inside a field is escaped, so no two tuples collide.
 * @param {string} source_url
 * @param {string | null | undefined} etag
 * @param {string | null | undefined} window
 * @param {string} pipeline_version
 */
export function run_key(source_url, etag, window, pipeline_version) {
  const fields = [source_url, etag || "", window || "", pipeline_version]
  return hex(fields.map((field) => field.replaceAll("\\", "\\\\").replaceAll("|", "\\|")).join("|"))
}

/**
 * Should this object be written?
 * @param {string} updater_id
 * @param {string} updater_version
 * @param {string[]} business_key
 * @param {string} content_hash
 */
export const output_key = (updater_id, updater_version, business_key, content_hash) =>
  hashed([updater_id, updater_version, business_key, content_hash])

/**
 * What exactly was asked for?
 * @param {unknown} spec
 */
export const spec_hash = (spec) => hashed(spec)

/** @param {unknown} plan */
export const plan_hash = (plan) => hashed(plan)

/**
 * Over (source id, content digest) of every input, in source order.
 * @param {[string, string][]} sources
 */
export const input_hash = (sources) => hashed(sources)

/**
 * @param {string} dataset_id
 * @param {string} partition
 * @param {string} updater_id
 * @param {string} updater_version
 * @param {string} spec
 * @param {string} inputs
 * @param {string | null} base_version
 * @param {string} toolchain_digest
 * @param {number} attempt
 */
export const wal_id = (dataset_id, partition, updater_id, updater_version, spec, inputs, base_version, toolchain_digest, attempt) =>
  hashed([dataset_id, partition, updater_id, updater_version, spec, inputs, base_version, toolchain_digest, attempt])

/**
 * @param {{[path: string]: string}} artifacts
 * @param {string} transform_hash
 * @param {string} updater_version
 */
export function version_digest(artifacts, transform_hash, updater_version) {
  if (Object.hasOwn(artifacts, "transform_hash") || Object.hasOwn(artifacts, "updater_version"))
    throw new RangeError("An artifact may not be called transform_hash or updater_version.")
  return hashed({ ...artifacts, transform_hash, updater_version })
}

/** @param {string} full_digest */
export const version_id = (full_digest) => `v${full_digest.slice(0, 32)}`

/** @param {{[path: string]: string}} files */
export const capture_id = (files) => `c${hashed(files).slice(0, 32)}`

/**
 * @param {string} job_type
 * @param {unknown} inputs
 * @param {unknown} parameters
 * @param {string | null} nominal
 */
export function job_id(job_type, inputs, parameters, nominal) {
  const name = dumps([job_type, inputs, parameters, nominal])
  return uuid(createHash("sha1").update(JOBS).update(name).digest().subarray(0, 16), 5)
}

/**
 * The least id that a run of this moment (milliseconds since 1970) or later can have.
 * @param {number} millis
 */
export function first_run_id(millis) {
  const bytes = Buffer.alloc(16)
  bytes.writeUIntBE(millis % 2 ** 48, 0, 6)
  bytes[6] = 0x70
  return spelled(bytes)
}

/** A UUIDv7: sortable by time, safe as a file name. */
export function new_run_id() {
  const bytes = randomBytes(16)
  bytes.writeUIntBE(Date.now(), 0, 6)
  return uuid(bytes, 7)
}

/**
 * @param {Buffer} bytes
 * @param {number} version
 */
function uuid(bytes, version) {
  bytes[6] = (bytes[6] & 0x0f) | (version << 4)
  bytes[8] = (bytes[8] & 0x3f) | 0x80
  return spelled(bytes)
}

/** @param {Buffer} bytes */
const spelled = (bytes) => bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5")

/**
 * `value` if it is safe as a file name on every system.
 * @param {string} value
 */
export function check_id(value, what = "id") {
  if (!ID.test(value) || /\n$/.test(value) || value.includes("..") || value.endsWith(".") || DEVICE.test(value))
    throw new RangeError(`'${value}' is not a usable ${what}.`)
  return value
}

/**
 * `value` if it is a dataset id.
 * @param {string} value
 */
export function check_dataset_id(value) {
  if (!DATASET_ID.test(value) || DEVICE.test(value) || TAKEN.includes(value))
    throw new RangeError(`'${value}' is not a dataset id.`)
  return value
}
