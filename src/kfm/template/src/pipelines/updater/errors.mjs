/**
 * Errors say what happened, what was expected and what to do, and know their exit code.
 * @module
 */

/** An error that is told and not traced. */
export class KfmError extends Error {
  /**
   * @param {string} happened
   * @param {{expected?: string, remedy?: string, code?: number, name?: string}} more
   */
  constructor(happened, { expected = "", remedy = "", code = 1, name = "StepFailed" } = {}) {
    super(happened)
    this.happened = happened
    this.expected = expected
    this.remedy = remedy
    this.exit_code = code
    this.name = name
  }
}

/**
 * A wrong command line or configuration.
 * @param {string} happened
 * @param {string} expected
 * @param {string} remedy
 */
export const usage = (happened, expected, remedy) => new KfmError(happened, { expected, remedy, code: 2, name: "UsageError" })

/** What Node leaves to the engine, and why; `told` where a person should know. */
export class Left extends Error {
  /**
   * @param {string} why
   * @param {boolean} told
   */
  constructor(why, told = false) {
    super(why)
    this.told = told
  }
}

/**
 * A text as the engine shows one that somebody wrote.
 * @param {string} text
 */
export function quoted(text) {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'"
  const plain = /** @type {{[sign: string]: string}} */ ({ "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", [mark]: `\\${mark}` })
  return mark + text.replace(/[\\\x00-\x1f\x7f'"]/g, (sign) => plain[sign] ?? (/['"]/.test(sign) ? sign : `\\x${sign.charCodeAt(0).toString(16).padStart(2, "0")}`)) + mark
}
