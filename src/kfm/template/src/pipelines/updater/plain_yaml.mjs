/**
 * The plainest YAML, as most settings and registry entries are written: the same subset that the engine reads without a library, whole
 * or not at all. What is less plain is left to the engine.
 * @module
 */

const KEY = /^([A-Za-z_][A-Za-z0-9_]{0,99}):(?: +(.*))?$/
const QUOTED = /^('[^']*'|"[^"\\]*")(?: +#.*)?$/
const PART = / *(?:([A-Za-z_][A-Za-z0-9_]{0,99}): +)?(?:('[^']*'|"[^"\\]*")|(-?[A-Za-z0-9][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*)|(?=[[{]))/y
const NUMBER = /^-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?$/
const TEXT = /^(?:[A-Za-z].*|\.{1,2}|\.{0,2}\/.*|[1-9][0-9]*[smhdw]|[0-9]+\.[0-9]+\.[0-9]+|[0-9]{1,2} .*)$/
const OTHER = ["yes", "no", "on", "off", "null", "true", "false"]

/** @typedef {(digits: string) => any} Numbers */

class NotPlain extends Error {}

/**
 * What `raw` holds; undefined when it is not that plain. `number` makes one of its digits.
 * @param {Uint8Array} raw
 * @param {Numbers} number
 * @returns {any}
 */
export function plain_yaml(raw, number = Number) {
  const text = Buffer.from(raw).toString("latin1")
  if (!/^[\n -~]*$/.test(text)) return undefined
  /** @type {[number, string][]} */
  const lines = []
  for (const line of text.split("\n")) {
    const said = line.replace(/^ +/, "")
    if (said && !said.startsWith("#")) lines.push([line.length - said.length, said.replace(/ +$/, "")])
  }
  try {
    const [value, end] = block(lines, 0, 0, number)
    return end === lines.length ? value : undefined
  } catch (error) {
    if (error instanceof NotPlain || error instanceof RangeError) return undefined
    throw error
  }
}

/**
 * @param {[number, string][]} lines
 * @param {number} at
 * @param {number} indent
 * @param {Numbers} number
 * @returns {[any, number]}
 */
function block(lines, at, indent, number) {
  if (at === lines.length || lines[at][0] !== indent) throw new NotPlain()
  return lines[at][1].startsWith("- ") ? dashes(lines, at, indent, number) : keys(lines, at, indent, number)
}

/**
 * @param {[number, string][]} lines
 * @param {number} at
 * @param {number} indent
 * @param {Numbers} number
 * @returns {[any, number]}
 */
function dashes(lines, at, indent, number) {
  const found = []
  while (at < lines.length && lines[at][0] === indent && lines[at][1].startsWith("- ")) {
    const text = lines[at][1].slice(2).replace(/^ +/, "")
    if (KEY.test(text)) {
      const deeper = indent + lines[at][1].length - text.length
      lines[at] = [deeper, text]
      const [value, next] = keys(lines, at, deeper, number)
      found.push(value)
      at = next
    } else {
      found.push(valueOf(text, number))
      at += 1
    }
  }
  return [found, at]
}

/**
 * @param {[number, string][]} lines
 * @param {number} at
 * @param {number} indent
 * @param {Numbers} number
 * @returns {[any, number]}
 */
function keys(lines, at, indent, number) {
  /** @type {{[key: string]: any}} */
  const found = {}
  while (at < lines.length && lines[at][0] === indent && !lines[at][1].startsWith("- ")) {
    const pair = KEY.exec(lines[at][1])
    if (!pair || Object.hasOwn(found, pair[1]) || pair[1] === "__proto__" || OTHER.includes(pair[1].toLowerCase())) throw new NotPlain()
    at += 1
    if (pair[2] && !pair[2].startsWith("#")) {
      found[pair[1]] = valueOf(pair[2], number)
      continue
    }
    const [deeper, text] = at < lines.length ? lines[at] : [0, ""]
    if (deeper < indent || (deeper === indent && !text.startsWith("- "))) throw new NotPlain() // nothing stands there: null
    ;[found[pair[1]], at] = block(lines, at, deeper, number)
  }
  return [found, at]
}

/**
 * @param {string} text
 * @param {Numbers} number
 */
function valueOf(text, number) {
  const quoted = QUOTED.exec(text)
  if (quoted) return quoted[1].slice(1, -1)
  const said = text.split(" #")[0].replace(/ +$/, "")
  if (said === "[]" || said === "{}") return said === "[]" ? [] : {}
  if (said.startsWith("[") || said.startsWith("{")) {
    const [value, end] = brackets(said, 0, number)
    if (end < said.length) throw new NotPlain()
    return value
  }
  if (said.includes(": ") || said.endsWith(":")) throw new NotPlain()
  return word(said, number)
}

/**
 * @param {string} text
 * @param {number} at
 * @param {Numbers} number
 * @returns {[any, number]}
 */
function brackets(text, at, number) {
  const words = []
  /** @type {{[key: string]: any}} */
  const keyed = {}
  const opened = text[at]
  let after = ","
  while (after === ",") {
    PART.lastIndex = at + 1
    const part = PART.exec(text)
    if (!part || Boolean(part[1]) !== (opened === "{")) throw new NotPlain()
    at = PART.lastIndex
    let value
    if (part[2] || part[3]) value = part[2] ? part[2].slice(1, -1) : word(part[3], number)
    else [value, at] = brackets(text, at, number)
    if (part[1]) {
      if (Object.hasOwn(keyed, part[1]) || part[1] === "__proto__" || OTHER.includes(part[1].toLowerCase())) throw new NotPlain()
      keyed[part[1]] = value
    }
    words.push(value)
    while (text[at] === " ") at += 1
    after = text[at] ?? ""
  }
  if (!["[]", "{}"].includes(opened + after)) throw new NotPlain()
  return [opened === "{" ? keyed : words, at + 1]
}

/**
 * @param {string} text
 * @param {Numbers} number
 */
function word(text, number) {
  if (text === "true" || text === "false") return text === "true"
  if (NUMBER.test(text)) return number(text)
  if (TEXT.test(text) && !OTHER.includes(text.toLowerCase())) return text
  throw new NotPlain()
}
