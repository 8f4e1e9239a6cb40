/**
 * Windows: a length of time is looked at as the engine does; bounds are the engine's.
 * @module
 */

import { quoted, usage } from "./errors.mjs"

/**
 * Refuse a window that is no length of time; `since/until` and a day are left to the engine.
 * @param {string} text
 */
export function check_window(text) {
  if (!text || text.includes("/") || /^[0-9]{4}-[0-9]{2}-[0-9]{2}$/.test(text)) return
  const found = /^([0-9]{1,9})([smhdw]?)$/.exec(text.trim())
  if (!found || (!found[2] && Number(found[1]))) throw usage(`${quoted(text)} is not a length of time.`, "a number and s, m, h, d or w, such as 24h", "Write it so: `24h` for a day, `60s` for a minute.")
  if (!Number(found[1])) throw usage("A window of no length holds nothing.", "a length such as 7d", "Give at least one second.")
}
