/**
 * The command: `node updater.mjs run --config F`. Everything it does lives in `runner.mjs`, and either name does the same.
 * @module
 */

export { main } from "./runner.mjs"
