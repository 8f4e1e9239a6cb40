/**
 * A publisher that writes into the zones of this workspace.
 * @module
 */

import { closeSync, fsyncSync, linkSync, mkdirSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { basename, dirname, join, normalize } from "node:path"

import { dumps } from "../canonical.mjs"
import { KfmError } from "../errors.mjs"
import { digest, new_run_id } from "../idempotency/keygen.mjs"

/**
 * @typedef {import("./base.mjs").Publisher} Publisher
 * @implements {Publisher}
 */
export class LocalPublisher {
  /** @param {string} workspace */
  constructor(workspace) {
    this.data = join(workspace, "data")
    this.root = workspace
  }

  /**
   * @param {string} path
   * @param {Uint8Array} content
   */
  write_file(path, content) {
    if (!create(inside(this.data, path), content) && digest(readFileSync(join(this.data, path))) !== digest(content))
      throw new KfmError(`${path} exists with other content.`, { expected: "what is published never to change", code: 6, name: "IntegrityError" })
    return digest(content)
  }

  emit_event() {}

  /**
   * @param {string} key
   * @param {Uint8Array} value
   */
  update_metadata(key, value) {
    const path = inside(this.data, key)
    renameSync(written(path, value), path)
    sync_folder(dirname(path))
  }

  /**
   * @param {string} tag
   * @param {{[path: string]: string}} assets
   */
  publish_release(tag, assets) {
    return create(inside(this.root, `releases/${tag}.json`), Buffer.from(`${dumps({ tag, assets })}\n`))
  }

  noop_guard() {
    throw new KfmError("A local publisher writes for real; a dry run must be wired with the no-op publisher.")
  }
}

/**
 * @param {string} zone
 * @param {string} path
 */
function inside(zone, path) {
  const found = normalize(join(zone, path))
  if (!found.startsWith(`${zone}/`)) throw new KfmError(`${path} leaves its zone.`, { code: 2, name: "UsageError" })
  return found
}

/**
 * @param {string} path
 * @param {Uint8Array} content
 */
function written(path, content) {
  mkdirSync(dirname(path), { recursive: true })
  const temp = join(dirname(path), `.${basename(path)}.${new_run_id()}.tmp`)
  writeFileSync(temp, content, { flush: true, flag: "wx" })
  return temp
}

/**
 * Make `content` appear at `path` whole or not at all; false: there is something already.
 * @param {string} path
 * @param {Uint8Array} content
 */
function create(path, content) {
  const temp = written(path, content)
  try {
    linkSync(temp, path)
    return true
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== "EEXIST") throw error
    return false
  } finally {
    rmSync(temp)
    sync_folder(dirname(path))
  }
}

/** @param {string} folder */
function sync_folder(folder) {
  const fd = openSync(folder, "r")
  try {
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}
