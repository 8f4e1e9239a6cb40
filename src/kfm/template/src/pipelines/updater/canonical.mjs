/**
 * Canonical JSON (RFC 8785) out, strict I-JSON (RFC 7493) in: equal values give equal bytes, doubtful ones give an error.
 * @module
 */

export const MAX_DEPTH = 200
const SURROGATE = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y
const STRING = /"((?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"/y
const BLANK = /[ \t\n\r]*/y
const WORDS = /** @type {const} */ ({ true: true, false: false, null: null })

/** A value that I-JSON cannot carry unchanged, or bytes that are not I-JSON. */
export class NotIJson extends Error {}

/**
 * The one value that `raw` holds. Whatever this accepts, `dumps` can write.
 * @param {Uint8Array} raw
 * @returns {any}
 */
export function loads(raw) {
  let text
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw)
  } catch {
    throw new NotIJson("it is not UTF-8")
  }
  return new Reader(text).document()
}

class Reader {
  /** @param {string} text */
  constructor(text) {
    this.text = text
    this.at = 0
  }

  document() {
    this.blank()
    const value = this.value(MAX_DEPTH)
    this.blank()
    if (this.at < this.text.length) throw this.wrong("something follows the value")
    return value
  }

  /** @param {string} why */
  wrong(why) {
    return new NotIJson(`${why}, at character ${this.at}`)
  }

  /** @param {RegExp} pattern */
  take(pattern) {
    pattern.lastIndex = this.at
    const found = pattern.exec(this.text)
    if (found) this.at = pattern.lastIndex
    return found
  }

  blank() {
    this.take(BLANK)
  }

  /** @param {string} sign */
  is(sign) {
    if (this.text[this.at] !== sign) return false
    this.at += 1
    return true
  }

  /**
   * @param {number} depth
   * @returns {any}
   */
  value(depth) {
    const next = this.text[this.at]
    if (next === "{") return this.object(depth - 1)
    if (next === "[") return this.array(depth - 1)
    if (next === '"') return this.string()
    for (const [word, value] of Object.entries(WORDS)) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length
        return value
      }
    }
    return this.number()
  }

  /** @param {number} depth */
  object(depth) {
    if (depth < 0) throw this.wrong("nested too deeply")
    /** @type {{[key: string]: unknown}} */
    const found = Object.create(null)
    this.at += 1
    this.blank()
    if (this.is("}")) return found
    do {
      this.blank()
      const key = this.string()
      if (key in found) throw this.wrong("a repeated key")
      this.blank()
      if (!this.is(":")) throw this.wrong("no colon")
      this.blank()
      found[key] = this.value(depth)
      this.blank()
    } while (this.is(","))
    if (!this.is("}")) throw this.wrong("an object that does not end")
    return found
  }

  /** @param {number} depth */
  array(depth) {
    if (depth < 0) throw this.wrong("nested too deeply")
    /** @type {unknown[]} */
    const found = []
    this.at += 1
    this.blank()
    if (this.is("]")) return found
    do {
      this.blank()
      found.push(this.value(depth))
      this.blank()
    } while (this.is(","))
    if (!this.is("]")) throw this.wrong("an array that does not end")
    return found
  }

  string() {
    const found = this.take(STRING)
    if (!found) throw this.wrong("no string")
    const text = /** @type {string} */ (JSON.parse(found[0]))
    if (SURROGATE.test(text)) throw this.wrong("a lone surrogate")
    return text
  }

  number() {
    const found = this.take(NUMBER)
    if (!found) throw this.wrong("no value")
    const value = Number(found[0])
    if (!Number.isFinite(value)) throw this.wrong("a number out of range")
    if (!found[1] && !found[2] && !Number.isSafeInteger(value)) throw this.wrong("an integer beyond 2^53-1")
    return value
  }
}

/**
 * The RFC 8785 text of a value.
 * @param {unknown} value
 * @returns {string}
 */
export function dumps(value, depth = MAX_DEPTH) {
  if (value === null || typeof value === "boolean") return String(value)
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new NotIJson("NaN or an infinity")
    return String(value === 0 ? 0 : value)
  }
  if (typeof value === "string") {
    if (SURROGATE.test(value)) throw new NotIJson("a lone surrogate")
    return JSON.stringify(value)
  }
  if (depth <= 0) throw new NotIJson("nested too deeply")
  if (Array.isArray(value)) return `[${value.map((each) => dumps(each, depth - 1)).join(",")}]`
  if (typeof value !== "object") throw new NotIJson(`a value of type ${typeof value}`)
  const members = /** @type {{[key: string]: unknown}} */ (value)
  // by UTF-16 unit, which is how JavaScript sorts
  const pairs = Object.keys(members).sort().map((key) => `${dumps(key)}:${dumps(members[key], depth - 1)}`)
  return `{${pairs.join(",")}}`
}
