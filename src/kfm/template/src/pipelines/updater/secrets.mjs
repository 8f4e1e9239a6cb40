/**
 * What looks like a credential has no place in a configuration: the known forms of the engine.
 * @module
 */

const WORD = "(?<![\\p{L}\\p{N}_])" // a word begins here
const ENDS = "(?![\\p{L}\\p{N}_])"
const FORMS = new RegExp(
  [
    "-----BEGIN (?:[A-Z]+ )*PRIVATE KEY",
    "gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}",
    `${WORD}glpat-[A-Za-z0-9_\\-]{20,}`,
    `${WORD}(?:AKIA|ASIA)[0-9A-Z]{16}${ENDS}`,
    `${WORD}xox[abprs]-[A-Za-z0-9\\-]{10,}|hooks\\.slack\\.com/services/[A-Z0-9]{6,}/`,
    `${WORD}AIza[0-9A-Za-z_\\-]{35}`,
    `${WORD}(?:sk|rk)_(?:live|test)_[0-9A-Za-z]{16,}|${WORD}sk-[A-Za-z0-9_\\-]{20,}`,
    `${WORD}eyJ[A-Za-z0-9_\\-]{10,}\\.eyJ[A-Za-z0-9_\\-]{10,}\\.`,
    "://[^/\\s:@]+:[^/\\s@]+@",
    `${WORD}[Bb][Ee][Aa][Rr][Ee][Rr]\\s+[A-Za-z0-9._~+/\\-]{8,}`,
  ].join("|"),
  "u",
)
const NAMED =
  /^(?:.*(?:token|secret|password|passwd|signature|credentials?)|pwd|auth|authorization|sig|(?:.*(?:api|access|secret|private|subscription|auth|app|account|client|developer|user|license))?key)$/

/**
 * Whether a text holds a secret itself; a reference is what is wanted.
 * @param {string} text
 */
export const looks_like_a_credential = (text) => FORMS.test(text)

/**
 * Whether a query field of this name usually carries a credential.
 * @param {string} name
 */
export const names_a_secret = (name) => NAMED.test(name.toLowerCase().replace(/[^a-z0-9]/g, ""))
