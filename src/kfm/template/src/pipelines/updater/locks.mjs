/**
 * Locks that die with their process, the same that the engine takes: `flock` on an open file. Node has no such call, so a program of the
 * machine's makes it on our descriptor; the lock is ours and goes when we close it or die.
 * @module
 */

import { spawnSync } from "node:child_process"
import { closeSync, mkdirSync, openSync } from "node:fs"
import { dirname } from "node:path"

import { Left } from "./errors.mjs"

const PERL = 'open(my $f, "+<&=", 3) or exit 9; exit(flock($f, $ARGV[0]) ? 0 : 1)'

/**
 * Lock the open file; false: somebody else has it.
 * @param {number} fd
 * @param {boolean} waits
 */
function flock(fd, waits) {
  const ways = [
    ["flock", ["-x", ...(waits ? ["-w", "60"] : ["-n"]), "3"]],
    ["perl", ["-e", PERL, waits ? "2" : "6"]],
  ]
  for (const [program, words] of /** @type {[string, string[]][]} */ (ways)) {
    const done = spawnSync(program, words, { stdio: ["ignore", "ignore", "ignore", fd] })
    if (!done.error) return done.status === 0
  }
  throw new Left("neither flock nor perl is here, and Node alone takes no lock")
}

/**
 * Do `work` while nobody else does theirs.
 * @template T
 * @param {string} path
 * @param {() => T} work
 * @returns {T}
 */
export function in_turn(path, work) {
  mkdirSync(dirname(path), { recursive: true })
  const fd = openSync(path, "a+", 0o644)
  try {
    if (!flock(fd, true)) throw new Left("the ledger is busy")
    return work()
  } finally {
    closeSync(fd)
  }
}

/**
 * Whether no process holds the lock of a file; one that is not there nobody holds.
 * @param {string} path
 */
export function is_unlocked(path) {
  let fd
  try {
    fd = openSync(path, "r+")
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code === "ENOENT") return true
    throw error
  }
  try {
    return flock(fd, false)
  } finally {
    closeSync(fd)
  }
}
