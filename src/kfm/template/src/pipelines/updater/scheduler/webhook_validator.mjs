/**
 * May a webhook be believed: its signature, its time, its fields. `vectors/webhooks.json` has the verdicts, for every language.
 * @module
 */

import { createHash, createHmac, timingSafeEqual } from "node:crypto"

import { loads } from "../canonical.mjs"

/**
 * @typedef {{id: string, secret: string}} Key
 * @typedef {"kfm" | "standard" | "github"} Scheme
 * @typedef {{key: string, replay_id: string, kept_s: number}} Accepted
 * @typedef {{scheme: Scheme, source_id: string, keys: Key[], headers: [string, string][], body: Uint8Array, now: string, limit?: number}} Request
 */

const HEADERS = { kfm: "x-kfm-signature", standard: "webhook-signature", github: "x-hub-signature-256" }
const FIELDS = ["source_id", "trigger", "sent_at", "event_type", "integrity.version"]
const MOST = 1 << 20
const NEAR = 300n * 10n ** 9n
const NOBODYS = Buffer.alloc(32) // what an unknown source is compared with, so that it costs the same
const MOMENT = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?(?:Z|([+-])(\d{2}):(\d{2}))$/

/** Why a request is not believed; `field` is to blame where one is. */
export class Refused extends Error {
  /**
   * @param {string} code
   * @param {number} status
   * @param {string} [field]
   */
  constructor(code, status = 403, field) {
    super(code)
    this.code = code
    this.status = status
    this.field = field
  }
}

/**
 * The header that a sender puts beside `body`.
 * @param {string} secret
 * @param {Uint8Array} body
 */
export const sign = (secret, body) => `sha256=${createHmac("sha256", secret).update(body).digest("hex")}`

/**
 * What a request is known by, or `Refused`. The size comes first, the signature before anything of the body is read.
 * @param {Request} request
 * @returns {Accepted}
 */
export function verify(request) {
  const { scheme, body } = request
  if (body.length > (request.limit ?? MOST)) throw new Refused("body.too_large", 413)
  const now = moment(request.now)
  if (now === null) throw new TypeError("now is no moment")
  if (scheme === "standard") return standard(request, now)
  const given = one(request.headers, HEADERS[scheme], "signature")
  if (!/^sha256=[0-9a-f]{64}$/.test(given) || given.length !== 71) throw new Refused("signature.malformed")
  const key = signer(request.keys.map((each) => [each.id, Buffer.from(each.secret)]), body, [given.slice(7)], "hex")
  const replay_id = `body:${createHash("sha256").update(body).digest("hex")}`
  if (scheme === "github") return { key, replay_id, kept_s: 30 * 86_400 }
  checkFields(request, now)
  return { key, replay_id, kept_s: 600 }
}

/**
 * @param {Request} request
 * @param {bigint} now
 */
function standard({ headers, keys, body }, now) {
  const given = one(headers, HEADERS.standard, "signature")
  const id = one(headers, "webhook-id", "id")
  const time = one(headers, "webhook-timestamp", "time")
  if (!/^[!-\-/-~]{1,256}$/.test(id) || id.endsWith("\n")) throw new Refused("id.malformed")
  if (!/^(0|[1-9][0-9]{0,14})$/.test(time) || time.endsWith("\n")) throw new Refused("time.malformed")
  const signatures = given.split(" ").filter((each) => each.startsWith("v1,")).map((each) => each.slice(3))
  if (!signatures.length) throw new Refused("signature.malformed")
  const signed = Buffer.concat([Buffer.from(`${id}.${time}.`), body])
  const key = signer(keys.map((each) => [each.id, unpacked(each.secret)]), signed, signatures, "base64")
  if (apart(now, BigInt(time) * 10n ** 9n)) throw new Refused("time.outside")
  return { key, replay_id: `id:${id}`, kept_s: 600 }
}

/**
 * The value of a header that stands there once; names have no case.
 * @param {[string, string][]} headers
 * @param {string} name
 * @param {string} what
 */
function one(headers, name, what) {
  const found = headers.filter((pair) => pair[0].toLowerCase() === name)
  if (!found.length) throw new Refused(`${what}.missing`)
  if (found.length > 1) throw new Refused(`${what}.repeated`)
  return found[0][1]
}

/** @param {string} secret */
function unpacked(secret) {
  const text = secret.replace(/^whsec_/, "")
  const key = Buffer.from(text, "base64")
  return key.toString("base64") === text ? key : Buffer.alloc(0)
}

/**
 * The first key that made one of the signatures. Every key is tried; an empty one is none.
 * @param {[string, Buffer][]} keys
 * @param {Uint8Array} signed
 * @param {string[]} given
 * @param {"hex" | "base64"} form
 */
function signer(keys, signed, given, form) {
  const usable = keys.filter((pair) => pair[1].length)
  /** @type {string | null} */
  let found = null
  for (const [id, key] of usable.length ? usable : [/** @type {[string | null, Buffer]} */ ([null, NOBODYS])]) {
    const wanted = Buffer.from(createHmac("sha256", key).update(signed).digest(form))
    for (const each of given) {
      const told = Buffer.from(each, "latin1")
      const same = timingSafeEqual(wanted, told.length === wanted.length ? told : Buffer.alloc(wanted.length))
      if (same && told.length === wanted.length && found === null) found = id
    }
  }
  if (!usable.length) throw new Refused("key.missing")
  if (found === null) throw new Refused("signature.mismatch")
  return found
}

/**
 * @param {Request} request
 * @param {bigint} now
 */
function checkFields({ body, source_id }, now) {
  let event
  try {
    event = loads(body)
  } catch {
    throw new Refused("body.malformed", 400)
  }
  if (!isObject(event)) throw new Refused("body.malformed", 400)
  for (const path of FIELDS) checkField(event, path)
  if ("metadata" in event && !isObject(event.metadata)) throw new Refused("field.malformed", 400, "metadata")
  if (event.source_id !== source_id) throw new Refused("source.mismatch")
  if (apart(now, /** @type {bigint} */ (moment(event.sent_at)))) throw new Refused("time.outside")
}

/**
 * @param {any} event
 * @param {string} path
 */
function checkField(event, path) {
  let value = event
  const steps = path.split(".")
  for (const step of steps) {
    if (!isObject(value)) throw new Refused("field.malformed", 400, steps[0])
    if (!(step in value)) throw new Refused("field.missing", 400, path)
    value = value[step]
  }
  const odd = path === "sent_at" ? typeof value === "string" && moment(value) === null : path === "integrity.version" && value !== "v1"
  if (typeof value !== "string" || !value || odd) throw new Refused("field.malformed", 400, path)
}

/** @param {unknown} value */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value)

/**
 * @param {bigint} a
 * @param {bigint} b
 */
const apart = (a, b) => (a > b ? a - b : b - a) > NEAR

/**
 * An RFC 3339 moment as nanoseconds since 1970; null: it is none.
 * @param {string} text
 */
export function moment(text) {
  const found = MOMENT.exec(text)
  if (!found || text.endsWith("\n")) return null
  const [year, month, day, hour, minute, second] = found.slice(1, 7).map(Number)
  const date = new Date(0)
  date.setUTCFullYear(year, month - 1, day)
  const real = year > 0 && date.getUTCMonth() === month - 1 && date.getUTCDate() === day
  if (!real || hour > 23 || minute > 59 || second > 59 || Number(found[9]) > 23 || Number(found[10]) > 59) return null
  const offset = found[8] ? (found[8] === "+" ? 1 : -1) * (Number(found[9]) * 3600 + Number(found[10]) * 60) : 0
  const seconds = date.getTime() / 1000 + hour * 3600 + minute * 60 + second - offset
  return BigInt(seconds) * 10n ** 9n + BigInt((found[7] ?? "").padEnd(9, "0"))
}
