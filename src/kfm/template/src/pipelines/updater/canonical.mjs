/**
 * Canonical JSON (RFC 8785) out, strict I-JSON (RFC 7493) in: equal values give equal bytes, doubtful ones give an error.
 * @module
 */

export const MAX_DEPTH = 200
const SURROGATE = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y
const STRING = /"((?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"/y
const BEGUN = /^"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*/
const BLANK = /[ \t\n\r]*/y
const PLAIN = /^[A-Za-z_][A-Za-z0-9_]*$/
const WORDS = /** @type {const} */ ({ true: true, false: false, null: null, NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity })
const INFINITE = /** @type {const} */ (["NaN or an infinity", "a finite number", "Use null for a missing value."])

/** A value that I-JSON cannot carry unchanged, or bytes that are not I-JSON; `path` says where. */
export class NotIJson extends Error {
  /**
   * @param {string} why
   * @param {{path?: string, expected?: string, remedy?: string}} more
   */
  constructor(why, { path = "$", expected = "one JSON value in UTF-8 without a byte order mark", remedy = "" } = {}) {
    super(why)
    this.path = path
    this.expected = expected
    this.remedy = remedy
  }
}

/**
 * The one value that `raw` holds. Whatever this accepts, `dumps` can write. `number` makes one of its digits.
 * @param {Uint8Array} raw
 * @param {(digits: string) => any} number
 * @returns {any}
 */
export function loads(raw, number = Number) {
  let text
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw)
  } catch {
    throw new NotIJson("it is not UTF-8")
  }
  if (text.startsWith("\ufeff")) throw new NotIJson("a byte order mark comes first")
  return new Reader(text, number).document()
}

class Reader {
  /**
   * @param {string} text
   * @param {(digits: string) => any} number
   */
  constructor(text, number) {
    this.text = text
    this.made = number
    this.at = 0
    /** @type {(string | number)[]} */
    this.steps = []
    /** What is JSON and no I-JSON: told when the rest is JSON, as the engine does. @type {NotIJson | undefined} */
    this.doubt = undefined
  }

  document() {
    this.blank()
    const value = this.value(MAX_DEPTH)
    this.blank()
    if (this.at < this.text.length) throw this.wrong("Extra data")
    if (this.doubt) throw this.doubt
    return value
  }

  /** What is no JSON, and where. @param {string} why */
  wrong(why, at = this.at) {
    const before = this.text.slice(0, at)
    const line = before.split("\n").length
    const column = [...before.slice(before.lastIndexOf("\n") + 1)].length + 1
    return new NotIJson(`${why}: line ${line} column ${column} (char ${[...before].length})`)
  }

  /**
   * @param {string} why
   * @param {string} expected
   * @param {string} remedy
   */
  doubted(why, expected, remedy = "") {
    const path = `$${this.steps.map((step) => (typeof step === "number" ? `[${step}]` : PLAIN.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`)).join("")}`
    this.doubt ??= new NotIJson(why, { path, expected, remedy })
    return this.doubt
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
        if (typeof value === "number") this.doubted(...INFINITE)
        return value
      }
    }
    return this.number()
  }

  /** @param {number} depth */
  object(depth) {
    if (depth < 0) throw this.doubted("nested too deeply", `at most ${MAX_DEPTH} levels`)
    /** @type {{[key: string]: unknown}} */
    const found = Object.create(null)
    this.at += 1
    this.blank()
    if (this.is("}")) return found
    do {
      this.blank()
      if (this.text[this.at] !== '"') throw this.wrong("Expecting property name enclosed in double quotes")
      const key = this.string(" in the key")
      this.steps.push(key)
      if (key in found) this.doubted("a repeated key", "each key once per object")
      this.blank()
      if (!this.is(":")) throw this.wrong("Expecting ':' delimiter")
      this.blank()
      found[key] = this.value(depth)
      this.steps.pop()
      this.blank()
    } while (this.is(","))
    if (!this.is("}")) throw this.wrong("Expecting ',' delimiter")
    return found
  }

  /** @param {number} depth */
  array(depth) {
    if (depth < 0) throw this.doubted("nested too deeply", `at most ${MAX_DEPTH} levels`)
    /** @type {unknown[]} */
    const found = []
    this.at += 1
    this.blank()
    if (this.is("]")) return found
    do {
      this.blank()
      this.steps.push(found.length)
      found.push(this.value(depth))
      this.steps.pop()
      this.blank()
    } while (this.is(","))
    if (!this.is("]")) throw this.wrong("Expecting ',' delimiter")
    return found
  }

  string(where = "") {
    const found = this.take(STRING)
    if (!found) throw this.unfinished()
    const text = /** @type {string} */ (JSON.parse(found[0]))
    if (SURROGATE.test(text)) this.doubted(`a lone surrogate${where}`, "text that UTF-8 can carry")
    return text
  }

  /** Why no string begins here. */
  unfinished() {
    const good = /** @type {RegExpExecArray} */ (BEGUN.exec(this.text.slice(this.at)))[0]
    const at = this.at + good.length
    const next = this.text.slice(at, at + 2)
    if (!next || next === "\\") return this.wrong("Unterminated string starting at")
    if (next[0] !== "\\") return this.wrong("Invalid control character at", at)
    return next[1] === "u" ? this.wrong("Invalid \\uXXXX escape", at + 1) : this.wrong("Invalid \\escape", at)
  }

  number() {
    const found = this.take(NUMBER)
    if (!found) throw this.wrong("Expecting value")
    const value = Number(found[0])
    if (found[1] || found[2]) Number.isFinite(value) || this.doubted(...INFINITE)
    else if (!Number.isSafeInteger(value)) this.doubted("an integer beyond 2^53-1", `at most ${Number.MAX_SAFE_INTEGER}`, "Write it as a string.")
    return this.made(found[0])
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
