/**
 * The engine: the Python package that captures, transforms, judges, signs and publishes. Node hands over to it with the same words, so that
 * what happens and what is said is the same.
 * @module
 */

import { spawn, spawnSync } from "node:child_process"
import { existsSync } from "node:fs"
import { constants } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const HAS = "import importlib.util, sys; sys.exit(importlib.util.find_spec('updater') is None or importlib.util.find_spec('kfm') is None)"

/**
 * The Python that has the engine: KFM_PYTHON, a `.venv` at or above one of `folders` or this file, or python3; null: none has it.
 * KFM_PYTHON=none says that there is none.
 * @param {string[]} folders
 */
export function find_engine(folders) {
  const named = process.env.KFM_PYTHON
  if (named === "none") return null
  const around = [...folders, dirname(fileURLToPath(import.meta.url))].flatMap((folder) => above(folder).map((each) => join(each, ".venv/bin/python")))
  for (const python of named ? [named] : [...new Set(around.filter((path) => existsSync(path))), "python3"])
    if (spawnSync(python, ["-c", HAS], { stdio: "ignore" }).status === 0) return python
  return null
}

/**
 * @param {string} folder
 * @returns {string[]}
 */
function above(folder) {
  return folder === dirname(folder) ? [folder] : [folder, ...above(dirname(folder))]
}

/**
 * Be the engine: the same words, the same answers, the same exit code.
 * @param {string} python
 * @param {string[]} words
 * @returns {Promise<number>}
 */
export function hand_over(python, words) {
  const command = ["-m", "updater", ...words]
  const execve = /** @type {any} */ (process).execve // Node 22.15 and newer: killing this then kills the engine
  if (execve && python.includes("/")) execve.call(process, python, [python, ...command], process.env)
  const child = spawn(python, command, { stdio: "inherit" })
  for (const signal of /** @type {const} */ (["SIGINT", "SIGTERM"])) process.on(signal, () => child.kill(signal))
  return new Promise((done) => {
    child.on("error", () => done(1))
    child.on("exit", (code, signal) => done(code ?? 128 + (signal ? constants.signals[signal] : 0)))
  })
}
